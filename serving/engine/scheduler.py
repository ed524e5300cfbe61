"""Who waits, who runs with which worker and who has to leave: what submitters and workers share, behind one lock."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lingon.errors import Cancelled, Draining, EngineLost, Expired, NotBegun, QueueFull, RequestError, WontFinish
from lingon.serving.decoding.job import DecodeJob, Job, ScoreJob
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.engine.observer import Observer
from lingon.serving.engine.policy import ThroughputEstimator, cost_of, fair_share, joins, rows_of
from lingon.serving.engine.queue import Queue


@dataclass(slots=True)
class _Ticket:
    """A job that is not yet answered, when it came and began, and the worker that has it; none while it waits."""

    job: Job
    came: float
    worker: int | None = None
    began: float = math.inf


class StepPlan(NamedTuple):
    """What a worker does before its next step.

    leaving: jobs to end, whether they run or never began; joining: jobs to begin, and when each came
    """

    leaving: list[tuple[Job, RequestError]]
    joining: list[tuple[Job, float]]


class Scheduler:
    """Hands jobs to workers 0, 1, ...; safe from any thread."""

    def __init__(
        self,
        limits: EngineLimits,
        workers: int,
        observer: Observer,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """clock: tells seconds; deadlines are on it."""
        self._spread, self._clock = limits.spread, clock
        self.most_rows = limits.max_rows  # of all workers, and of one that has them all
        self._observer = observer
        self._queue = Queue(limits)
        self._unfinished: dict[int, _Ticket] = {}
        self._leaving: dict[int, RequestError] = {}
        self._earliest = math.inf  # no deadline is before it
        self._rows = [0] * workers  # that each worker has
        self._turns = [0] * workers  # since each had somebody join
        self._pace = ThroughputEstimator()
        self._change = threading.Condition()
        self._stopping = self._failed = False
        self.all_taken = False  # `take_all` was called: another thread ends all jobs

    @property
    def failed(self) -> bool:
        """Whether a worker has died."""
        return self._failed

    @property
    def idle(self) -> bool:
        """Whether nothing waits or runs."""
        with self._change:
            return not self._unfinished

    @property
    def running(self) -> int:
        """Jobs that a worker has."""
        with self._change:
            return len(self._unfinished) - len(self._queue)

    def submit(self, jobs: Sequence[Job]) -> None:
        """Take all of these jobs or none; see `lingon.serving.engine.engine.Engine.submit`."""
        now = self._clock()
        with self._change:
            self._check_open()
            displaced = self._queue.check(jobs)
            self._check_time(jobs, now)
            for job in displaced:
                self._queue.remove(job.number)
                self._leaving.setdefault(job.number, QueueFull("too much of this caller waits; others are let in"))
            self._queue.add(jobs)
            self._unfinished.update((job.number, _Ticket(job, now)) for job in jobs)
            self._earliest = min([self._earliest, *(job.deadline for job in jobs if job.deadline is not None)])
            self._tell()
            self._change.notify_all()

    def check_texts(self, caller: str, texts: int) -> None:
        """Raise what `submit` would raise for so many texts of a caller, whatever they are."""
        with self._change:
            self._check_open()
            self._queue.check_texts(caller, texts)

    def _check_open(self) -> None:
        if self._failed:
            raise EngineLost("the engine is being restarted; try again")
        if self._stopping:
            raise Draining("the model is going out of service; try again")

    def _check_time(self, jobs: Sequence[Job], now: float) -> None:
        """Refuse what would not be done in time, as things stand: others may still be. Where nobody waits, all try."""
        if all(isinstance(job, ScoreJob) and job.follow_up for job in jobs):
            return  # most of the work is done, and what is left takes less than is estimated of a translation
        deadline = min((job.deadline for job in jobs if job.deadline is not None), default=math.inf)
        if deadline == math.inf:
            return
        if deadline <= now:
            raise NotBegun("the deadline passed before the work was begun")
        needed = 0.0
        if len(self._queue):
            needed = self._pace.seconds_to(self._queue.ahead(jobs), max(len(job.source_ids) for job in jobs))
        if now + needed > deadline:
            raise WontFinish(f"the deadline is in {deadline - now:.2f} s, and the work would take about {needed:.2f} s")

    def cancel(self, jobs: Sequence[Job]) -> None:
        """Have these jobs leave; those that have ended are left alone."""
        with self._change:
            self._dismiss([job.number for job in jobs if job.number in self._unfinished])

    def next(self, worker: int) -> StepPlan | None:
        """What a worker does next; sleeps while there is nothing. None when it is time to go."""
        with self._change:
            while True:
                leaving, joining = self._leavers(worker), self._joiners(worker)
                if leaving or joining or self._rows[worker]:
                    return StepPlan(leaving, joining)
                if self._failed or (self._stopping and not len(self._queue)):
                    return None
                self._change.wait()

    def close(self, job: Job) -> None:
        """Forget a job that was answered."""
        with self._change:
            ticket = self._unfinished.pop(job.number, None)
            if ticket is None:  # `take_all` returned it
                return
            assert ticket.worker is not None
            self._rows[ticket.worker] -= rows_of(job)
            self._leaving.pop(job.number, None)
            if ticket.began < math.inf and isinstance(job, DecodeJob):
                self._pace.ran(len(job.source_ids), self._clock() - ticket.began)
            self._tell()
            if not self._unfinished or (len(self._queue) and 0 in self._rows):  # a worker sleeps for want of rows
                self._change.notify_all()

    def stop(self, timeout: float) -> bool:
        """Take no more jobs, wait until those that are here are done, then have the rest leave.

        timeout: in seconds. Returns whether all were done.
        """
        with self._change:
            self._stopping = True
            self._change.notify_all()
            done = self._change.wait_for(lambda: not self._unfinished or self._failed, timeout)
            self._dismiss(list(self._unfinished))
            return done and not self._failed

    def fail(self, worker: int) -> list[Job]:
        """Take no more jobs, since this worker has died; returns those that it had and those that wait."""
        with self._change:
            self._failed = True
            for ticket in self._unfinished.values():
                if ticket.worker is None:
                    self._assign(ticket, worker)
            self._change.notify_all()
            return [ticket.job for ticket in self._unfinished.values() if ticket.worker == worker]

    def take_all(self) -> list[Job]:
        """Take no more jobs, and forget those that are here, which are returned: nobody else will answer them."""
        with self._change:
            self._failed = self.all_taken = True
            jobs = [ticket.job for ticket in self._unfinished.values()]
            for job in jobs:
                self._queue.remove(job.number)
            self._unfinished.clear()
            self._leaving.clear()
            self._rows = [0] * len(self._rows)
            self._tell()
            self._change.notify_all()
            return jobs

    def _dismiss(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._leaving.setdefault(number, Cancelled("the call was cancelled"))
        self._change.notify_all()

    def _leavers(self, worker: int) -> list[tuple[Job, RequestError]]:
        """Who has to leave, of those that the worker has and those that wait."""
        if (now := self._clock()) >= self._earliest:
            self._expire(now)
        if not self._leaving:
            return []
        tickets = [self._unfinished[number] for number in self._leaving]
        found = [ticket for ticket in tickets if ticket.worker in (None, worker)]
        for ticket in found:
            ticket.began = math.inf  # cut short, it tells nothing of how long the others take
            if ticket.worker is None:
                self._assign(ticket, worker)
        return [(ticket.job, self._leaving.pop(ticket.job.number)) for ticket in found]

    def _expire(self, now: float) -> None:
        self._earliest = math.inf
        for number, ticket in self._unfinished.items():
            deadline = math.inf if ticket.job.deadline is None else ticket.job.deadline
            if deadline <= now:
                self._leaving.setdefault(number, Expired("the deadline passed before the text was done"))
            else:
                self._earliest = min(self._earliest, deadline)

    def _joiners(self, worker: int) -> list[tuple[Job, float]]:
        """Who joins the worker's batch."""
        self._turns[worker] += 1
        free = max(self.most_rows - sum(self._rows), 0)
        joining = min(self._queue.rows, free)
        if not self._queue.rows or not joins(self._rows[worker], joining, self._turns[worker]):
            return []
        few = len(self._unfinished) < self._spread
        share = fair_share(worker, self._rows, joining, few=few)
        jobs = self._queue.admit(self._rows[worker], self._rows[worker] + free, share, alone=not any(self._rows))
        now = self._clock()
        for job in jobs:
            ticket = self._unfinished[job.number]
            self._assign(ticket, worker)
            ticket.began = now
            self._observer.admitted(now - ticket.came)
        if jobs:
            self._pace.took(sum(map(cost_of, jobs)), now, more=len(self._queue) > 0)
            self._turns[worker] = 0
            self._tell()
        return [(job, self._unfinished[job.number].came) for job in jobs]

    def _assign(self, ticket: _Ticket, worker: int) -> None:
        """The worker answers for this job from now on."""
        self._queue.remove(ticket.job.number)
        ticket.worker = worker
        self._rows[worker] += rows_of(ticket.job)

    def _tell(self) -> None:
        self._observer.queue_changed(len(self._queue), self._queue.tokens)
        self._observer.running_changed(len(self._unfinished) - len(self._queue))
