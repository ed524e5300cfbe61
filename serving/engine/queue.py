"""The queue of an engine: its limits, its fairness between parties and calls, and which calls a full queue drops.

Works on plain numbers, without tensors, threads or a clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from lingon.errors import QueueFull
from lingon.serving.decoding.job import Job
from lingon.serving.engine.cost import cost_of
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.engine.policy import FairQueue, Party, key_to_evict


@dataclass(slots=True)
class _Call:
    """The queued jobs of one call, the longest first; started: whether one of them was admitted."""

    jobs: dict[int, Job] = field(default_factory=dict)
    cost: int = 0
    started: bool = False


class _PartyQueue:
    """The queued calls of one party. Service is fair between them."""

    def __init__(self) -> None:
        self.calls: dict[int, _Call] = {}
        self.cost = 0
        self._order: FairQueue[int] = FairQueue()

    def add(self, job: Job) -> None:
        call = self.calls.get(job.call)
        if call is None:
            call = self.calls[job.call] = _Call(started=job.follow_up)
            self._order.join(job.call)
        call.jobs[job.number] = job
        call.cost += job.cost
        self.cost += job.cost

    def remove(self, job: Job) -> None:
        call = self.calls[job.call]
        call.cost -= job.cost
        self.cost -= job.cost
        del call.jobs[job.number]
        if not call.jobs:
            del self.calls[job.call]
            self._order.leave(job.call)

    def next(self) -> Job:
        return next(iter(self.calls[self._order.next()].jobs.values()))

    def start(self, job: Job) -> None:
        """Count an admitted job as service of its call."""
        self._order.charge(job.call, job.cost)
        self.calls[job.call].started = True

    def waiting_calls(self) -> Iterator[list[Job]]:
        """Yield the jobs of each call without an admitted job, the latest call first."""
        return (list(call.jobs.values()) for call in reversed(self.calls.values()) if not call.started)

    def cost_before(self, cost: int) -> int:
        """Return the cost that is served before a new call of this cost ends."""
        return sum(min(call.cost, cost) for call in self.calls.values())

    def most_cost_before(self, cost: float) -> float:
        """Return an upper bound of `cost_before` without a loop over the calls. It is exact if all have one cost."""
        return min(self.cost, len(self.calls) * cost)


class Queue:
    """The queued jobs. Service is fair between parties, and between the calls of one party.

    A full queue drops the latest calls of the party with the most queued work, while that party has more than the new
    one (longest queue drop: Suter, Lakshman, Stiliadis, Choudhury: Design Considerations for Supporting TCP with
    Per-flow Queueing, 1998).

    rows, tokens, cost: sums over all queued jobs, see `lingon.serving.decoding.job`
    """

    def __init__(self, limits: EngineLimits) -> None:
        self._limits = limits
        self._jobs: dict[int, Job] = {}
        self._parties: dict[Party, _PartyQueue] = {}
        self._order: FairQueue[Party] = FairQueue()
        self.rows = self.tokens = self.cost = 0

    def __len__(self) -> int:
        return len(self._jobs)

    def make_room(self, jobs: Sequence[Job]) -> list[Job]:
        """Return the jobs to drop so that these jobs of one call fit. Raises QueueFull if they cannot fit.

        Follow-up jobs use at most half of the queue, and are submitted again later, because they drop no other jobs.
        """
        half_full = (
            2 * len(self._jobs) > self._limits.max_queue_texts or 2 * self.tokens > self._limits.max_queue_tokens
        )
        if half_full and jobs and all(job.follow_up for job in jobs):
            raise self._too_many(len(jobs))
        texts, tokens = len(self._jobs) + len(jobs), self.tokens + sum([job.tokens for job in jobs])
        dropped: list[Job] = []
        for call in self._droppable(jobs) if jobs and not self._fits(texts, tokens) else ():
            dropped += call
            texts -= len(call)
            tokens -= sum(job.tokens for job in call)
            if self._fits(texts, tokens):
                return dropped
        if texts > self._limits.max_queue_texts:
            raise self._too_many(len(jobs))
        if tokens > self._limits.max_queue_tokens:
            raise QueueFull(
                f"{self.tokens} tokens are queued, {sum(job.tokens for job in jobs)} more would exceed the limit of "
                f"{self._limits.max_queue_tokens}"
            )
        return dropped

    def check_texts(self, caller: str, texts: int) -> None:
        """Raise QueueFull if `make_room` would for any texts, before work is spent on texts that are refused later."""
        most = self._limits.max_queue_texts
        if texts > most or len(self._jobs) + texts <= most:  # more than `most` are refused permanently
            return
        own = self._parties[caller].cost if caller in self._parties else 0
        if key_to_evict(self._parties, lambda party: self._parties[party].cost, own) is None:
            raise self._too_many(texts)

    def cost_before(self, jobs: Sequence[Job]) -> float:
        """Return the cost that is served before these jobs of one call end, their own included."""
        own = sum(map(cost_of, jobs))
        party = jobs[0].party
        queue = self._parties.get(party)
        return self._with_others(party, own + (queue.cost_before(own) if queue else 0))

    def most_cost_before(self, party: Party, cost: float) -> float:
        """Return at least the cost that is served before a new call of this cost ends, its own included."""
        queue = self._parties.get(party)
        return self._with_others(party, cost + (queue.most_cost_before(cost) if queue else 0.0))

    def _with_others(self, party: Party, cost: float) -> float:
        """Return a cost of a party, plus the cost that the others receive meanwhile."""
        others = (queue.cost for other, queue in self._parties.items() if other != party)
        return cost + sum(min(other, cost) for other in others)

    def add(self, jobs: Sequence[Job]) -> None:
        """Enqueue the jobs of one call, the longest first, because it decides when the call ends."""
        for job in sorted(jobs, key=attrgetter("tokens"), reverse=True) if len(jobs) > 1 else jobs:
            cost = job.cost or cost_of(job)
            queue = self._parties.get(job.party)
            if queue is None:
                queue = self._parties[job.party] = _PartyQueue()
                self._order.join(job.party)
            queue.add(job)
            self._jobs[job.number] = job
            self.tokens += job.tokens
            self.rows += job.rows
            self.cost += cost

    def remove(self, number: int) -> Job | None:
        """Remove a job. Returns None if it is not queued."""
        job = self._jobs.pop(number, None)
        if job is not None:
            self.tokens -= job.tokens
            self.rows -= job.rows
            self.cost -= job.cost
            queue = self._parties[job.party]
            queue.remove(job)
            if not queue.calls:
                del self._parties[job.party]
                self._order.leave(job.party)
        return job

    def admit(
        self,
        running_rows: int,
        most_rows: int,
        share: int,
        *,
        most_work: float = math.inf,
        alone: bool = True,
        joins: Callable[[Party], bool] | None = None,
    ) -> list[Job]:
        """Remove and return the jobs that join a batch of running_rows, in order. No job overtakes the next one.

        most_rows: bound of the rows of the batch; a wider job runs alone
        share: rows of the batch at which the rest is left to other batches
        most_work: units of joining work at which the rest is left to other batches
        alone: whether no other batch runs
        joins: whether the jobs of a party may join; default: all
        """
        admitted, work = list[Job](), 0
        while self._jobs and running_rows < share and work < most_work:
            if joins is not None and not any(map(joins, self._parties)):
                break
            party = self._order.next(joins)
            queue = self._parties[party]
            job = queue.next()
            if running_rows + job.rows > most_rows and (running_rows or not alone):
                break
            running_rows += job.rows
            work += job.cost
            self._order.charge(party, job.cost)
            queue.start(job)
            self.remove(job.number)
            admitted.append(job)
        return admitted

    def charge(self, job: Job, cost: int) -> None:
        """Count unforeseen work of an admitted job beyond its cost as service of its party."""
        if job.party in self._parties:
            self._order.charge(job.party, cost)

    def _too_many(self, texts: int) -> QueueFull:
        most = self._limits.max_queue_texts
        return QueueFull(f"{len(self._jobs)} texts are queued, {texts} more would exceed the limit of {most}")

    def _fits(self, texts: int, tokens: int) -> bool:
        return texts <= self._limits.max_queue_texts and tokens <= self._limits.max_queue_tokens

    def _droppable(self, jobs: Sequence[Job]) -> Iterator[list[Job]]:
        """Yield calls to drop, each the latest of the party with the most work left.

        Ends when that party has no more work than the caller of the new jobs would have, or no droppable call.
        """
        work = {party: queue.cost for party, queue in self._parties.items()}
        own = work.pop(jobs[0].party, 0) + sum(map(cost_of, jobs))
        calls = {party: self._parties[party].waiting_calls() for party in work}
        while work:
            heaviest = key_to_evict(work, work.__getitem__, own)
            call = None if heaviest is None else next(calls[heaviest], None)
            if heaviest is None or call is None:
                return
            work[heaviest] -= sum(job.cost for job in call)
            yield call
