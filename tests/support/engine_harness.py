"""A running engine with jobs and their outcomes, and a scheduler whose workers are the steps of a test."""

from __future__ import annotations

import itertools
import queue
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lingon.serving.decoding.job import DecodeJob, Job, Options, Sampling
from lingon.serving.engine.engine import Engine
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.engine.scheduler import NullObserver, Scheduler
from lingon.serving.runtime.runner import Runner
from tests.support.echo_engine import EchoBuffers, EchoRunner


class Recorder(NullObserver):
    """An observer that keeps the reports of the engine."""

    def __init__(self) -> None:
        self.copied = self.steps = self.state_bytes = 0
        self.endings: list[str] = []
        self.live: list[tuple[int, int]] = []

    def stepped(self, live_rows: int, rows: int, copied_bytes: int, seconds: float, steps: int) -> None:
        self.copied += copied_bytes
        self.live += [(live_rows, rows)] * steps

    def states_changed(self, more_bytes: int) -> None:
        self.state_bytes += more_bytes

    def ended(self, outcome: str, target_tokens: int) -> None:
        self.endings.append(outcome)


class ThreadNotingRunner(EchoRunner):
    """Notes the thread and the rows of each step. during: called in each step."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.steps_of: list[tuple[int, int]] = []
        self.during = lambda: None

    def open(self, *args: Any, **options: Any) -> EchoBuffers:
        buffers = super().open(*args, **options)
        step = buffers.step

        def noting(sentences: int, *, logits: bool) -> Any:
            self.steps_of.append((threading.get_ident(), sentences))
            self.during()
            return step(sentences, logits=logits)

        buffers.step = noting  # type: ignore[method-assign]
        return buffers


class EngineHarness:
    """An engine with a queue of the outcomes of its jobs."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.done: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()

    def job(self, source: Sequence[int], index: int = 0, **rest: Any) -> DecodeJob:
        options = rest.pop("options", Options(max_output_tokens=40))
        return DecodeJob(
            source_ids=tuple(source), options=options, on_done=lambda outcome: self.done.put((index, outcome)), **rest
        )

    def collect(self, count: int) -> dict[int, Any]:
        return dict(self.done.get(timeout=30) for _ in range(count))

    def translate(self, sources: Sequence[Sequence[int]], options: Sequence[Options]) -> list[Any]:
        jobs = [
            self.job(source, index, options=each)
            for index, (source, each) in enumerate(zip(sources, options, strict=True))
        ]
        self.engine.submit(jobs)
        outcomes = self.collect(len(jobs))
        return [outcomes[index] for index in range(len(jobs))]


@contextmanager
def running_engine(
    runner: Runner, observer: NullObserver | None = None, workers: int = 1, **limits: int
) -> Iterator[EngineHarness]:
    engine = Engine(runner, EngineLimits(**{"spread": 1, **limits}), observer, workers=workers)
    engine.start()
    try:
        yield EngineHarness(engine)
    finally:
        engine.stop(timeout=0)


def options_for(runner: Runner, source: Sequence[int], **options: Any) -> Options:
    return Options(max_output_tokens=runner.limits.max_output(len(source)), **options)


def random_options(draw: random.Random, runner: Runner, source: Sequence[int]) -> Options:
    beam_size, penalty = draw.choice([1, 1, 4]), draw.choice([0.0, 1.0])
    sampling = Sampling(seed=3, stream=7) if beam_size == 1 and draw.random() < 0.3 else None
    return options_for(
        runner, source, beam_size=beam_size, num_hypotheses=beam_size, length_penalty=penalty, sampling=sampling
    )


calls = itertools.count()


def check_arrivals(runner: Runner, arriving: Runner, sources: Sequence[Any], seed: int, workers: int) -> None:
    """Sentences have the same tokens and the same bits alone, and in batches which they join at any time.

    arriving: the runner of these batches
    """
    draw = random.Random(seed)
    mixed = [random_options(draw, runner, source) for source in sources]
    with running_engine(runner, max_rows=8) as harness:
        alone = [harness.translate([source], [options])[0] for source, options in zip(sources, mixed, strict=True)]
    with running_engine(arriving, workers=workers, max_rows=33) as harness:
        for index in draw.sample(range(len(sources)), len(sources)):
            harness.engine.submit([harness.job(sources[index], index, options=mixed[index])])
            if draw.random() < 0.3:
                time.sleep(draw.random() * 0.01)
        together = harness.collect(len(sources))
    assert [together[index] for index in range(len(sources))] == alone


def check_prefixes(runner: Runner, sources: Sequence[Any]) -> None:
    """A translation starts with its prefix, whose tokens cost nothing, and continues as the free one."""
    with running_engine(runner) as harness:
        free = harness.translate(sources, [options_for(runner, source) for source in sources])
        jobs = [
            harness.job(source, index, options=options_for(runner, source), prefix=best.tokens[:3])
            for index, (source, (best,)) in enumerate(zip(sources, free, strict=True))
        ]
        harness.engine.submit(jobs)
        forced = harness.collect(len(jobs))
    for index, (best,) in enumerate(free):
        (again,) = forced[index]
        assert again.tokens[: len(best.tokens)] == best.tokens
        kept = min(3, len(best.tokens))
        assert again.log_probs[:kept] == (0.0,) * kept
        assert again.log_probs[kept : len(best.log_probs)] == best.log_probs[kept:]


@dataclass
class ManualClock:
    """A clock that only the test advances."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def job(beam_size: int = 1, deadline: float | None = None) -> DecodeJob:
    return DecodeJob(
        source_ids=(5, 2), options=Options(beam_size=beam_size), on_done=print, deadline=deadline, call=next(calls)
    )


def make_scheduler(workers: int = 2, clock: ManualClock | None = None, **limits: int) -> Scheduler:
    return Scheduler(EngineLimits(spread=1, **limits), workers, NullObserver(), clock or time.monotonic)


def next_step(scheduler: Scheduler, worker: int) -> tuple[list[Job], list[tuple[Job, type]]]:
    """Return the jobs that a worker admits and the jobs that it removes, with the types of their errors."""
    plan = scheduler.next(worker)
    assert plan is not None
    return plan.admitted, [(job, type(error)) for job, error in plan.removed]


def of_caller(caller: str, length: int = 2) -> DecodeJob:
    return DecodeJob(source_ids=(5,) * length, options=Options(), on_done=print, caller=caller, call=next(calls))


def answers(harness: EngineHarness, wanted: list[dict[str, Any]]) -> list[Any]:
    """Return the outcomes of jobs that run together, in their order."""
    harness.engine.submit([harness.job(index=at, **each) for at, each in enumerate(wanted)])
    found = harness.collect(len(wanted))
    return [found[at] for at in range(len(wanted))]
