"""Decoder steps that write their caches with ScatterND, as float32 on CUDA needs: the tokens of the graphs for the CPU.

The device is main memory here, with the same graphs, bindings and copies as on a card.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from lingon.bundle import names
from lingon.errors import EngineFault
from lingon.export.gates_text import engine_search
from lingon.serving.decoding.batch import JobResult
from lingon.serving.decoding.greedy import GreedyBatch
from lingon.serving.decoding.job import DecodeJob
from lingon.serving.runtime.device import FP32_ON_CUDA
from lingon.serving.runtime.device_buffers import DeviceBuffers
from lingon.serving.runtime.onnx_runner import OnnxRunner
from lingon.serving.runtime.runner import BatchShape
from lingon.text import BOS
from tests.support.engine_harness import options_for, running_engine
from tests.support.random_models import STEPS, decode, encode, random_runner, random_sources

TOLERANCE = 1e-5  # of a log-probability: the two attentions add in another order


def scattered(**settings: Any) -> OnnxRunner:
    return random_runner(precision=FP32_ON_CUDA, **settings)


def placed(sentences: int, shape: BatchShape) -> DeviceBuffers:
    """Buffers with random sentences in the first slots."""
    runner = scattered()
    encoded, buffers = encode(runner, random_sources(sentences)), runner.open(shape)
    assert isinstance(buffers, DeviceBuffers)
    for slot in range(sentences):
        buffers.place(slot, encoded, slot)
    return buffers


def step(buffers: DeviceBuffers, token: int, position: int, sentences: int) -> np.ndarray:
    """The log-probabilities of the candidates of a step: (rows, candidates)."""
    buffers.token_ids[:], buffers.positions[:] = token, position
    return buffers.step(sentences, logits=False).candidate_log_probs.copy()


@pytest.mark.parametrize("settings", [{}, {"norm": "pre", "positions": "learned"}])
@pytest.mark.parametrize(("beam_size", "penalty"), [(1, 0.0), (4, 1.0), (5, 0.6)])
def test_translations_are_those_of_fp32_on_the_cpu(settings: dict[str, Any], beam_size: int, penalty: float) -> None:
    sources = random_sources(60)
    found = engine_search(scattered(**settings), sources, beam_size, penalty)
    expected = engine_search(random_runner(**settings), sources, beam_size, penalty)
    assert [each[0].tokens for each in found] == [each[0].tokens for each in expected]
    for mine, theirs in zip(found, expected, strict=True):
        assert mine[0].log_probs == pytest.approx(theirs[0].log_probs, abs=TOLERANCE)


def test_steps_are_those_of_fp32_on_the_cpu_for_any_capacity_and_position() -> None:
    sources = random_sources(5)
    expected = decode(random_runner(), encode(random_runner(), sources), list(range(5)), 32)
    for capacity in (STEPS, 16, 61):
        found = decode(scattered(), encode(scattered(), sources), list(range(5)), 32, capacity)
        np.testing.assert_allclose(np.stack(found), np.stack(expected), atol=TOLERANCE)


@pytest.mark.parametrize("seed", range(2))
def test_sentences_that_join_end_and_are_cancelled_translate_as_on_the_cpu(seed: int) -> None:
    """Rows are moved and reused, at different positions in one step, greedy and with beams."""
    draw, sources, results = random.Random(seed), random_sources(80, seed=seed), []
    kinds: list[dict[str, Any]] = [{}, {"beam_size": 4, "num_hypotheses": 2}]
    options = [draw.choice(kinds) for _ in sources]
    prefixes = [tuple(draw.choices(range(4, 30), k=draw.randrange(4))) for _ in sources]
    for runner in (scattered(), random_runner()):
        with running_engine(runner, max_rows=24) as harness:
            jobs = [
                harness.job(source, index, options=options_for(runner, source, **chosen), prefix=prefix)
                for index, (source, chosen, prefix) in enumerate(zip(sources, options, prefixes, strict=True))
            ]
            for begin in range(0, len(jobs), 20):
                harness.engine.submit(jobs[begin : begin + 20])
            harness.engine.cancel(jobs[::9])
            found = harness.collect(len(jobs))
            results.append({index: [one.tokens for one in each] for index, each in found.items() if index % 9})
    assert results[0] == results[1]


def test_several_greedy_steps_are_as_many_single_ones() -> None:
    single, several = [], []
    one, other = (placed(5, BatchShape(8, 1, 32, 64)) for _ in range(2))
    for each in (one, other):
        each.token_ids[:], each.positions[:] = BOS, 0
    for _ in range(11):
        found = one.step(5, logits=False)
        single.append((found.candidate_ids[:, 0].tolist(), found.candidate_log_probs[:, 0].tolist()))
        one.token_ids[:5], one.positions[:5] = found.candidate_ids[:, 0], one.positions[:5] + 1
    for begin, steps in ((0, 3), (3, 8)):
        assert other.positions[:5].tolist() == [begin] * 5
        tokens, log_probs = other.greedy_steps(5, steps)
        several += zip(tokens, log_probs, strict=True)
    assert several == single


def test_a_step_changes_only_the_position_of_each_row_in_the_caches() -> None:
    runner, random_values, positions = scattered(), np.random.default_rng(0), [1, 5, 11]
    feed: dict[str, np.ndarray] = {
        names.TOKEN_IDS: np.full(3, 7),
        names.POSITIONS: np.array(positions),
        names.MEMORY_LENGTHS: np.full(3, 32),
        names.CANDIDATE_COUNT: np.array([1]),
        names.TOTAL_LENGTH: np.array(16, np.int32),
    }
    for state in runner.manifest.states:
        values = random_values.random((3, *state.sized(source_length=32, capacity=16)), np.float32)
        feed[state.name if state.kind == "memory" else names.past_name(state.name)] = values
    for state in runner.manifest.states_of("cache"):
        (present,) = runner.decoder.all_cores.run([names.present_name(state.name)], feed)
        changed = np.argwhere((present != feed[names.past_name(state.name)]).any(axis=(1, 3)))
        assert changed.tolist() == [[row, position] for row, position in enumerate(positions)]


def test_nan_in_free_slots_unused_positions_and_idle_rows_changes_nothing() -> None:
    runner, sources = scattered(), random_sources(3)
    encoded = encode(runner, sources)
    expected = decode(runner, encoded, [0, 1, 2], 64)
    buffers = runner.open(BatchShape(8, 1, 64, 16))
    for slot in range(8):
        buffers.invalidate(slot)
    for slot in range(3):
        buffers.place(slot, encoded, slot)
    found = []
    for number in range(STEPS):
        buffers.token_ids[:3], buffers.positions[:3] = BOS if number == 0 else 5 + number, number
        buffers.token_ids[3:], buffers.positions[3:] = 2**40, 2**40  # of idle rows: a step computes four sentences
        found.append(buffers.step(3, logits=False).candidate_log_probs.copy())
    assert np.array_equal(np.stack(found), np.stack(expected))


def test_moved_sentences_and_copied_rows_continue_as_their_originals() -> None:
    buffers = placed(4, BatchShape(4, 2, 32, 16))
    for number in range(3):
        buffers.token_ids[:], buffers.positions[:] = np.arange(5, 13), number
        buffers.step(4, logits=False)
    expected = step(buffers, 9, 3, 4)
    buffers.move(3, 0, 3)
    buffers.copy_rows(np.array([2]), np.array([3]), np.array([3]))
    found = step(buffers, 9, 3, 2)
    assert np.array_equal(found, expected[[6, 7, 2, 2]])
    assert not np.array_equal(expected[2], expected[3])


def test_nan_ends_its_own_sentence_and_no_other_one() -> None:
    outcomes, shape, sources = [], BatchShape(4, 1, 32, 64), random_sources(3)
    for poisoned in (None, 1):
        runner = scattered()
        buffers, encoded = runner.open(shape), encode(runner, sources)
        batch = GreedyBatch(buffers, shape)
        for index, source in enumerate(sources):
            job = DecodeJob(source_ids=source, options=options_for(runner, source), on_done=lambda outcome: None)
            batch.admit(job, encoded, index)
        if poisoned is not None:
            buffers.invalidate(poisoned)
        results: list[JobResult] = []
        while len(batch):
            batch.compact()
            results += batch.step()
        found = {job.source_ids: outcome for job, outcome in results}
        outcomes.append([found[source] for source in sources])
    clean, with_nan = outcomes
    assert isinstance(with_nan[1], EngineFault)
    assert [with_nan[0], with_nan[2]] == [clean[0], clean[2]]
