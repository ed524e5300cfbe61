"""Bundles of tiny systems with random weights and a tokenizer, as `lingon serve` reads them."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

from lingon.bundle import Bundle, write_bundle
from lingon.export.graphs.onnx_writer import WeightFiles
from lingon.export.graphs.precisions import build, weight_files
from lingon.training.models.interface import AnyModel
from tests.support.multilingual_bundles import LETTERS
from tests.support.random_models import VOCAB, manifest_of, random_model
from tests.support.recurrent_models import recurrent_model
from tests.support.tokenizers import train_sentencepiece

PHRASES = ["the fox", "jumps", "over", "a dog", "my box"]


@functools.cache
def letters_tokenizer() -> bytes:
    """A tokenizer of VOCAB pieces that reads every lower-case text."""
    words = " ".join(PHRASES).split()
    return train_sentencepiece([f"{word}{LETTERS[place:]} {LETTERS}" for place, word in enumerate(words * 4)], VOCAB)


def system_model(name: str, seed: int = 1) -> AnyModel:
    """The model that `publish` exports: `transformer`, or one of the recurrent systems."""
    return random_model(seed) if name == "transformer" else recurrent_model(name, seed=seed)


def publish(folder: Path, name: str, version: int = 1) -> Bundle:
    """Write a bundle of a random system, in fp32, below folder."""
    model, weights = system_model(name, version), WeightFiles()
    built = build(model, "fp32", weights, [], shortlist=False)
    manifest = replace(manifest_of(model, reads=built.reads), version=version)
    files = {**built.graphs, **weight_files(weights), "tokenizer.model": letters_tokenizer()}
    return write_bundle(folder / "random" / str(version), manifest, files)
