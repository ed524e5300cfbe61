"""What a worker does in a turn: one run of a graph at most beside a step, so that nobody waits long."""

from __future__ import annotations

import itertools
import queue
import time
from typing import Any

import numpy as np
import pytest

from lingon.errors import EngineFault
from lingon.serving.decoding.job import DecodeJob, Options, ScoreJob
from lingon.serving.engine import worker as worker_module
from lingon.serving.engine.engine import Engine
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.engine.policy import MAIN
from lingon.serving.engine.scheduler import NullObserver, Scheduler, StepPlan
from lingon.serving.engine.worker import MOST_WIDER, SPARE_BYTES, Worker
from lingon.serving.runtime.runner import NARROWEST, BatchShape, Encoded, Scored
from lingon.text import EOS
from tests.support.echo_engine import EchoBuffers, EchoRunner
from tests.support.engine_harness import Recorder, running_engine
from tests.support.timing import eventually_blocking


class NotingRunner(EchoRunner):
    """Notes which graphs run, with how many rows, and when the worker says that the run began."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.runs: list[tuple[str, int]] = []
        self.begun: list[float | None] = []
        self.worker: Worker | None = None

    def note(self, graph: str, rows: int) -> None:
        self.runs.append((graph, rows))
        self.begun.append(self.worker.since if self.worker else None)

    def encode(self, source_ids: np.ndarray, source_lengths: np.ndarray) -> Encoded:
        self.note("encoder", len(source_ids))
        return super().encode(source_ids, source_lengths)

    def score(self, source_ids: np.ndarray, source_lengths: np.ndarray, *targets: np.ndarray) -> list[Scored]:
        self.note("scorer", len(source_ids))
        return super().score(source_ids, source_lengths, *targets)

    def open(self, shape: BatchShape, *, shortlist: bool = False) -> EchoBuffers:
        buffers = super().open(shape, shortlist=shortlist)
        step = buffers.step

        def noting(sentences: int, *, logits: bool) -> Any:
            self.note("decoder", sentences)
            return step(sentences, logits=logits)

        buffers.step = noting
        return buffers


def translation(length: int, caller: str = "", **options: Any) -> DecodeJob:
    return DecodeJob(
        source_ids=(*[7] * (length - 1), EOS), options=Options(**options), on_done=lambda outcome: None, caller=caller
    )


def pair(target: int, caller: str = "") -> ScoreJob:
    return ScoreJob(source_ids=(5, EOS), target_ids=(7,) * target, on_done=lambda outcome: None, caller=caller)


def turns(runner: NotingRunner, jobs: list[Any], most: int = 400, **limits: int) -> list[list[tuple[str, int]]]:
    """Return the runs of each turn of a worker until all jobs have ended."""
    bounds = EngineLimits(spread=1, **limits)
    scheduler = Scheduler(bounds, 1, NullObserver())
    worker = runner.worker = Worker(0, runner, scheduler, bounds, NullObserver())
    scheduler.submit(jobs)
    found = []
    while not scheduler.idle:
        assert len(found) < most
        plan = scheduler.next(0)
        assert plan is not None
        worker.since = -1.0
        worker.step(plan)
        found.append(runner.runs)
        runner.runs = []
    return found


def test_a_turn_has_one_run_of_the_encoder_or_the_scorer_and_one_step_at_most() -> None:
    jobs = [*(translation(30) for _ in range(20)), *(pair(60) for _ in range(20)), translation(9, beam_size=2)]
    found = turns(NotingRunner(), jobs, max_batch_tokens=120)
    graphs = [[graph for graph, _ in runs] for runs in found]
    assert all(each.count("decoder") <= 1 and len(each) <= 2 for each in graphs)
    assert sum(rows for runs in found for graph, rows in runs if graph == "scorer") == 20
    assert max(rows * 30 for runs in found for graph, rows in runs if graph == "encoder") <= 120


def most_rows(*, any_width: bool, width: int, later: int) -> int:
    """The most rows of a step while a sentence of one width runs, and then three of another one."""
    runner, bounds = NotingRunner(endless=True), EngineLimits(spread=1)
    runner.any_width = any_width
    scheduler = Scheduler(bounds, 1, NullObserver())
    worker = Worker(0, runner, scheduler, bounds, NullObserver())
    for jobs in ([translation(width)], [translation(later) for _ in range(3)]):
        scheduler.submit(jobs)
        for _ in range(3):
            plan = scheduler.next(0)
            assert plan is not None
            worker.step(plan)
    return max(rows for graph, rows in runner.runs if graph == "decoder")


def test_sentences_that_start_together_share_the_batch_of_the_longest() -> None:
    runner = NotingRunner()
    runner.any_width = True
    found = turns(runner, [translation(width) for width in (NARROWEST, 4 * NARROWEST, 2 * NARROWEST)])
    assert next(rows for runs in found for graph, rows in runs if graph == "decoder") == 3


def test_a_sentence_joins_a_wider_batch_if_the_width_changes_no_results() -> None:
    assert most_rows(any_width=True, width=2 * NARROWEST, later=NARROWEST) == 4
    assert most_rows(any_width=False, width=2 * NARROWEST, later=NARROWEST) == 3


def test_a_sentence_joins_neither_a_narrower_batch_nor_a_much_wider_one() -> None:
    assert most_rows(any_width=True, width=NARROWEST, later=2 * NARROWEST) == 3
    assert most_rows(any_width=True, width=MOST_WIDER * NARROWEST, later=NARROWEST) == 4
    assert most_rows(any_width=True, width=2 * MOST_WIDER * NARROWEST, later=NARROWEST) == 3


def test_every_run_of_a_graph_begins_its_own_watch_for_hangs() -> None:
    runner = NotingRunner()
    turns(runner, [*(pair(60) for _ in range(20)), *(translation(30) for _ in range(20))], max_batch_tokens=120)
    assert None not in runner.begun
    assert -1.0 not in runner.begun, "a run counted from the start of the turn"


def test_pairs_to_score_leave_half_of_the_time_to_running_translations(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1_000_000))  # every look at the time takes a second: a run of the scorer as long as a step
    monkeypatch.setattr("lingon.serving.engine.worker.time.monotonic", lambda: float(next(clock)))
    monkeypatch.setattr("lingon.serving.engine.worker.time.perf_counter", lambda: float(next(clock)))
    found = turns(NotingRunner(endless=True), [translation(20), *(pair(60) for _ in range(8))], max_batch_tokens=61)
    graphs = [graph for runs in found for graph, _ in runs]
    scored = [place for place, graph in enumerate(graphs) if graph == "scorer"]
    assert len(scored) == 8
    assert all(graphs[first:second].count("decoder") >= 2 for first, second in itertools.pairwise(scored))


def test_pairs_that_were_scored_while_nothing_was_translated_delay_no_later_pair(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter(range(1_000_000))
    monkeypatch.setattr("lingon.serving.engine.worker.time.monotonic", lambda: float(next(clock)))
    monkeypatch.setattr("lingon.serving.engine.worker.time.perf_counter", lambda: float(next(clock)))
    bounds, runner = EngineLimits(spread=1, max_batch_tokens=61), NotingRunner(endless=True)
    scheduler = Scheduler(bounds, 1, NullObserver())
    worker = Worker(0, runner, scheduler, bounds, NullObserver())

    def turn() -> list[str]:
        runner.runs = []
        plan = scheduler.next(0)
        assert plan is not None
        worker.step(plan)
        return [graph for graph, _ in runner.runs]

    scheduler.submit([pair(60) for _ in range(30)])
    assert [turn() for _ in range(30)] == [["scorer"]] * 30
    scheduler.submit([translation(20), pair(60)])
    graphs = [graph for _ in range(8) for graph in turn()]
    assert graphs.count("scorer") == 1


def test_runs_of_a_heavy_caller_are_short_while_another_one_waits() -> None:
    runner = NotingRunner()
    bounds = EngineLimits(spread=1)
    scheduler = Scheduler(bounds, 1, NullObserver())
    worker = Worker(0, runner, scheduler, bounds, NullObserver())
    scheduler.submit([translation(30, "heavy") for _ in range(20)])
    plan = scheduler.next(0)
    assert plan is not None
    worker.step(StepPlan([], plan.admitted, MAIN, short=True))
    assert runner.runs == [("encoder", 1)], "the speed is not known yet"
    worker.step(StepPlan([], [], MAIN, short=True))
    assert runner.runs[1:] == [("decoder", 1)], "another caller waits for one run, not for two"
    worker._speed["encoder"] = 40_000.0  # 120 tokens in 3 ms
    worker.step(StepPlan([], [], MAIN, short=True))
    assert runner.runs[2:] == [("encoder", 4)]
    worker.step(StepPlan([], [], MAIN, short=False))
    assert runner.runs[3:] == [("encoder", 15), ("decoder", 20)]


def test_a_job_that_is_cancelled_before_its_run_is_not_run() -> None:
    runner, bounds = NotingRunner(), EngineLimits(spread=1, max_batch_tokens=30)
    scheduler = Scheduler(bounds, 1, NullObserver())
    worker = Worker(0, runner, scheduler, bounds, NullObserver())
    jobs = [translation(30) for _ in range(4)]
    scheduler.submit(jobs)
    first = scheduler.next(0)
    assert first is not None
    worker.step(first)
    scheduler.cancel(jobs[1:3])
    while not scheduler.idle:
        plan = scheduler.next(0)
        assert plan is not None
        worker.step(plan)
    assert sum(rows for graph, rows in runner.runs if graph == "encoder") == 2


@pytest.mark.parametrize("field", ["log_probs", "attention"])
def test_a_pair_whose_scores_are_no_numbers_fails_alone(field: str) -> None:
    class Faulty(EchoRunner):
        def score(self, *arguments: np.ndarray) -> list[Scored]:
            found = super().score(*arguments)
            for scored, length in zip(found, arguments[3], strict=True):
                if length == 7:
                    getattr(scored, field)[-1] = np.nan
            return found

    done: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
    with running_engine(Faulty()) as harness:
        harness.engine.submit(
            [
                ScoreJob(
                    source_ids=(5, EOS),
                    target_ids=(7,) * length,
                    on_done=lambda found, of=length: done.put((of, found)),
                )
                for length in (6, 7, 8)
            ]
        )
        answers = dict(done.get(timeout=30) for _ in range(3))
    assert isinstance(answers[7], EngineFault)
    assert isinstance(answers[6], Scored)
    assert isinstance(answers[8], Scored)


def test_an_empty_batch_that_used_much_memory_is_freed_at_once() -> None:
    class Large(EchoRunner):
        def open(self, shape: BatchShape, *, shortlist: bool = False) -> EchoBuffers:
            buffers = super().open(shape, shortlist=shortlist)
            buffers.nbytes = 4 * SPARE_BYTES
            return buffers

    recorder = Recorder()
    with running_engine(Large(), recorder, max_rows=4) as harness:
        harness.translate([(5, EOS)], [Options()])
        assert recorder.state_bytes == 4 * SPARE_BYTES, "one slot of four was used, which is not much"
        harness.translate([(5, 5, EOS)] * 4, [Options()] * 4)
        eventually_blocking(lambda: recorder.state_bytes == 0)


def test_a_worker_without_work_for_a_while_frees_all_memory_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "IDLE_SECONDS", 0.01)
    runner, recorder = FreeingRunner(), Recorder()
    with running_engine(runner, recorder) as harness:
        for found in (1, 2):
            harness.translate([(5, EOS), (5,) * 40], [Options(max_output_tokens=3)] * 2)
            eventually_blocking(lambda: recorder.state_bytes == 0)
            time.sleep(0.1)
            frees = [graph for graph, _ in runner.runs].count("free")
            assert found <= frees <= 3 * found, "a worker that keeps nothing sleeps until there is work"


def test_the_most_state_bytes_count_all_rows_with_the_reserve_and_the_kept_batches() -> None:
    class Sized(EchoRunner):
        def open(self, shape: BatchShape, *, shortlist: bool = False) -> EchoBuffers:
            buffers = super().open(shape, shortlist=shortlist)
            buffers.nbytes = shape.rows << 20
            return buffers

    engine = Engine(Sized(), EngineLimits(max_rows=64), workers=2)
    assert engine.state_bytes == (80 + min(80, 2 * 2 * 3 * 16)) << 20
    narrow = Engine(Sized(), EngineLimits(max_rows=2))
    assert narrow.state_bytes == 2 * (4 + 4) << 20, "a lane without rows admits a beam of 4"


def test_a_job_that_is_cancelled_before_its_first_step_reports_no_first_token() -> None:
    class Counting(NullObserver):
        first_tokens = 0

        def first_token(self, seconds: float) -> None:
            self.first_tokens += 1

    bounds, observer = EngineLimits(spread=1), Counting()
    scheduler = Scheduler(bounds, 1, NullObserver())
    worker = Worker(0, NotingRunner(), scheduler, bounds, observer)
    cancelled = translation(30)
    for job in (
        translation(30, beam_size=2),
        cancelled,
    ):  # the second turn encodes one and steps the batch of the other
        scheduler.submit([job])
        worker.step(scheduler.next(0) or StepPlan([], []))
    scheduler.cancel([cancelled])
    scheduler.submit([translation(30)])
    for _ in range(4):
        worker.step(scheduler.next(0) or StepPlan([], []))
    assert observer.first_tokens == 2


class FreeingRunner(NotingRunner):
    """Notes when the memory of the scorer is freed."""

    def free_memory(self) -> None:
        self.note("free", 0)


def test_the_memory_of_the_scorer_is_freed_when_no_pair_waits_any_more():
    found = turns(FreeingRunner(), [pair(99) for _ in range(20)], max_rows=4)
    graphs = [graph for runs in found for graph, _ in runs]
    assert graphs.count("scorer") >= 5
    assert (graphs.count("free"), graphs[-1]) == (1, "free")


@pytest.mark.parametrize(("keep_seconds", "last"), [(0.0, "decoder"), (3600.0, "free")])
def test_beside_other_work_the_memory_of_the_scorer_is_kept_for_a_while(
    keep_seconds: float, last: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(worker_module, "KEEP_SECONDS", keep_seconds)
    found = turns(FreeingRunner(), [pair(9), translation(30)])
    graphs = [graph for runs in found for graph, _ in runs]
    assert graphs.count("free") == 1
    assert graphs[-1] == last
