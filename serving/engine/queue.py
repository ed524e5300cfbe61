"""Who waits and who is let in: policy on plain numbers, without tensors, threads or a clock."""

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
    """What of one call waits, the longest first; begun: whether a part of it is let in already."""

    jobs: dict[int, Job] = field(default_factory=dict)
    cost: int = 0
    begun: bool = False


class _CallerQueue:
    """What one caller has waiting: his calls take turns."""

    def __init__(self) -> None:
        self.calls: dict[int, _Call] = {}
        self.tokens = self.cost = 0
        self._turns: FairQueue[int] = FairQueue()

    def add(self, job: Job) -> None:
        """Let a job wait."""
        if job.call not in self.calls:
            self.calls[job.call] = _Call(begun=isinstance(job, ScoreJob) and job.follow_up)
            self._turns.join(job.call)
        self.calls[job.call].jobs[job.number] = job
        self._count(job, 1)

    def remove(self, job: Job) -> None:
        """Let a job wait no more."""
        self._count(job, -1)
        call = self.calls[job.call]
        del call.jobs[job.number]
        if not call.jobs:
            del self.calls[job.call]
            self._turns.leave(job.call)

    def next(self) -> Job:
        """Whose turn it is."""
        return next(iter(self.calls[self._turns.next()].jobs.values()))

    def begin(self, job: Job) -> None:
        """A job is let in, and counts as its call's turn."""
        self._turns.charge(job.call, cost_of(job))
        self.calls[job.call].begun = True

    def latest(self) -> list[Job]:
        """The last call of which nothing has begun."""
        return next((list(call.jobs.values()) for call in reversed(self.calls.values()) if not call.begun), [])

    def ahead(self, cost: int) -> int:
        """The cost of what comes before a new call of this cost is done."""
        return sum(min(call.cost, cost) for call in self.calls.values())

    def _count(self, job: Job, sign: int) -> None:
        self.tokens += sign * len(job.source_ids)
        self.cost += sign * cost_of(job)
        self.calls[job.call].cost += sign * cost_of(job)


class Queue:
    """The jobs that wait. Callers take turns, and so do the calls of each: nobody waits for a flood of another's.

    When it is full, whoever has the most waiting gives way to who has less (longest queue drop: Suter, Lakshman,
    Stiliadis, Choudhury: Design Considerations for Supporting TCP with Per-flow Queueing, 1998).
    """

    def __init__(self, limits: EngineLimits) -> None:
        self._limits = limits
        self._jobs: dict[int, Job] = {}
        self._lines: dict[str, _CallerQueue] = {}
        self._turns: FairQueue[str] = FairQueue()
        self._tokens = self._rows = 0

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def tokens(self) -> int:
        """Source tokens that wait."""
        return self._tokens

    @property
    def rows(self) -> int:
        """Rows that wait."""
        return self._rows

    def check(self, jobs: Sequence[Job]) -> list[Job]:
        """Who has to give way so that these jobs of one call find room; raises QueueFull if they find none."""
        texts, tokens = len(self._jobs) + len(jobs), self._tokens + sum(len(job.source_ids) for job in jobs)
        displaced: list[Job] = []
        if jobs and self._full(texts, tokens):
            displaced = self._heaviest_gives(jobs)
            texts -= len(displaced)
            tokens -= sum(len(job.source_ids) for job in displaced)
        if texts > self._limits.max_queue_texts:
            raise self._no_room_for(len(jobs))
        if tokens > self._limits.max_queue_tokens:
            raise QueueFull(
                f"{self._tokens} source tokens wait, {tokens - self._tokens} more would exceed the limit of "
                f"{self._limits.max_queue_tokens}"
            )
        return displaced

    def check_texts(self, caller: str, texts: int) -> None:
        """Raise QueueFull where `check` would for any texts: before work is spent on finding out what they are."""
        most = self._limits.max_queue_texts
        if texts > most or len(self._jobs) + texts <= most:  # more than ever find room are another error
            return
        heaviest = max(self._lines, key=lambda each: self._lines[each].tokens, default=caller)
        if heaviest == caller:
            raise self._no_room_for(texts)

    def ahead(self, jobs: Sequence[Job]) -> int:
        """The cost of what is done before these jobs of one call are, themselves counted."""
        own = sum(map(cost_of, jobs))
        line = self._lines.get(jobs[0].caller)
        total = own + (line.ahead(own) if line else 0)
        others = (line.cost for caller, line in self._lines.items() if caller != jobs[0].caller)
        return total + sum(min(cost, total) for cost in others)

    def add(self, jobs: Sequence[Job]) -> None:
        """Let these jobs of one call wait: the longest first, which decides when the call is answered."""
        for job in sorted(jobs, key=lambda job: len(job.source_ids), reverse=True):
            if job.caller not in self._lines:
                self._lines[job.caller] = _CallerQueue()
                self._turns.join(job.caller)
            self._lines[job.caller].add(job)
            self._jobs[job.number] = job
            self._tokens += len(job.source_ids)
            self._rows += rows_of(job)

    def remove(self, number: int) -> Job | None:
        """Take a job out, if it waits here."""
        job = self._jobs.pop(number, None)
        if job is not None:
            self._tokens -= len(job.source_ids)
            self._rows -= rows_of(job)
            line = self._lines[job.caller]
            line.remove(job)
            if not line.calls:
                del self._lines[job.caller]
                self._turns.leave(job.caller)
        return job

    def admit(self, running_rows: int, most_rows: int, share: int, *, alone: bool = True) -> list[Job]:
        """Take out who may join a batch of running_rows, in turn; nobody whose turn it is not overtakes.

        most_rows: of the batch; a job wider than that runs alone
        share: rows at which the rest is left to others
        alone: whether an empty batch would be, others having none either
        """
        admitted: list[Job] = []
        while self._jobs and running_rows < share:
            line = self._lines[self._turns.next()]
            job = line.next()
            if running_rows + rows_of(job) > most_rows and (running_rows or not alone):
                break
            running_rows += rows_of(job)
            self._turns.charge(job.caller, cost_of(job))
            line.begin(job)
            self.remove(job.number)
            admitted.append(job)
        return admitted

    def _no_room_for(self, texts: int) -> QueueFull:
        most = self._limits.max_queue_texts
        return QueueFull(f"{len(self._jobs)} texts wait, {texts} more would exceed the limit of {most}")

    def _full(self, texts: int, tokens: int) -> bool:
        return texts > self._limits.max_queue_texts or tokens > self._limits.max_queue_tokens

    def _heaviest_gives(self, jobs: Sequence[Job]) -> list[Job]:
        """The latest call of who has the most waiting, if that is more than the caller of these has with them."""
        caller, line = max(self._lines.items(), key=lambda item: item[1].tokens)
        own = self._lines.get(jobs[0].caller)
        mine = (own.tokens if own else 0) + sum(len(job.source_ids) for job in jobs)
        return line.latest() if caller != jobs[0].caller and line.tokens > mine else []
