"""The floor of a cell on this machine, and what it counts."""

from __future__ import annotations

import pytest

from lingon.bench.engines.base import Cell
from lingon.bench.roofline.counts import DecodingCounts, MultiplyAdds, count_decoding
from lingon.bench.roofline.machine_floor import Peaks, floor_ms

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
