"""The queue of an engine: its limits, its fairness between callers and calls, and which call it drops when it is full.

Works on plain numbers, without tensors, threads or a clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lingon.errors import QueueFull
from lingon.serving.decoding.job import Job, ScoreJob
from lingon.serving.engine.fair_queue import FairQueue
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.engine.policy import cost_of, rows_of


@dataclass(slots=True)
class _Call:
    """The queued jobs of one call, the longest first; started: whether one of its jobs was admitted."""

    jobs: dict[int, Job] = field(default_factory=dict)
    cost: int = 0
    started: bool = False


class _CallerQueue:
    """The queued calls of one caller. Service is fair between them."""

    def __init__(self) -> None:
        self.calls: dict[int, _Call] = {}
        self.tokens = self.cost = 0
        self._order: FairQueue[int] = FairQueue()

    def add(self, job: Job) -> None:
        """Enqueue a job."""
        if job.call not in self.calls:
            self.calls[job.call] = _Call(started=isinstance(job, ScoreJob) and job.follow_up)
            self._order.join(job.call)
        self.calls[job.call].jobs[job.number] = job
        self._count(job, 1)

    def remove(self, job: Job) -> None:
        """Remove a job."""
        self._count(job, -1)
        call = self.calls[job.call]
        del call.jobs[job.number]
        if not call.jobs:
            del self.calls[job.call]
            self._order.leave(job.call)

    def next(self) -> Job:
        """Return the job to admit next."""
        return next(iter(self.calls[self._order.next()].jobs.values()))

    def start(self, job: Job) -> None:
        """Count an admitted job as service of its call."""
        self._order.charge(job.call, cost_of(job))
        self.calls[job.call].started = True

    def latest(self) -> list[Job]:
        """Return the jobs of the latest call of which none was admitted."""
        return next((list(call.jobs.values()) for call in reversed(self.calls.values()) if not call.started), [])

    def cost_before(self, cost: int) -> int:
        """Return the cost that is served before a new call of this cost is done."""
        return sum(min(call.cost, cost) for call in self.calls.values())

    def _count(self, job: Job, sign: int) -> None:
        cost = sign * cost_of(job)
        self.tokens += sign * len(job.source_ids)
        self.cost += cost
        self.calls[job.call].cost += cost


class Queue:
    """The queued jobs. Service is fair between callers, and between the calls of one caller.

    A full queue drops the latest call of the caller with the most queued tokens, if that caller has more than the new
    one (longest queue drop: Suter, Lakshman, Stiliadis, Choudhury: Design Considerations for Supporting TCP with
    Per-flow Queueing, 1998).
    """

    def __init__(self, limits: EngineLimits) -> None:
        self._limits = limits
        self._jobs: dict[int, Job] = {}
        self._callers: dict[str, _CallerQueue] = {}
        self._order: FairQueue[str] = FairQueue()
        self._tokens = self._rows = 0

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def tokens(self) -> int:
        """Queued source tokens."""
        return self._tokens

    @property
    def rows(self) -> int:
        """Queued rows."""
        return self._rows

    def make_room(self, jobs: Sequence[Job]) -> list[Job]:
        """Return the jobs to drop so that these jobs of one call fit; raises QueueFull if they do not fit."""
        new_tokens = sum(len(job.source_ids) for job in jobs)
        texts, tokens = len(self._jobs) + len(jobs), self._tokens + new_tokens
        dropped: list[Job] = []
        if jobs and not self._fits(texts, tokens):
            dropped = self._droppable(jobs[0].caller, new_tokens)
            texts -= len(dropped)
            tokens -= sum(len(job.source_ids) for job in dropped)
        if texts > self._limits.max_queue_texts:
            raise self._too_many(len(jobs))
        if tokens > self._limits.max_queue_tokens:
            raise QueueFull(
                f"{self._tokens} source tokens are queued, {tokens - self._tokens} more would exceed the limit of "
                f"{self._limits.max_queue_tokens}"
            )
        return dropped

    def check_texts(self, caller: str, texts: int) -> None:
        """Raise QueueFull if `make_room` would for any texts, so that no work is spent on what is refused anyway."""
        most = self._limits.max_queue_texts
        if texts > most or len(self._jobs) + texts <= most:  # `EngineLimits.check_request` refuses more than `most`
            return
        heaviest = max(self._callers, key=lambda each: self._callers[each].tokens, default=caller)
        if heaviest == caller:
            raise self._too_many(texts)

    def cost_before(self, jobs: Sequence[Job]) -> int:
        """Return the cost that is served before these jobs of one call are done, their own included."""
        own = sum(map(cost_of, jobs))
        caller = self._callers.get(jobs[0].caller)
        total = own + (caller.cost_before(own) if caller else 0)
        others = (queue.cost for name, queue in self._callers.items() if name != jobs[0].caller)
        return total + sum(min(cost, total) for cost in others)

    def add(self, jobs: Sequence[Job]) -> None:
        """Enqueue the jobs of one call, the longest first, because it decides when the call is answered."""
        for job in sorted(jobs, key=lambda job: len(job.source_ids), reverse=True) if len(jobs) > 1 else jobs:
            if job.caller not in self._callers:
                self._callers[job.caller] = _CallerQueue()
                self._order.join(job.caller)
            self._callers[job.caller].add(job)
            self._jobs[job.number] = job
            self._tokens += len(job.source_ids)
            self._rows += rows_of(job)

    def remove(self, number: int) -> Job | None:
        """Remove a job; returns None if it is not queued."""
        job = self._jobs.pop(number, None)
        if job is not None:
            self._tokens -= len(job.source_ids)
            self._rows -= rows_of(job)
            queue = self._callers[job.caller]
            queue.remove(job)
            if not queue.calls:
                del self._callers[job.caller]
                self._order.leave(job.caller)
        return job

    def admit(self, running_rows: int, most_rows: int, share: int, *, alone: bool = True) -> list[Job]:
        """Remove and return the jobs that join a batch of running_rows, in order; no job overtakes the next one.

        most_rows: of the batch; a job that is wider runs alone
        share: rows at which the rest is left to other batches
        alone: whether no other batch runs
        """
        admitted: list[Job] = []
        while self._jobs and running_rows < share:
            queue = self._callers[self._order.next()]
            job = queue.next()
            rows = rows_of(job)
            if running_rows + rows > most_rows and (running_rows or not alone):
                break
            running_rows += rows
            self._order.charge(job.caller, cost_of(job))
            queue.start(job)
            self.remove(job.number)
            admitted.append(job)
        return admitted

    def _too_many(self, texts: int) -> QueueFull:
        most = self._limits.max_queue_texts
        return QueueFull(f"{len(self._jobs)} texts are queued, {texts} more would exceed the limit of {most}")

    def _fits(self, texts: int, tokens: int) -> bool:
        return texts <= self._limits.max_queue_texts and tokens <= self._limits.max_queue_tokens

    def _droppable(self, caller: str, new_tokens: int) -> list[Job]:
        """Return the latest call of the caller with the most queued tokens, if those are more than this caller's."""
        heaviest, queue = max(self._callers.items(), key=lambda item: item[1].tokens)
        own = self._callers.get(caller)
        tokens = (own.tokens if own else 0) + new_tokens
        return queue.latest() if heaviest != caller and queue.tokens > tokens else []
