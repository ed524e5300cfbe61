"""Decoder states on a device: the same results as states in NumPy arrays, and few bytes copied.

The device is main memory here, with the same graphs, bindings and copies as on a card.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from lingon.errors import EngineFault
from lingon.export.gates_text import engine_search
from lingon.serving.decoding.batch import JobResult
from lingon.serving.decoding.greedy import GreedyBatch
from lingon.serving.decoding.job import DecodeJob, Options, Sampling
from lingon.serving.runtime.device_buffers import MOST_STEPS, DeviceBuffers, GraphRecorder, StateBindings
from lingon.serving.runtime.runner import BatchShape, GreedySteps
from lingon.text import BOS
from tests.support.engine_harness import options_for, running_engine
from tests.support.random_models import STEPS, decode, device_runner, encode, random_runner, random_sources

SHAPE = BatchShape(4, 1, 32, 64)


def step(buffers: DeviceBuffers, token: int, position: int, sentences: int) -> np.ndarray:
    """The log-probabilities of the candidates of a step: (rows, candidates)."""
    buffers.token_ids[:], buffers.positions[:] = token, position
    return buffers.step(sentences, logits=False).candidate_log_probs.copy()


def log_probs(buffers: DeviceBuffers, sentences: int, steps: int = STEPS) -> np.ndarray:
    """The log-probabilities of all steps of fixed tokens: (steps, rows, candidates)."""
    tokens = (BOS if number == 0 else 5 + number for number in range(steps))
    return np.stack([step(buffers, token, place, sentences) for place, token in enumerate(tokens)])


@pytest.mark.parametrize("settings", [{}, {"norm": "pre", "positions": "learned"}])
@pytest.mark.parametrize(("beam_size", "penalty"), [(1, 0.0), (4, 1.0), (5, 0.6)])
def test_translations_and_scores_are_those_of_states_in_main_memory(
    settings: dict[str, Any], beam_size: int, penalty: float
) -> None:
    sources = random_sources(60)
    found = engine_search(device_runner(**settings), sources, beam_size, penalty)
    assert found == engine_search(random_runner(**settings), sources, beam_size, penalty)


@pytest.mark.parametrize("seed", range(3))
def test_batches_that_change_give_the_results_of_states_in_main_memory(seed: int) -> None:
    """Sentences with prefixes, samples and beams join, end and are cancelled, so that rows are moved and reused."""
    draw, sources, results = random.Random(seed), random_sources(80, seed=seed), []
    kinds: list[dict[str, Any]] = [{}, {"beam_size": 4, "num_hypotheses": 2}, {"sampling": Sampling(seed=7)}]
    options = [draw.choice(kinds) for _ in sources]
    prefixes = [tuple(draw.choices(range(4, 30), k=draw.randrange(4))) for _ in sources]
    for runner in (device_runner(), random_runner()):
        with running_engine(runner, max_rows=24) as harness:
            jobs = [
                harness.job(source, index, options=options_for(runner, source, **chosen), prefix=prefix)
                for index, (source, chosen, prefix) in enumerate(zip(sources, options, prefixes, strict=True))
            ]
            cancelled = jobs[::9]
            for begin in range(0, len(jobs), 20):
                harness.engine.submit(jobs[begin : begin + 20])
            harness.engine.cancel(cancelled)
            found = harness.collect(len(jobs))
            results.append({index: each for index, each in found.items() if index % 9})
    assert results[0] == results[1]


def test_a_step_copies_only_tokens_and_candidates() -> None:
    sources = random_sources(8)
    for width, capacity in ((32, 16), (128, 64)):
        runner = device_runner()
        buffers = runner.open(BatchShape(8, 1, width, capacity))
        encoded = encode(runner, sources)
        for slot in range(8):
            buffers.place(slot, encoded, slot)
        buffers.step(8, logits=False)
        before = runner.device.copied_bytes
        buffers.step(8, logits=False)
        up, down = 8 * (8 + 8) + 8, 8 * (8 + 4)  # ids, positions, an index; an id and a log-probability
        assert runner.device.copied_bytes - before == up + down


def test_greedy_search_copies_its_tokens_once_for_several_steps() -> None:
    runner, sources = device_runner(), random_sources(5)
    buffers = runner.open(BatchShape(8, 1, 32, 64))
    encoded = encode(runner, sources)
    for slot in range(5):
        buffers.place(slot, encoded, slot)
    buffers.greedy_steps(5, 8)
    before = runner.device.copied_bytes
    buffers.greedy_steps(5, 8)
    up, down = 8 * (8 + 8) + 8, 8 * 8 * (4 + 4)  # ids, positions, an index; for each step an id and a log-probability
    assert runner.device.copied_bytes - before == up + down


def test_several_greedy_steps_are_as_many_single_ones() -> None:
    runner, sources = device_runner(), random_sources(5)
    encoded, single, several = encode(runner, sources), [], []
    one, other = (runner.open(BatchShape(8, 1, 32, 64)) for _ in range(2))
    for slot in range(5):
        one.place(slot, encoded, slot)
        other.place(slot, encoded, slot)
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


def test_an_engine_looks_once_at_several_greedy_steps() -> None:
    looks: list[int] = []

    class Counting(DeviceBuffers):
        def greedy_steps(
            self, sentences: int, steps: int, forced: np.ndarray | None = None, *, weighs: bool = False
        ) -> GreedySteps:
            looks.append(steps)
            return super().greedy_steps(sentences, steps, forced, weighs=weighs)

    runner = device_runner()
    assert runner.state_graphs is not None
    decoder, device = runner.decoder.all_cores, runner.device
    bindings = StateBindings(runner.manifest, decoder, runner.state_graphs, SHAPE, device, GraphRecorder())
    buffers = Counting(bindings, runner.state_graphs)
    batch, sources = GreedyBatch(buffers, SHAPE), random_sources(4)
    encoded = encode(runner, sources)
    for index, source in enumerate(sources):
        job = DecodeJob(source_ids=source, options=options_for(runner, source), on_done=lambda outcome: None)
        batch.admit(job, encoded, index)
    found: list[JobResult] = []
    while len(batch):
        batch.compact()
        found += batch.step()
    longest = max(len(outcome[0].log_probs) for _, outcome in found if isinstance(outcome, tuple))
    assert looks[0] == MOST_STEPS
    assert longest <= sum(looks) < longest + MOST_STEPS


def test_nan_in_free_slots_unused_positions_and_idle_rows_changes_nothing() -> None:
    runner, sources = device_runner(), random_sources(3)
    encoded = encode(runner, sources)
    expected = decode(random_runner(), encode(random_runner(), sources), [0, 1, 2], 64)
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


def test_sentences_of_several_encoder_runs_replace_those_in_their_slots() -> None:
    runner, sources = device_runner(), random_sources(4)
    long, short = encode(runner, sources, padding=20), encode(runner, [sources[2][-3:]])
    buffers = runner.open(BatchShape(4, 1, 32, 16))
    for slot in range(4):
        buffers.place(slot, long, slot)
    log_probs(buffers, 4)
    buffers.place(1, long, 3)
    buffers.place(1, short, 0)  # the slot was freed and filled again before the next step, twice
    buffers.place(1, long, 1)
    buffers.place(2, long, 0)
    found = log_probs(buffers, 4)
    alone = runner.open(BatchShape(1, 1, 32, 16))
    for slot, (encoded, index) in enumerate([(long, 0), (long, 1), (long, 0), (long, 3)]):
        alone.place(0, encoded, index)
        assert np.array_equal(found[:, slot], log_probs(alone, 1)[:, 0])


def test_moved_sentences_continue_in_their_new_slots() -> None:
    runner, sources = device_runner(), random_sources(4)
    encoded = encode(runner, sources)
    buffers = runner.open(BatchShape(4, 2, 32, 16))
    for slot in range(4):
        buffers.place(slot, encoded, slot)
    first = [step(buffers, 5 + number, number, 4) for number in range(3)]
    expected = step(buffers, 9, 3, 4)
    buffers.move(3, 0, 3)
    buffers.move(2, 1, 3)
    found = step(buffers, 9, 3, 2)
    assert np.array_equal(found, expected[[6, 7, 4, 5]])
    buffers.move(0, 2, 3)
    buffers.move(2, 3, 3)  # the sentence that has just moved
    buffers.place(0, encoded, 0)
    found = step(buffers, 9, 3, 4)
    assert np.array_equal(found[6:], expected[6:])
    again = [step(buffers, 5 + number, number, 1) for number in range(3)]
    assert all(np.array_equal(one, other[:2]) for one, other in zip(again, first, strict=True))


def test_a_sentence_may_take_the_slot_that_another_one_leaves() -> None:
    runner, sources = device_runner(), random_sources(4)
    encoded = encode(runner, sources)
    expected = [decode(runner, encoded, [index], 32)[0][0] for index in range(4)]
    buffers = runner.open(BatchShape(2, 1, 32, 16))
    buffers.place(1, encoded, 1)
    buffers.move(1, 0, 0)
    buffers.place(1, encoded, 2)
    assert np.array_equal(step(buffers, BOS, 0, 2), [expected[1], expected[2]])


def test_rows_are_copied_after_the_moves_before_them() -> None:
    runner = device_runner()
    buffers = runner.open(BatchShape(2, 2, 32, 16))
    encoded = encode(runner, random_sources(2))
    for slot in range(2):
        buffers.place(slot, encoded, slot)
    buffers.token_ids[:], buffers.positions[:] = [5, 6, 7, 8], 0
    buffers.step(2, logits=False)
    buffers.move(1, 0, 1)
    buffers.copy_rows(np.array([0]), np.array([1]), np.array([1]))
    found = step(buffers, 9, 1, 2)
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_copied_rows_continue_as_their_originals() -> None:
    runner = device_runner()
    buffers = runner.open(BatchShape(1, 3, 32, 16))
    buffers.place(0, encode(runner, random_sources(1)), 0)
    for number in range(3):
        buffers.token_ids[:], buffers.positions[:] = [5 + number, 9 + number, 20 + number], number
        buffers.step(1, logits=False)
    layers, heads, head_dim = 2, 2, 16
    copied = buffers.copy_rows(np.array([0]), np.array([2]), np.array([3]))
    assert copied == 2 * layers * heads * 16 * head_dim * 4
    found = step(buffers, 8, 3, 1)
    assert np.array_equal(found[0], found[2])
    assert not np.array_equal(found[0], found[1])


def test_no_step_goes_beyond_the_capacity_of_the_caches() -> None:
    runner, shape = device_runner(), BatchShape(4, 1, 32, MOST_STEPS + 3)
    batch, sources = GreedyBatch(runner.open(shape), shape), random_sources(4, longest=20)
    encoded = encode(runner, sources)
    for index, source in enumerate(sources):
        options = Options(max_output_tokens=shape.capacity)
        batch.admit(DecodeJob(source_ids=source, options=options, on_done=lambda outcome: None), encoded, index)
    steps, found = [], []
    while len(batch):
        batch.compact()
        found += batch.step()
        steps.append(batch.steps)
    assert steps == [MOST_STEPS, 3]
    assert max(len(outcome[0].tokens) for _, outcome in found if isinstance(outcome, tuple)) == shape.capacity


def test_nan_ends_its_own_sentence_and_no_other_one() -> None:
    runner, outcomes = device_runner(), []
    for poisoned in (None, 1):
        buffers = runner.open(SHAPE)
        assert isinstance(buffers, DeviceBuffers)
        batch, sources = GreedyBatch(buffers, SHAPE), random_sources(3)
        encoded = encode(runner, sources)
        for index, source in enumerate(sources):
            job = DecodeJob(source_ids=source, options=options_for(runner, source), on_done=lambda outcome: None)
            batch.admit(job, encoded, index)
        if poisoned is not None:
            buffers.invalidate(poisoned)
        found: dict[tuple[int, ...], Any] = {}
        while len(batch):
            batch.compact()
            found |= {job.source_ids: outcome for job, outcome in batch.step()}
        outcomes.append([found[source] for source in sources])
    clean, with_nan = outcomes
    assert isinstance(with_nan[1], EngineFault)
    assert [with_nan[0], with_nan[2]] == [clean[0], clean[2]]
