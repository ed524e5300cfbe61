"""What the graphs promise on ONNX Runtime, to the last bit, whatever stands beside a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lingon.text import BOS, PAD
from serving.onnx_runner import OnnxBuffers, OnnxRunner
from serving.runner import Encoded
from tests.models import VOCAB, random_runner, random_sources

STEPS = 6


def encode(runner: OnnxRunner, sources: list[tuple[int, ...]], padding: int = 0) -> Encoded:
    longest = max(map(len, sources)) + padding
    ids = np.array([[*source, *[PAD] * (longest - len(source))] for source in sources])
    return runner.encode(ids, np.array([len(source) for source in sources]))


def decode(runner: OnnxRunner, encoded: Encoded, rows: list[int], width: int, capacity: int = 16) -> list[np.ndarray]:
    """The candidates' log-probabilities of some steps with fixed tokens, for rows of an encoder's batch."""
    buffers = runner.open(len(rows), 1, width, capacity)
    for slot, row in enumerate(rows):
        buffers.place(slot, encoded, row)
    found = []
    for step in range(STEPS):
        tokens = np.full(len(rows), BOS if step == 0 else 5 + step)
        found.append(buffers.step(len(rows), tokens, np.full(len(rows), step), logits=False).candidate_log_probs.copy())
    return found


@pytest.mark.parametrize("settings", [{}, {"dim": 128, "heads": 2, "ffn": 256}])
def test_no_bit_of_a_row_depends_on_how_many_stand_beside_it(settings: dict[str, Any]) -> None:
    runner, sources = random_runner(**settings), random_sources(33, longest=16)
    alone = [decode(runner, encode(runner, [source]), [0], 16) for source in sources]
    for rows in range(1, 34):
        together = decode(runner, encode(runner, sources[:rows]), list(range(rows)), 16)
        for row in range(rows):
            assert all(np.array_equal(together[step][row], alone[row][step][0]) for step in range(STEPS)), (rows, row)


@pytest.mark.parametrize("length", [2, 3, 7, 11, 15, 16])
def test_no_bit_of_a_row_depends_on_padding(length: int) -> None:
    runner, source = random_runner(), random_sources(1)[0][:1] * (length - 1) + (2,)
    expected = decode(runner, encode(runner, [source]), [0], 16)
    for padding in range(1, 65):
        for width in (16, 32, 128):
            found = decode(runner, encode(runner, [source], padding), [0], width, capacity=16 + padding)
            assert all(np.array_equal(found[step], expected[step]) for step in range(STEPS)), (padding, width)


def test_rows_of_different_pasts_share_a_batch() -> None:
    runner, sources = random_runner(), random_sources(2)
    encoded = encode(runner, sources)
    expected = [decode(runner, encoded, [row], 32) for row in (0, 1)]
    buffers = runner.open(2, 1, 32, 16)
    buffers.place(0, encoded, 0)
    for step in range(3):
        buffers.step(1, np.array([BOS if step == 0 else 5 + step]), np.array([step]), logits=False)
    buffers.place(1, encoded, 1)
    for late in range(STEPS - 3):
        tokens, positions = np.array([8 + late, BOS if late == 0 else 5 + late]), np.array([3 + late, late])
        found = buffers.step(2, tokens, positions, logits=False).candidate_log_probs
        assert np.array_equal(found[0], expected[0][3 + late][0])
        assert np.array_equal(found[1], expected[1][late][0])


def poison(buffers: OnnxBuffers) -> None:
    for array in buffers._arrays.values():
        if array.dtype == np.float32:
            array[...] = np.nan


def test_poison_in_free_slots_and_unused_room_changes_nothing() -> None:
    runner, sources = random_runner(), random_sources(3)
    encoded = encode(runner, sources)
    expected = decode(runner, encoded, [1], 64)
    buffers = runner.open(4, 1, 64, 16)
    poison(buffers)
    buffers.place(0, encoded, 1)
    for step in range(STEPS):
        found = buffers.step(1, np.array([BOS if step == 0 else 5 + step]), np.array([step]), logits=False)
        assert np.array_equal(found.candidate_log_probs, expected[step])


def test_beams_of_a_sentence_read_one_memory() -> None:
    runner, sources = random_runner(), random_sources(3)
    encoded = encode(runner, sources)
    buffers = runner.open(3, 4, 32, 16)
    for slot in range(3):
        buffers.place(slot, encoded, slot)
    assert all(buffers._arrays[state.name].shape[0] == 3 for state in runner.manifest.states_of("memory"))
    found = buffers.step(3, np.full(12, BOS), np.zeros(12, np.int64), logits=False).candidate_log_probs
    for slot in range(3):
        single = decode(runner, encoded, [slot], 32)[0]
        assert found[4 * slot : 4 * slot + 4] == pytest.approx(np.repeat(single, 4, axis=0), abs=1e-5)


def test_a_copied_row_goes_on_as_its_original_and_the_bytes_are_counted() -> None:
    runner, sources = random_runner(), random_sources(1)
    encoded = encode(runner, sources)
    buffers = runner.open(1, 2, 32, 16)
    buffers.place(0, encoded, 0)
    for step in range(3):
        buffers.step(1, np.array([5 + step, 9 + step]), np.array([step, step]), logits=False)
    layers, heads, head_dim = 2, 2, 16
    assert buffers.copy_rows(np.array([0]), np.array([1]), 3) == 2 * layers * heads * 3 * head_dim * 4
    found = buffers.step(1, np.array([8, 8]), np.array([3, 3]), logits=False).candidate_log_probs
    assert np.array_equal(found[0], found[1])


def test_logits_are_handed_out_where_they_are_asked_for() -> None:
    runner, sources = random_runner(), random_sources(2)
    buffers = runner.open(2, 1, 32, 16)
    for slot in range(2):
        buffers.place(slot, encode(runner, sources), slot)
    start = np.zeros(2, np.int64)
    assert buffers.step(2, start + BOS, start, logits=False).logits is None
    step = buffers.step(2, start + BOS, start, logits=True)
    assert step.logits is not None
    assert step.logits.shape == (2, VOCAB)
    wide = step.logits.astype(np.float64)
    log_probs = wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))
    assert np.take_along_axis(log_probs, step.candidate_ids, axis=1) == pytest.approx(
        step.candidate_log_probs, abs=1e-5
    )
    assert (np.diff(step.candidate_log_probs, axis=1) <= 0).all()


def test_states_carried_to_the_graph_and_back_give_what_states_in_place_give() -> None:
    runner, sources = random_runner(), random_sources(3)
    encoded = encode(runner, sources)
    found = []
    for in_place in (True, False):
        buffers = runner.open(3, 1, 32, 16)
        buffers.in_place = in_place
        for slot in range(3):
            buffers.place(slot, encoded, slot)
        for step in range(STEPS):
            tokens, positions = np.array([5, 6, 7]) + step, np.full(3, step)
            last = buffers.step(3, tokens, positions, logits=True)
        assert last.logits is not None
        found.append((last.candidate_log_probs.copy(), last.candidate_ids.copy(), last.logits.copy()))
    assert all(np.array_equal(one, other) for one, other in zip(*found, strict=True))
