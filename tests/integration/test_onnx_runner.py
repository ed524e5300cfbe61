"""Batches of real graphs: the result of a row does not depend on the other rows, to the last bit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from lingon.bundle.manifest import Manifest
from lingon.serving.runtime import host_buffers
from lingon.serving.runtime.host_buffers import StateLayout
from lingon.serving.runtime.onnx_runner import OnnxBuffers
from lingon.serving.runtime.runner import BatchShape
from lingon.text import BOS
from tests.support.random_models import STEPS, VOCAB, decode, encode, random_runner, random_sources, step

NATIVES = [pytest.param(name, marks=pytest.mark.native) for name in ("int8-native", "fp32-native")]


@pytest.mark.parametrize("settings", [{}, {"dim": 128, "heads": 2, "ffn": 256}])
@pytest.mark.parametrize("precision", ["fp32", *NATIVES])
def test_no_bit_of_a_row_depends_on_the_number_of_rows(settings: dict[str, Any], precision: str) -> None:
    runner, sources = random_runner(precision=precision, **settings), random_sources(33, longest=16)
    alone = [decode(runner, encode(runner, [source]), [0], 16) for source in sources]
    for rows in range(1, 34):
        together = decode(runner, encode(runner, sources[:rows]), list(range(rows)), 16)
        for row in range(rows):
            assert all(np.array_equal(together[step][row], alone[row][step][0]) for step in range(STEPS)), (rows, row)


@pytest.mark.parametrize("precision", ["fp32", "int8", *NATIVES])
def test_no_bit_of_a_row_depends_on_the_number_of_threads(precision: str) -> None:
    settings, sources = {"dim": 256, "heads": 4, "ffn": 1024}, random_sources(33, longest=16)
    one, two = (random_runner(precision=precision, threads=threads, **settings) for threads in (1, 2))
    alone, together = (decode(runner, encode(runner, sources), list(range(33)), 16) for runner in (one, two))
    assert all(np.array_equal(mine, theirs) for mine, theirs in zip(alone, together, strict=True))


@pytest.mark.parametrize("length", [2, 3, 7, 11, 15, 16])
@pytest.mark.parametrize("precision", ["fp32", *NATIVES])
def test_no_bit_of_a_row_depends_on_padding(length: int, precision: str) -> None:
    runner, source = random_runner(precision=precision), random_sources(1)[0][:1] * (length - 1) + (2,)
    expected = decode(runner, encode(runner, [source]), [0], 16)
    for padding in range(1, 65):
        for width in (16, 32, 128):
            found = decode(runner, encode(runner, [source], padding), [0], width, capacity=16 + padding)
            assert all(np.array_equal(found[step], expected[step]) for step in range(STEPS)), (padding, width)


def test_rows_at_different_positions_share_a_batch() -> None:
    runner, sources = random_runner(), random_sources(2)
    encoded = encode(runner, sources)
    expected = [decode(runner, encoded, [row], 32) for row in (0, 1)]
    buffers = runner.open(BatchShape(2, 1, 32, 16))
    buffers.place(0, encoded, 0)
    for number in range(3):
        step(buffers, [BOS if number == 0 else 5 + number], [number])
    buffers.place(1, encoded, 1)
    for late in range(STEPS - 3):
        tokens, positions = [8 + late, BOS if late == 0 else 5 + late], [3 + late, late]
        found = step(buffers, tokens, positions).candidate_log_probs
        assert np.array_equal(found[0], expected[0][3 + late][0])
        assert np.array_equal(found[1], expected[1][late][0])


@pytest.mark.parametrize("precision", ["fp32", *NATIVES])
def test_several_greedy_steps_are_as_many_single_ones_up_to_the_first_end(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_buffers, "STEPS_SECONDS", math.inf)
    runner, sources = random_runner(precision=precision), random_sources(5)
    encoded, single, several = encode(runner, sources), [], []
    one, other = (runner.open(BatchShape(8, 1, 32, 64)) for _ in range(2))
    assert isinstance(other, OnnxBuffers)
    for buffers in (one, other):
        for slot in range(5):
            buffers.place(slot, encoded, slot)
        buffers.token_ids[:], buffers.positions[:] = BOS, 0
    for number in range(40):
        found = step(one, one.token_ids[:5].tolist(), [number] * 5)
        single.append((found.candidate_ids[:, 0].tolist(), found.candidate_log_probs[:, 0].tolist()))
        one.token_ids[:5] = found.candidate_ids[:, 0]
    end = single[3][0][0]  # a random model does not end by itself
    monkeypatch.setattr(host_buffers, "EOS", end)
    while len(several) < 40:
        most = min(8, 40 - len(several))
        chosen = other.greedy_steps(5, most)
        assert len(chosen.tokens) == most or end in chosen.tokens[-1]
        assert not any(end in tokens for tokens in chosen.tokens[:-1])
        several += zip(*chosen, strict=True)
        assert other.positions[:5].tolist() == [len(several)] * 5
    assert several == single


def test_several_greedy_steps_end_after_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_buffers, "STEPS_SECONDS", -1.0)
    runner, sources = random_runner(), random_sources(1)
    buffers = runner.open(BatchShape(8, 1, 32, 64))
    assert isinstance(buffers, OnnxBuffers)
    buffers.place(0, encode(runner, sources), 0)
    buffers.token_ids[:] = BOS
    assert len(buffers.greedy_steps(1, 8).tokens) == 1


def poison(buffers: OnnxBuffers) -> None:
    for array in buffers._arrays.values():
        if array.dtype == np.float32:
            array[...] = np.nan


def test_nan_in_free_slots_and_unused_positions_changes_nothing() -> None:
    runner, sources = random_runner(), random_sources(3)
    encoded = encode(runner, sources)
    expected = decode(runner, encoded, [1], 64)
    buffers = runner.open(BatchShape(4, 1, 64, 16))
    poison(buffers)
    buffers.place(0, encoded, 1)
    for number in range(STEPS):
        found = step(buffers, [BOS if number == 0 else 5 + number], [number])
        assert np.array_equal(found.candidate_log_probs, expected[number])


def test_the_beams_of_a_sentence_share_one_memory() -> None:
    runner, sources = random_runner(), random_sources(3)
    encoded = encode(runner, sources)
    buffers = runner.open(BatchShape(3, 4, 32, 16))
    for slot in range(3):
        buffers.place(slot, encoded, slot)
    assert all(buffers._arrays[state.name].shape[0] == 3 for state in runner.manifest.states_of("memory"))
    found = step(buffers, [BOS] * 12, [0] * 12).candidate_log_probs
    for slot in range(3):
        single = decode(runner, encoded, [slot], 32)[0]
        assert found[4 * slot : 4 * slot + 4, :1] == pytest.approx(np.repeat(single, 4, axis=0), abs=1e-5)


def test_a_copied_row_continues_as_its_original_and_the_bytes_are_counted() -> None:
    runner, sources = random_runner(), random_sources(1)
    encoded = encode(runner, sources)
    buffers = runner.open(BatchShape(1, 2, 32, 16))
    buffers.place(0, encoded, 0)
    for number in range(3):
        step(buffers, [5 + number, 9 + number], [number, number])
    layers, heads, head_dim = 2, 2, 16
    assert buffers.copy_rows(np.array([0]), np.array([1]), np.array([3])) == 2 * layers * heads * 3 * head_dim * 4
    found = step(buffers, [8, 8], [3, 3]).candidate_log_probs
    assert np.array_equal(found[0], found[1])


def test_a_step_returns_logits_only_if_requested() -> None:
    runner, sources = random_runner(), random_sources(2)
    buffers = runner.open(BatchShape(2, 2, 32, 16))
    for slot in range(2):
        buffers.place(slot, encode(runner, sources), slot)
    assert step(buffers, [BOS] * 4, [0] * 4).logits is None
    found = step(buffers, [BOS] * 4, [0] * 4, logits=True)
    assert found.logits is not None
    assert found.logits.shape[0] == 4
    assert found.logits.shape[1] >= VOCAB
    assert found.candidate_ids.shape == (4, 4)
    wide = found.logits.astype(np.float64)
    log_probs = wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))
    assert np.take_along_axis(log_probs, found.candidate_ids, axis=1) == pytest.approx(
        found.candidate_log_probs, abs=1e-5
    )
    assert (np.diff(found.candidate_log_probs, axis=1) <= 0).all()


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_graph_is_looked_at_once_for_all_batches(beam_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    runner, read = random_runner(seed=beam_size), list[object]()
    of = StateLayout.of

    def counted(manifest: Manifest, graph: ort.InferenceSession) -> StateLayout:
        read.append(graph)
        return of(manifest, graph)

    monkeypatch.setattr(StateLayout, "of", counted)
    for sentences in (1, 4, 1):
        assert runner.open(BatchShape(sentences, beam_size, 32, 10)).nbytes > 0
    assert read == [runner.decoder.all_cores]
