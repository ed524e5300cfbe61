"""The multiply-adds of a bundle's model, counted in its graphs."""

from __future__ import annotations

import pytest

from lingon.bench.roofline.multiply_adds import multiply_adds_of
from tests.support.random_models import VOCAB, random_model, written_bundle
from tests.support.systems import random_system


@pytest.mark.parametrize(("cell", "gates"), [("gru", 3), ("lstm", 4)])
def test_the_multiply_adds_of_recurrent_layers_count_both_products_of_each(cell, gates, tmp_path):
    model = random_system(f"rnnenc {cell}")
    size = model.settings
    first = gates * size.dim * (size.embedding_dim + size.dim)
    layers = first + (size.layers - 1) * gates * size.dim * 2 * size.dim
    counted = multiply_adds_of(written_bundle(model, tmp_path))
    assert (counted.encoder, counted.decoder, counted.source_position) == (layers, layers, 0)


def test_the_products_for_the_first_state_of_a_decoder_are_free_because_they_run_once_a_sentence(tmp_path):
    model = random_system("rnnsearch gru")
    size = model.settings
    reading = 2 * 3 * size.encoder_dim * (size.embedding_dim + size.encoder_dim)
    keys = 2 * size.encoder_dim * size.attention_dim
    assert multiply_adds_of(written_bundle(model, tmp_path)).encoder == reading + keys


def test_the_multiply_adds_of_a_model_are_those_of_its_layers(tmp_path):
    model = random_model()
    counted = multiply_adds_of(written_bundle(model, tmp_path))
    settings = model.settings
    square, feed_forward = settings.dim**2, 2 * settings.dim * settings.ffn
    keys_values = settings.decoder_layers * 2 * square
    assert counted.encoder == settings.encoder_layers * (4 * square + feed_forward) + keys_values
    assert counted.decoder == settings.decoder_layers * (4 * square + 2 * square + feed_forward)
    assert (counted.dim, counted.vocab) == (settings.dim, VOCAB)
    assert counted.past_position == counted.source_position == 2 * settings.decoder_layers * settings.dim
