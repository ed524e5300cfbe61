"""The floors of cells: multiply-adds counted in graphs, and the lower bounds on machine and device."""

from __future__ import annotations

import pytest

from lingon.bench.device_roofline import DevicePeaks, floor_of, peaks_of
from lingon.bench.engines.base import Cell
from lingon.bench.roofline import DecodingCounts, MultiplyAdds, Peaks, count_decoding, floor_ms, multiply_adds_of
from tests.support.random_models import VOCAB, random_model, random_system, written_bundle


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


# 2 multiply-adds a source token, 3 a row, 5 for each of 7 pieces, 11 a past position, 13 a source position.
MODEL = MultiplyAdds(encoder=2, decoder=3, dim=5, vocab=7, past_position=11, source_position=13)
NO_ATTENTION = MultiplyAdds(encoder=2, decoder=3, dim=5, vocab=7, past_position=0, source_position=0)


def test_counts_of_a_batch_are_rows_steps_and_attended_positions():
    cell = Cell(workload="base", batch=2, beam_size=4, exact_length=3)
    assert count_decoding([[5, 2], [5, 6, 2]], [[7, 7, 7], [8, 8, 8]], cell, 7) == DecodingCounts(
        source_tokens=5,
        encoder_runs=1,
        rows=24,
        steps=3,
        past_positions=4 * (6 + 6),
        source_positions=4 * (2 * 3 + 3 * 3),
        pieces=7,
    )


def test_counts_of_real_sentences_include_end_tokens_and_the_fewest_steps():
    found = count_decoding([[5, 2]] * 3, [[7], [8, 8], [9]], Cell(workload="shipped", batch=2), 7)
    assert (found.encoder_runs, found.rows, found.steps) == (2, 7, 4)
    assert count_decoding([[5, 2]] * 3, [[7], [8] * 9, [9]], Cell(workload="shipped", batch=2), 7).steps == 10


def test_the_floor_of_computing_is_operations_over_the_peak_rate():
    counts = DecodingCounts(
        source_tokens=10, encoder_runs=1, rows=20, steps=4, past_positions=6, source_positions=8, pieces=7
    )
    peaks = Peaks(gemm={"fp32": 100, "int8": 400}, read=1, cache=10**6)
    products = 2 * 2 * 10 + 2 * (3 + 5 * 7) * 20
    attention = 2 * (6 * 11 + 8 * 13)
    assert floor_ms(MODEL, peaks, "fp32", counts) == pytest.approx(1000 * (products + attention) / 100)
    assert floor_ms(MODEL, peaks, "int8", counts) == pytest.approx(1000 * (products / 400 + attention / 100))


def test_the_floor_of_reading_counts_weights_larger_than_the_cache():
    counts = DecodingCounts(
        source_tokens=10, encoder_runs=2, rows=20, steps=4, past_positions=0, source_positions=0, pieces=7
    )
    slow_memory = Peaks(gemm={"fp32": 1e12, "int8": 1e12}, read=1, cache=8)
    only_steps = 4 * 4 * (3 + 5 * 7)  # The encoder's 8 bytes stay in the cache.
    assert floor_ms(NO_ATTENTION, slow_memory, "fp32", counts) == pytest.approx(1000 * only_steps)
    no_cache = Peaks(gemm=slow_memory.gemm, read=1, cache=0)
    assert floor_ms(NO_ATTENTION, no_cache, "int8", counts) == pytest.approx(1000 * (2 * 2 + 4 * (3 + 5 * 7)))


def test_a_shortlist_lowers_the_floor():
    peaks = Peaks(gemm={"fp32": 100}, read=1, cache=10**6)
    counts = [
        count_decoding([[5, 2]], [[7, 7]], Cell(workload="base", batch=1, exact_length=2), pieces) for pieces in (7, 2)
    ]
    full, short = (floor_ms(NO_ATTENTION, peaks, "fp32", each) for each in counts)
    assert full - short == pytest.approx(1000 * 2 * 5 * 5 * 2 / 100)


def test_the_floor_is_that_of_a_calculation_by_hand():
    """Two sentences of 5 source and 3 target tokens with beam 2, in fp16."""
    model = MultiplyAdds(encoder=1000, decoder=2000, dim=10, vocab=100, past_position=40, source_position=40)
    counts = DecodingCounts(
        source_tokens=10, encoder_runs=1, rows=12, steps=3, past_positions=24, source_positions=60, pieces=100
    )
    peaks = DevicePeaks(gemm={"fp16": 1e6}, read=1e6, launch=1e-4)
    found = floor_of(model, 2, counts, beam_size=2, peaks=peaks, precision="fp16")
    assert found.encoder == pytest.approx(1000 * 2 * 1000 * 10 / 1e6)
    moved = 3 * (2000 + 10 * 100) + 24 * 40 + 60 * 40 // 2 + 12 * 40
    assert found.read == pytest.approx(1000 * 2 * moved / 1e6)
    assert found.compute == pytest.approx(1000 * 2 * (12 * 3000 + 24 * 40 + 60 * 40) / 1e6)
    assert found.launch == pytest.approx(1000 * (8 * 2 + 1) * 3 * 1e-4)
    assert found.total == pytest.approx(found.encoder + found.compute)


def test_no_precision_has_a_lower_peak_than_fp32():
    found = peaks_of({"gemm_gops": {"fp32": 10, "fp16": 2, "bf16": 30}, "read_gbps": 5, "launch_us": 2})
    assert found == DevicePeaks({"fp32": 1e10, "fp16": 1e10, "bf16": 3e10}, 5e9, 2e-6)
