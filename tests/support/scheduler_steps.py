"""A scheduler without worker threads, and the steps that tests take for its workers."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass

from lingon.serving.decoding.job import DecodeJob, Job, Options
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.engine.observer import NullObserver
from lingon.serving.engine.scheduler import Scheduler

calls = itertools.count()


@dataclass
class Clock:
    """A clock that only the test advances."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def job(beam_size: int = 1, deadline: float | None = None) -> DecodeJob:
    return DecodeJob(
        source_ids=(5, 2), options=Options(beam_size=beam_size), on_done=print, deadline=deadline, call=next(calls)
    )


def make_scheduler(workers: int = 2, clock: Clock | None = None, **limits: int) -> Scheduler:
    return Scheduler(EngineLimits(spread=1, **limits), workers, NullObserver(), clock or time.monotonic)


def next_step(scheduler: Scheduler, worker: int) -> tuple[list[Job], list[tuple[Job, type]]]:
    """Return the jobs that a worker admits and the jobs that it removes, with the types of their errors."""
    plan = scheduler.next(worker)
    assert plan is not None
    return [ticket.job for ticket in plan.admitted], [(job, type(error)) for job, error in plan.removed]


def of_caller(caller: str, length: int = 2) -> DecodeJob:
    return DecodeJob(source_ids=(5,) * length, options=Options(), on_done=print, caller=caller, call=next(calls))
