"""The scheduler of an engine: queued and running jobs, the next work of each worker, and the reports about jobs.

One lock guards all of it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from lingon.errors import Cancelled, Draining, EngineLost, Expired, NotBegun, QueueFull, RequestError, WontFinish
from lingon.serving.decoding.job import DecodeJob, Job
from lingon.serving.engine.cost import ThroughputEstimator, TypicalCalls, cost_of, cost_of_steps
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.engine.policy import LIGHT, MAIN, NOTHING, SHORT, Lanes, Running, intake
from lingon.serving.engine.queue import Queue


class EngineLoad(NamedTuple):
    """The current jobs of an engine."""

    queued: int  # jobs
    queued_tokens: int  # tokens of sources, and of targets to score
    queued_work: int  # units of lingon.serving.engine.cost
    running: int  # jobs


class Observer(Protocol):
    """A receiver of measurements. Durations are in seconds."""

    def watch(self, load: Callable[[], EngineLoad]) -> None:
        """Receive a function that returns the current load. Every engine calls it once, before it starts."""

    def left_queue(self, waited: float) -> None:
        """Record that a job left the queue after so many seconds, to join a batch or to end."""

    def encoded(self, sentences: int, tokens: int, padded_tokens: int, seconds: float) -> None:
        """Record a run of the encoder."""

    def scored(self, pairs: int, seconds: float) -> None:
        """Record a run of the scorer, for pairs to score or for the alignment of translations."""

    def stepped(self, live_rows: int, rows: int, copied_bytes: int, seconds: float, steps: int) -> None:
        """Record steps of the decoder. Each computed `rows` rows, and live_rows of them belong to a sentence.

        copied_bytes: bytes of the past copied since the last step
        seconds: duration of all steps
        """

    def first_token(self, seconds: float) -> None:
        """Record the first token of a job, so many seconds after its submission."""

    def states_changed(self, more_bytes: int) -> None:
        """Record bytes that were allocated for decoder states, or freed if the number is negative."""

    def rows_limited(self, rows: int) -> None:
        """Record a new limit of the rows that run together."""

    def ended(self, outcome: str, target_tokens: int) -> None:
        """Record the end of a job: "OK" or the reason of its error."""


class NullObserver:
    """An observer that measures nothing."""

    def watch(self, load: Callable[[], EngineLoad]) -> None: ...

    def left_queue(self, waited: float) -> None: ...

    def encoded(self, sentences: int, tokens: int, padded_tokens: int, seconds: float) -> None: ...

    def scored(self, pairs: int, seconds: float) -> None: ...

    def stepped(self, live_rows: int, rows: int, copied_bytes: int, seconds: float, steps: int) -> None: ...

    def first_token(self, seconds: float) -> None: ...

    def states_changed(self, more_bytes: int) -> None: ...

    def rows_limited(self, rows: int) -> None: ...

    def ended(self, outcome: str, target_tokens: int) -> None: ...


CONTENTION_SECONDS = 2.0  # seconds; runs stay short for so long after a heavy caller and another one had work together


class TimeSlice(NamedTuple):
    """The work of a worker since its last plan: the served lane, and the duration in seconds."""

    lane: int
    seconds: float


class StepPlan(NamedTuple):
    """The next work of a worker.

    removed: jobs to end with an error, queued or running
    admitted: jobs to start
    lane: the lane to serve
    short: whether runs of the lane MAIN must be short, because another caller waits for their end
    idle: whether there was no work during `patience` of `Scheduler.next`
    """

    removed: list[tuple[Job, RequestError]]
    admitted: list[Job]
    lane: int = MAIN
    short: bool = False
    idle: bool = False


class Forecast(NamedTuple):
    """Seconds until a call would end, and until its work would begin."""

    done: float
    begun: float


AT_ONCE, NEVER = Forecast(0.0, 0.0), Forecast(math.inf, math.inf)


class Scheduler:
    """The assignment of jobs to workers 0, 1, ... Safe for any thread.

    Each worker has a thread, which calls `next`. A thread that waits for its own jobs anyway may take the turns of an
    idle engine in their place: it calls `volunteer`, submits a few jobs, and calls `lend` until they are done. It is
    then the driver, and no other thread is notified. As soon as another thread has work too, the threads of the workers
    continue, so that the jobs of all share their batches.

    most_rows: over all workers; one worker may use all of them
    """

    def __init__(
        self,
        limits: EngineLimits,
        workers: int,
        observer: Observer,
        clock: Callable[[], float] = time.monotonic,
        changed: threading.Condition | None = None,
    ) -> None:
        """clock: returns seconds, for the deadlines of jobs; changed: notified when workers may have work."""
        self._spread, self._clock, self._workers = limits.spread, clock, workers
        self._worker_rows = [limits.max_rows] * workers  # the most rows of each worker
        self.most_rows = limits.max_rows
        self._observer = observer
        self._queue = Queue(limits)
        self._jobs: dict[int, Job] = {}
        self._to_remove: dict[int, RequestError] = {}
        self._earliest = math.inf  # lower bound of the deadlines
        self._lanes, self._contended_until = Lanes(workers), -math.inf
        self._running = Running(workers)
        # Time slices of each worker since its last admission to a lane.
        self._slices = {lane: [0] * workers for lane in (MAIN, LIGHT)}
        self._estimator = ThroughputEstimator()
        self._typical = TypicalCalls()
        self._changed = changed or threading.Condition()
        # Whether a job has ended since rows were offered. Notifying a worker each time costs a tenth of a short
        # sentence.
        self._freed_rows = self._stopping = self._failed = False
        self.all_taken = False  # whether `take_all` was called and another thread ends all jobs
        self._volunteers: set[int] = set()  # idents of threads
        self._driver: int | None = None  # the volunteer that submitted all present jobs and takes their turns
        self._busy: set[int] = set()  # workers whose own thread carries out a plan
        self._lent: set[int] = set()  # workers whose plan a driver carries out
        self._used: set[int] = set()  # workers that were lent since their own thread looked
        self._dozing: set[int] = set()  # workers whose thread waits without a limit
        observer.watch(self.load)

    def load(self) -> EngineLoad:
        """Return the queued and running work."""
        with self._changed:
            queued = len(self._queue)
            return EngineLoad(queued, self._queue.tokens, self._queue.cost, len(self._jobs) - queued)

    def limit_rows(self, worker: int, rows: int) -> None:
        """Assign no more rows to a worker than fit in its memory."""
        with self._changed:
            self._worker_rows[worker] = rows
            self.most_rows = min(self._worker_rows)
            if not self._failed:  # the observer may already belong to a new engine
                self._observer.rows_limited(self.most_rows)
            self._hand_over()

    @property
    def failed(self) -> bool:
        """Whether a worker has died."""
        return self._failed

    @property
    def idle(self) -> bool:
        """Whether no job is queued or running."""
        with self._changed:
            return not self._jobs

    @property
    def contended(self) -> bool:
        """Whether a heavy caller and another one have work, or had work less than CONTENTION_SECONDS ago."""
        with self._changed:
            return self._is_contended()

    def submit(self, jobs: Sequence[Job]) -> None:
        """Enqueue all jobs of one call or none; see `lingon.serving.engine.engine.Engine.submit`."""
        now, cost = self._clock(), sum(map(cost_of, jobs))
        with self._changed:
            if self._failed or self._stopping:
                raise self._closed()
            dropped = self._queue.make_room(jobs)
            if jobs:
                self._typical.record(jobs[0].caller, cost, max([len(job.source_ids) for job in jobs]))
                if self._lanes.is_short(cost, now):
                    for job in jobs:
                        job.party = job.caller + SHORT
            self._check_deadline(jobs, cost, now)
            for job in dropped:
                self._queue.remove(job.number)
                message = "dropped from the full queue: this caller has the most work queued"
                self._to_remove.setdefault(job.number, QueueFull(message))
            driver = self._driver_of(len(jobs))
            self._queue.add(jobs)
            for job in jobs:
                job.submitted = now
                self._jobs[job.number] = job
                self._lanes.submit(job.party, job.cost)
                if job.deadline is not None and job.deadline < self._earliest:
                    self._earliest = job.deadline
            if driver is not None:
                self._driver = driver
            elif self._driver is not None:
                self._hand_over()
            else:
                # Workers without work are equal: each takes a job, or none does. No other thread waits here, because
                # new jobs are refused before a thread waits for the end of all jobs.
                self._changed.notify(len(self._queue))

    def volunteer(self) -> None:
        """Promise that this thread calls `lend` after its next submissions, until it calls `retire`."""
        self._volunteers.add(threading.get_ident())

    def retire(self) -> None:
        """End the promise of `volunteer`. The threads of the workers continue with what is left."""
        self._volunteers.discard(threading.get_ident())
        if self._driver == threading.get_ident():
            with self._changed:
                self._hand_over()

    def lend(self) -> tuple[int, StepPlan] | None:
        """Return a worker with its next plan if the calling thread is the driver, or else None. It never waits.

        The caller carries out the plan, and calls `go_on` until that returns None. It calls `take_back` in any case.
        """
        thread = threading.get_ident()
        if self._driver != thread:
            return None
        with self._changed:
            if self._driver != thread:
                return None
            taken = self._busy | self._lent
            free = [worker for worker in range(self._workers) if worker not in taken]
            worker = next(filter(self._running.lanes_of, free), free[0] if free else None)
            plan = self._plan(worker) if worker is not None else None  # otherwise all workers free memory
            if worker is None or plan is None:
                self._hand_over()
                return None
            self._lent.add(worker)
            return worker, plan

    def go_on(self, worker: int, last: TimeSlice) -> StepPlan | None:
        """Return the next plan of a lent worker, or None if a job has ended or another thread has work too.

        last: its work since the previous plan
        """
        with self._changed:
            if self._driver is None or self._freed_rows:
                return None
            return self._plan(worker, last)

    def take_back(self, worker: int) -> None:
        """End the loan of a worker."""
        with self._changed:
            self._lent.discard(worker)
            self._used.add(worker)
            if self._driver is None and (self._jobs or self._stopping or self._failed or worker in self._dozing):
                self._changed.notify_all()

    def recall(self) -> None:
        """Let the threads of the workers continue after the present step of a driver."""
        with self._changed:
            self._hand_over()

    def wait_for_loans(self, timeout: float) -> bool:
        """Wait until no worker is lent, and return whether none is; timeout: seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._lent, timeout)

    def _driver_of(self, jobs: int) -> int | None:
        """Return the calling thread if it takes the turns for so many new jobs and the present ones, or else None.

        More jobs are spread over the workers.
        """
        thread = threading.get_ident()
        if thread not in self._volunteers or len(self._jobs) + jobs >= self._spread:
            return None
        return thread if self._driver == thread or not self._jobs else None

    def _hand_over(self) -> None:
        """Let the threads of the workers continue instead of the driver."""
        self._driver = None
        self._changed.notify_all()

    def check_texts(self, caller: str, texts: int) -> None:
        """Raise what `submit` would raise for any so many texts of a caller."""
        with self._changed:
            if self._failed or self._stopping:
                raise self._closed()
            self._queue.check_texts(caller, texts)

    def forecast(self, caller: str) -> Forecast:
        """Return when a typical call of a caller would begin and end, or infinity if it does not fit in the queue.

        An unknown caller is expected to have tiny calls. `submit` uses the real sizes. The result is AT_ONCE while the
        queue is empty, as for `submit`, and if `submit` would raise another error than QueueFull.
        """
        with self._changed:
            if not self._queue.rows or self._failed or self._stopping:
                return AT_ONCE
            try:
                self._queue.check_texts(caller, 1)
            except QueueFull:
                return NEVER
            typical = self._typical.of(caller)
            cost = self._queue.most_cost_before(caller, typical.cost)
            begun = self._estimator.estimate(cost - typical.cost, 0)
            return Forecast(self._estimator.estimate(cost, typical.tokens), begun)

    def _closed(self) -> RequestError:
        if self._failed:
            return EngineLost("the engine is being restarted; try again")
        return Draining("the model is being unloaded; try again")

    def _check_deadline(self, jobs: Sequence[Job], cost: int, now: float) -> None:
        """Refuse jobs that would miss their deadline, by the work queued before them. An empty queue accepts all."""
        deadlines = [job.deadline for job in jobs if job.deadline is not None]
        if not deadlines or all(job.follow_up for job in jobs):
            return  # most of the work of a follow-up is done, and a refusal would lose it
        deadline = min(deadlines)
        if deadline <= now:
            raise NotBegun("the deadline passed before the work was begun")
        if not self._queue.rows:
            return
        longest = max([len(job.source_ids) for job in jobs if isinstance(job, DecodeJob)], default=0)
        needed = self._estimator.estimate(self._queue.most_cost_before(jobs[0].party, cost), longest)
        if now + needed > deadline:  # the exact cost takes a loop over all calls of the caller
            needed = self._estimator.estimate(self._queue.cost_before(jobs), longest)
        if now + needed > deadline:
            raise WontFinish(f"the deadline is in {deadline - now:.2f} s, and the work would take about {needed:.2f} s")

    def cancel(self, jobs: Sequence[Job]) -> None:
        """Remove these jobs before the next step. Jobs that ended are ignored."""
        with self._changed:
            self._cancel([job.number for job in jobs if job.number in self._jobs])

    def next(self, worker: int, last: TimeSlice | None = None, patience: float | None = None) -> StepPlan | None:
        """Wait for work and return the next plan of a worker, or None when the worker has to end.

        last: its work since the previous plan
        patience: seconds without work until an idle plan is returned; None waits for work
        """
        with self._changed:
            self._busy.discard(worker)
            while True:
                if self._driver is None and worker not in self._lent:
                    plan, last = self._plan(worker, last), None
                    if plan is None and patience is None and worker in self._used:
                        plan = StepPlan([], [])  # the worker keeps memory again, which it frees some time later
                    if plan is not None:
                        return self._begun(worker, plan)
                    if self._failed or (self._stopping and not self._queue.rows):
                        return None
                if patience is None:
                    self._dozing.add(worker)
                notified = self._changed.wait(patience)
                self._dozing.discard(worker)
                if not notified and worker not in self._used and worker not in self._lent:
                    return self._begun(worker, StepPlan([], [], idle=True))
                if not notified:
                    self._used.discard(worker)

    def _begun(self, worker: int, plan: StepPlan) -> StepPlan:
        """Return a plan that the thread of a worker carries out now."""
        self._busy.add(worker)
        self._used.discard(worker)
        return plan

    def _plan(self, worker: int, last: TimeSlice | None = None) -> StepPlan | None:
        """Return the next plan of a worker, or None without work; last: see `next`."""
        removed = self._removed(worker) if self._to_remove or self._clock() >= self._earliest else []
        for slices in self._slices.values():
            slices[worker] += 1
        admitted = self._admitted(worker) if self._queue.rows else []
        if self._freed_rows:
            self._freed_rows = False
            if self._queue.rows:
                self._offer_freed_rows()
        if last is not None:  # after the admission, so that a lane with new work precedes the lane that ran
            self._lanes.charge(*last)
        lanes = self._running.lanes_of(worker)
        if not lanes and not removed:
            return None
        lane = lanes[0] if len(lanes) == 1 else self._lanes.next() if lanes else MAIN
        return StepPlan(removed, admitted, lane, self._is_contended())

    def close(self, job: Job, steps: int = 0) -> None:
        """Forget a job that has its outcome; steps: decoder steps of a translation."""
        with self._changed:
            if self._jobs.pop(job.number, None) is None:  # `take_all` returned it
                return
            assert job.worker is not None
            self._to_remove.pop(job.number, None)
            self._running.add(job.lane or MAIN, job.worker, -job.rows, -job.cost)
            self._lanes.leave(job.lane, job.party, job.cost)
            if isinstance(job, DecodeJob) and job.started < math.inf:
                self._estimator.record_end(len(job.source_ids), self._clock() - job.started)
                if self._queue.rows and (unforeseen := cost_of_steps(job, steps) - job.cost) > 0:
                    self._queue.charge(job, unforeseen)  # the translation became longer than its source
            self._freed_rows = True
            if not self._jobs:
                self._driver = None
                if self._stopping:
                    self._changed.notify_all()

    def stop(self, timeout: float) -> bool:
        """Accept no more jobs, wait until the present ones end, then cancel the rest.

        timeout: seconds. Returns whether all jobs ended without a cancel.
        """
        with self._changed:
            self._stopping = True
            self._hand_over()
            done = self._changed.wait_for(lambda: not self._jobs or self._failed, timeout)
            self._cancel(list(self._jobs))
            return done and not self._failed

    def fail(self, worker: int) -> list[Job]:
        """Accept no more jobs, because this worker died. Returns its jobs and all queued ones."""
        with self._changed:
            self._failed = True
            for job in self._jobs.values():
                if job.worker is None:
                    self._queue.remove(job.number)
                    self._assign(job, worker)
            self._hand_over()
            return [job for job in self._jobs.values() if job.worker == worker]

    def take_all(self) -> list[Job]:
        """Accept no more jobs, and forget and return the present ones. The caller ends them."""
        with self._changed:
            self._failed = self.all_taken = True
            jobs = list(self._jobs.values())
            for job in jobs:
                self._queue.remove(job.number)
            self._jobs.clear()
            self._to_remove.clear()
            self._running, self._lanes = Running(self._workers), Lanes(self._workers)
            self._hand_over()
            return jobs

    def _cancel(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._to_remove.setdefault(number, Cancelled("the call was cancelled"))
        self._hand_over()

    def _removed(self, worker: int) -> list[tuple[Job, RequestError]]:
        """Return the jobs to remove: the worker's, and queued ones, which it takes over."""
        if (now := self._clock()) >= self._earliest:
            self._expire(now)
        if not self._to_remove:
            return []
        found = [job for job in map(self._jobs.__getitem__, self._to_remove) if job.worker in (None, worker)]
        for job in found:
            job.started = math.inf  # the duration of a cancelled job does not predict others
            if job.worker is None:
                self._observer.left_queue(self._clock() - job.submitted)
                self._queue.remove(job.number)
                self._assign(job, worker)
        if not self._queue.rows:
            self._estimator.record_start(0.0, self._clock(), more=False)
        return [(job, self._to_remove.pop(job.number)) for job in found]

    def _expire(self, now: float) -> None:
        self._earliest = math.inf
        for number, job in self._jobs.items():
            deadline = math.inf if job.deadline is None else job.deadline
            if deadline <= now:
                self._to_remove.setdefault(number, Expired("the deadline passed before the text was done"))
            else:
                self._earliest = min(self._earliest, deadline)

    def _offer_freed_rows(self) -> None:
        """Notify workers that lack rows, if a job ended and left rows to them."""
        if not self._is_full() and not all(map(self._running.lanes_of, range(self._workers))):
            self._changed.notify_all()

    def _is_full(self) -> bool:
        """Return whether all jobs share one lane and it has all its rows, the usual state of a busy engine."""
        return not self._lanes.contended and self._running.are_full(self.most_rows)

    def _is_contended(self) -> bool:
        """Return whether a heavy caller and another one have work, or had work less than CONTENTION_SECONDS ago."""
        if self._lanes.contended:
            self._contended_until = self._clock() + CONTENTION_SECONDS
            return True
        return self._contended_until > -math.inf and self._clock() < self._contended_until

    def _admitted(self, worker: int) -> list[Job]:
        """Return the jobs that join the batches of a worker."""
        if self._is_full():
            return []
        lanes = (LIGHT, MAIN) if self._lanes.contended else (MAIN,)
        admitted = [each for lane in lanes for each in self._fill(lane, worker)]
        if admitted:
            cost = sum([each.cost for each in admitted])
            self._estimator.record_start(cost, self._clock(), more=self._queue.rows > 0)
        return admitted

    def _fill(self, lane: int, worker: int) -> list[Job]:
        """Start the queued jobs that join the worker's batches of a lane."""
        rows, free = self._running.rows[lane], self._running.free_rows(lane, self.most_rows)
        contended = self._lanes.contended
        taken = intake(
            worker,
            rows,
            self._running.work[lane],
            queued=self._queue.rows,
            queued_work=self._queue.cost,
            free=free,
            steps=self._slices[lane][worker],
            few=self._most_together() < self._spread,
            contended=contended,
        )
        if taken is NOTHING:
            return []
        joins = (lambda party: self._lanes.lane_of(party) == lane) if contended else None
        most_rows, alone = rows[worker] + free, not any(rows)
        jobs = self._queue.admit(rows[worker], most_rows, taken.rows, most_work=taken.work, alone=alone, joins=joins)
        for job in jobs:
            self._start(job, worker, lane)
        if jobs:
            self._slices[lane][worker] = 0
        return jobs

    def _most_together(self) -> float:
        """Return how many of the present jobs have rows at the same time at most."""
        rows = self._queue.rows + sum(map(sum, self._running.rows.values()))
        return len(self._jobs) * min(self.most_rows / rows, 1.0)

    def _start(self, job: Job, worker: int, lane: int) -> None:
        job.lane, job.started = lane, self._clock()
        self._lanes.join(lane, job.party)
        self._assign(job, worker)
        self._observer.left_queue(job.started - job.submitted)

    def _assign(self, job: Job, worker: int) -> None:
        job.worker = worker
        self._running.add(job.lane or MAIN, worker, job.rows, job.cost)
