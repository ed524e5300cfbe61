"""Decoder states on a device: the same results as states in NumPy arrays, and few bytes copied.

The device is main memory here, with the same graphs, bindings and copies as on a card. Steps write their caches in
place, or, as float32 on CUDA needs, with ScatterND.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lingon.bundle import names
from lingon.errors import EngineFault
from lingon.export.gates_text import engine_search
from lingon.serving.decoding.batch import JobResult
from lingon.serving.decoding.greedy import GreedyBatch
from lingon.serving.decoding.job import DecodeJob, Options, Sampling
from lingon.serving.runtime.device import FP32_ON_CUDA
from lingon.serving.runtime.device_buffers import MOST_STEPS, DeviceBuffers, GraphRecorder, StateBindings
from lingon.serving.runtime.onnx_runner import OnnxRunner
from lingon.serving.runtime.runner import BatchShape, GreedySteps
from lingon.text import BOS
from tests.support.engine_harness import options_for, running_engine
from tests.support.random_models import STEPS, decode, device_runner, encode, random_runner, random_sources

SHAPE = BatchShape(4, 1, 32, 64)
TOLERANCE = 1e-5  # of a log-probability: the two attentions add in another order


def scattered(**settings: Any) -> OnnxRunner:
    return random_runner(precision=FP32_ON_CUDA, **settings)


BOTH = pytest.mark.parametrize("make", [device_runner, scattered])
Make = Callable[[], OnnxRunner]


def placed(runner: OnnxRunner, sentences: int, shape: BatchShape) -> DeviceBuffers:
    """Buffers with random sentences in the first slots."""
    encoded, buffers = encode(runner, random_sources(sentences)), runner.open(shape)
    assert isinstance(buffers, DeviceBuffers)
    for slot in range(sentences):
        buffers.place(slot, encoded, slot)
    return buffers


def admitted(
    runner: OnnxRunner, buffers: DeviceBuffers, shape: BatchShape, sources: list[Any], **options: Any
) -> GreedyBatch:
    batch, encoded = GreedyBatch(buffers, shape), encode(runner, sources)
    for index, source in enumerate(sources):
        chosen = Options(**options) if options else options_for(runner, source)
        batch.admit(DecodeJob(source_ids=source, options=chosen, on_done=lambda outcome: None), encoded, index)
    return batch


def stepped(batch: GreedyBatch) -> list[JobResult]:
    """All results of a batch, which is stepped to its end."""
    found: list[JobResult] = []
    while len(batch):
        batch.compact()
        found += batch.step()
    return found


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
@BOTH
def test_batches_that_change_give_the_results_of_states_in_main_memory(make: Make, seed: int) -> None:
    """Sentences with prefixes, samples and beams join, end and are cancelled, so that rows are moved and reused.

    Where caches are scattered, tokens are compared and nothing is sampled, because scores differ in their last bits.
    """
    draw, sources, results = random.Random(seed), random_sources(80, seed=seed), []
    exact = make is device_runner
    kinds: list[dict[str, Any]] = [{}, {"beam_size": 4, "num_hypotheses": 2}]
    options = [draw.choice([*kinds, {"sampling": Sampling(seed=7)}] if exact else kinds) for _ in sources]
    prefixes = [tuple(draw.choices(range(4, 30), k=draw.randrange(4))) for _ in sources]
    for runner in (make(), random_runner()):
        with running_engine(runner, max_rows=24) as harness:
            jobs = [
                harness.job(source, index, options=options_for(runner, source, **chosen), prefix=prefix)
                for index, (source, chosen, prefix) in enumerate(zip(sources, options, prefixes, strict=True))
            ]
            for begin in range(0, len(jobs), 20):
                harness.engine.submit(jobs[begin : begin + 20])
            harness.engine.cancel(jobs[::9])
            found = {index: each for index, each in harness.collect(len(jobs)).items() if index % 9}
            results.append(found if exact else {index: [one.tokens for one in each] for index, each in found.items()})
    assert results[0] == results[1]


def test_a_step_copies_only_tokens_and_candidates() -> None:
    for width, capacity in ((32, 16), (128, 64)):
        runner = device_runner()
        buffers = placed(runner, 8, BatchShape(8, 1, width, capacity))
        buffers.step(8, logits=False)
        before = runner.device.copied_bytes
        buffers.step(8, logits=False)
        up, down = 8 * (8 + 8) + 8, 8 * (8 + 4)  # ids, positions, an index; an id and a log-probability
        assert runner.device.copied_bytes - before == up + down


def test_greedy_search_copies_its_tokens_once_for_several_steps() -> None:
    runner = device_runner()
    buffers = placed(runner, 5, BatchShape(8, 1, 32, 64))
    buffers.greedy_steps(5, 8)
    before = runner.device.copied_bytes
    buffers.greedy_steps(5, 8)
    up, down = 8 * (8 + 8) + 8, 8 * 8 * (4 + 4)  # ids, positions, an index; for each step an id and a log-probability
    assert runner.device.copied_bytes - before == up + down


@BOTH
def test_several_greedy_steps_are_as_many_single_ones(make: Make) -> None:
    single, several = [], []
    one, other = (placed(make(), 5, BatchShape(8, 1, 32, 64)) for _ in range(2))
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
    found = stepped(admitted(runner, Counting(bindings, runner.state_graphs), SHAPE, random_sources(4)))
    longest = max(len(outcome[0].log_probs) for _, outcome in found if isinstance(outcome, tuple))
    assert looks[0] == MOST_STEPS
    assert longest <= sum(looks) < longest + MOST_STEPS


@BOTH
def test_nan_in_free_slots_unused_positions_and_idle_rows_changes_nothing(make: Make) -> None:
    runner, sources = make(), random_sources(3)
    encoded = encode(runner, sources)
    exact = random_runner() if make is device_runner else runner
    expected = decode(exact, encode(exact, sources), [0, 1, 2], 64)
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
    encoded, buffers = encode(runner, sources), placed(runner, 4, BatchShape(4, 2, 32, 16))
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
    buffers = placed(device_runner(), 2, BatchShape(2, 2, 32, 16))
    buffers.token_ids[:], buffers.positions[:] = [5, 6, 7, 8], 0
    buffers.step(2, logits=False)
    buffers.move(1, 0, 1)
    buffers.copy_rows(np.array([0]), np.array([1]), np.array([1]))
    found = step(buffers, 9, 1, 2)
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_copied_rows_continue_as_their_originals() -> None:
    buffers = placed(device_runner(), 1, BatchShape(1, 3, 32, 16))
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
    batch = admitted(runner, runner.open(shape), shape, random_sources(4, longest=20), max_output_tokens=shape.capacity)
    steps, found = [], []
    while len(batch):
        batch.compact()
        found += batch.step()
        steps.append(batch.steps)
    assert steps == [MOST_STEPS, 3]
    assert max(len(outcome[0].tokens) for _, outcome in found if isinstance(outcome, tuple)) == shape.capacity


@BOTH
def test_nan_ends_its_own_sentence_and_no_other_one(make: Make) -> None:
    outcomes, sources = [], random_sources(3)
    for poisoned in (None, 1):
        runner = make()
        buffers = runner.open(SHAPE)
        assert isinstance(buffers, DeviceBuffers)
        batch = admitted(runner, buffers, SHAPE, sources)
        if poisoned is not None:
            buffers.invalidate(poisoned)
        found = {job.source_ids: outcome for job, outcome in stepped(batch)}
        outcomes.append([found[source] for source in sources])
    clean, with_nan = outcomes
    assert isinstance(with_nan[1], EngineFault)
    assert [with_nan[0], with_nan[2]] == [clean[0], clean[2]]


@pytest.mark.parametrize("settings", [{}, {"norm": "pre", "positions": "learned"}])
@pytest.mark.parametrize(("beam_size", "penalty"), [(1, 0.0), (4, 1.0), (5, 0.6)])
def test_translations_with_scattered_caches_are_those_of_fp32_on_the_cpu(
    settings: dict[str, Any], beam_size: int, penalty: float
) -> None:
    sources = random_sources(60)
    found = engine_search(scattered(**settings), sources, beam_size, penalty)
    expected = engine_search(random_runner(**settings), sources, beam_size, penalty)
    assert [each[0].tokens for each in found] == [each[0].tokens for each in expected]
    for mine, theirs in zip(found, expected, strict=True):
        assert mine[0].log_probs == pytest.approx(theirs[0].log_probs, abs=TOLERANCE)


def test_steps_with_scattered_caches_are_those_of_fp32_on_the_cpu_for_any_capacity_and_position() -> None:
    sources = random_sources(5)
    expected = decode(random_runner(), encode(random_runner(), sources), list(range(5)), 32)
    for capacity in (STEPS, 16, 61):
        found = decode(scattered(), encode(scattered(), sources), list(range(5)), 32, capacity)
        np.testing.assert_allclose(np.stack(found), np.stack(expected), atol=TOLERANCE)


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


def test_moved_sentences_and_copied_rows_continue_as_their_originals() -> None:
    buffers = placed(scattered(), 4, BatchShape(4, 2, 32, 16))
    for number in range(3):
        buffers.token_ids[:], buffers.positions[:] = np.arange(5, 13), number
        buffers.step(4, logits=False)
    expected = step(buffers, 9, 3, 4)
    buffers.move(3, 0, 3)
    buffers.copy_rows(np.array([2]), np.array([3]), np.array([3]))
    found = step(buffers, 9, 3, 2)
    assert np.array_equal(found, expected[[6, 7, 2, 2]])
    assert not np.array_equal(expected[2], expected[3])
