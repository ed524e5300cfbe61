"""The scheduler of an engine: queued and running jobs, and which worker does what next, behind one lock."""

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
from lingon.serving.engine.observer import EngineLoad, Observer
from lingon.serving.engine.policy import ThroughputEstimator, admits, cost_of, fair_share, rows_of
from lingon.serving.engine.queue import Queue


@dataclass(slots=True)
class _Ticket:
    """A job that has no outcome yet, with times on the scheduler's clock; worker: None while the job is queued."""

    job: Job
    submitted: float
    worker: int | None = None
    started: float = math.inf


class StepPlan(NamedTuple):
    """What a worker does before its next step.

    removed: jobs to end with an error, queued or running; admitted: jobs to start, and when each was submitted
    """

    removed: list[tuple[Job, RequestError]]
    admitted: list[tuple[Job, float]]


class Scheduler:
    """Hands jobs to workers 0, 1, ...; safe from any thread."""

    def __init__(
        self,
        limits: EngineLimits,
        workers: int,
        observer: Observer,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """clock: returns seconds; the deadlines of jobs are on it."""
        self._spread, self._clock = limits.spread, clock
        self.most_rows = limits.max_rows  # over all workers; one worker may use all of them
        self._observer = observer
        self._queue = Queue(limits)
        self._tickets: dict[int, _Ticket] = {}
        self._to_remove: dict[int, RequestError] = {}
        self._earliest = math.inf  # no deadline is before it
        self._rows = [0] * workers  # running rows of each worker
        self._steps = [0] * workers  # steps of each worker since its last admission
        self._estimator = ThroughputEstimator()
        self._changed = threading.Condition()
        self._stopping = self._failed = False
        self.all_taken = False  # `take_all` was called: another thread ends all jobs
        observer.watch(self.load)

    def load(self) -> EngineLoad:
        """Return what is queued and running."""
        with self._changed:
            queued = len(self._queue)
            return EngineLoad(queued, self._queue.tokens, len(self._tickets) - queued)

    @property
    def failed(self) -> bool:
        """Whether a worker has died."""
        return self._failed

    @property
    def idle(self) -> bool:
        """Whether no job is queued or running."""
        with self._changed:
            return not self._tickets

    def submit(self, jobs: Sequence[Job]) -> None:
        """Enqueue all of these jobs of one call or none; see `lingon.serving.engine.engine.Engine.submit`."""
        now = self._clock()
        with self._changed:
            self._check_open()
            dropped = self._queue.make_room(jobs)
            self._check_deadline(jobs, now)
            for job in dropped:
                self._queue.remove(job.number)
                message = "dropped from the full queue: this caller has the most work queued"
                self._to_remove.setdefault(job.number, QueueFull(message))
            self._queue.add(jobs)
            for job in jobs:
                self._tickets[job.number] = _Ticket(job, now)
                if job.deadline is not None and job.deadline < self._earliest:
                    self._earliest = job.deadline
            self._changed.notify_all()

    def check_texts(self, caller: str, texts: int) -> None:
        """Raise what `submit` would raise for so many texts of a caller, whatever they are."""
        with self._changed:
            self._check_open()
            self._queue.check_texts(caller, texts)

    def _check_open(self) -> None:
        if self._failed:
            raise EngineLost("the engine is being restarted; try again")
        if self._stopping:
            raise Draining("the model is being unloaded; try again")

    def _check_deadline(self, jobs: Sequence[Job], now: float) -> None:
        """Refuse jobs that would miss their deadline, by the work queued before them; an empty queue takes all."""
        if all(isinstance(job, ScoreJob) and job.follow_up for job in jobs):
            return  # most of the work is done, and the rest takes less than the estimate, which is of translations
        deadline = min((job.deadline for job in jobs if job.deadline is not None), default=math.inf)
        if deadline == math.inf:
            return
        if deadline <= now:
            raise NotBegun("the deadline passed before the work was begun")
        needed = 0.0
        if len(self._queue):
            longest = max(len(job.source_ids) for job in jobs)
            needed = self._estimator.estimate(self._queue.cost_before(jobs), longest)
        if now + needed > deadline:
            raise WontFinish(f"the deadline is in {deadline - now:.2f} s, and the work would take about {needed:.2f} s")

    def cancel(self, jobs: Sequence[Job]) -> None:
        """Remove these jobs before the next step; jobs that ended are ignored."""
        with self._changed:
            self._cancel([job.number for job in jobs if job.number in self._tickets])

    def next(self, worker: int) -> StepPlan | None:
        """Return what a worker does before its next step; sleeps while there is no work. None when it has to end."""
        with self._changed:
            while True:
                removed, admitted = self._removed(worker), self._admitted(worker)
                if removed or admitted or self._rows[worker]:
                    return StepPlan(removed, admitted)
                if self._failed or (self._stopping and not len(self._queue)):
                    return None
                self._changed.wait()

    def close(self, job: Job) -> None:
        """Forget a job that has its outcome."""
        with self._changed:
            ticket = self._tickets.pop(job.number, None)
            if ticket is None:  # `take_all` returned it
                return
            assert ticket.worker is not None
            self._rows[ticket.worker] -= rows_of(job)
            self._to_remove.pop(job.number, None)
            if ticket.started < math.inf and isinstance(job, DecodeJob):
                self._estimator.record_end(len(job.source_ids), self._clock() - ticket.started)
            if not self._tickets or (len(self._queue) and 0 in self._rows):  # a worker may sleep for lack of rows
                self._changed.notify_all()

    def stop(self, timeout: float) -> bool:
        """Take no more jobs, wait until the present ones end, then cancel the rest.

        timeout: in seconds. Returns whether all jobs ended by themselves.
        """
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            done = self._changed.wait_for(lambda: not self._tickets or self._failed, timeout)
            self._cancel(list(self._tickets))
            return done and not self._failed

    def fail(self, worker: int) -> list[Job]:
        """Take no more jobs, because this worker died; returns its jobs and all queued ones."""
        with self._changed:
            self._failed = True
            for ticket in self._tickets.values():
                if ticket.worker is None:
                    self._assign(ticket, worker)
            self._changed.notify_all()
            return [ticket.job for ticket in self._tickets.values() if ticket.worker == worker]

    def take_all(self) -> list[Job]:
        """Take no more jobs, and forget the present ones, which are returned: the caller ends them."""
        with self._changed:
            self._failed = self.all_taken = True
            jobs = [ticket.job for ticket in self._tickets.values()]
            for job in jobs:
                self._queue.remove(job.number)
            self._tickets.clear()
            self._to_remove.clear()
            self._rows = [0] * len(self._rows)
            self._changed.notify_all()
            return jobs

    def _cancel(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._to_remove.setdefault(number, Cancelled("the call was cancelled"))
        self._changed.notify_all()

    def _removed(self, worker: int) -> list[tuple[Job, RequestError]]:
        """Return the jobs to remove: those of the worker, and queued ones, which become its own."""
        if self._earliest < math.inf and (now := self._clock()) >= self._earliest:
            self._expire(now)
        if not self._to_remove:
            return []
        tickets = [self._tickets[number] for number in self._to_remove]
        found = [ticket for ticket in tickets if ticket.worker in (None, worker)]
        for ticket in found:
            ticket.started = math.inf  # a job that is cut short says nothing of the running time of others
            if ticket.worker is None:
                self._assign(ticket, worker)
        return [(ticket.job, self._to_remove.pop(ticket.job.number)) for ticket in found]

    def _expire(self, now: float) -> None:
        self._earliest = math.inf
        for number, ticket in self._tickets.items():
            deadline = math.inf if ticket.job.deadline is None else ticket.job.deadline
            if deadline <= now:
                self._to_remove.setdefault(number, Expired("the deadline passed before the text was done"))
            else:
                self._earliest = min(self._earliest, deadline)

    def _admitted(self, worker: int) -> list[tuple[Job, float]]:
        """Return the jobs that join the worker's batch."""
        self._steps[worker] += 1
        if not self._queue.rows:
            return []
        free = max(self.most_rows - sum(self._rows), 0)
        joining = min(self._queue.rows, free)
        if not admits(self._rows[worker], joining, self._steps[worker]):
            return []
        few = len(self._tickets) < self._spread
        share = fair_share(worker, self._rows, joining, few=few)
        jobs = self._queue.admit(self._rows[worker], self._rows[worker] + free, share, alone=not any(self._rows))
        return self._start(jobs, worker) if jobs else []

    def _start(self, jobs: Sequence[Job], worker: int) -> list[tuple[Job, float]]:
        """Hand jobs that left the queue to the worker."""
        now, started = self._clock(), []
        for job in jobs:
            ticket = self._tickets[job.number]
            self._assign(ticket, worker)
            ticket.started = now
            self._observer.admitted(now - ticket.submitted)
            started.append((job, ticket.submitted))
        self._estimator.record_start(sum(map(cost_of, jobs)), now, more=len(self._queue) > 0)
        self._steps[worker] = 0
        return started

    def _assign(self, ticket: _Ticket, worker: int) -> None:
        """Make a worker responsible for the outcome of a job."""
        self._queue.remove(ticket.job.number)
        ticket.worker = worker
        self._rows[worker] += rows_of(ticket.job)
