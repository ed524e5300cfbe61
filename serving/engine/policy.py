"""Fair order between keys, and the lanes of running batches. Pure.

A batch advances all its rows together. A caller with few rows would therefore wait for every row of a caller with many
rows. While a heavy caller has work, the others run in a separate lane with separate batches. The lanes share the time
of the workers fairly: a lane receives time in proportion to its callers. Otherwise all jobs share one lane, because
large batches are efficient.

A call that is much shorter than the current work is also separated: it queues and runs as a party of its own. Its small
batch takes time from the others. Short calls therefore get a bounded share of the time. Beyond it they are treated like
other calls.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

Key = TypeVar("Key")
STALE = 2  # ratio of heap entries to keys; above it, plus SPARE, unused entries are removed
SPARE = 64


class FairQueue(Generic[Key]):
    """The order of service between keys with queued work, by the work that each has received.

    Start-time Fair Queuing (Goyal, Vin, Cheng 1996): every key has a tag that grows with the cost of the work that it
    receives. The lowest tag is served next, and a new key starts at the clock. The clock also advances with the work
    that all keys receive (Demers, Keshav, Shenker: Analysis and Simulation of a Fair Queueing Algorithm, 1989).
    Otherwise an endless stream of new keys would block the second service of older ones.
    """

    def __init__(self) -> None:
        self._clock = 0.0
        self._arrivals = itertools.count()  # breaks ties between equal tags
        self._entries: dict[Key, tuple[float, int, Key]] = {}
        self._heap: list[tuple[float, int, Key]] = []

    def __iter__(self) -> Iterator[Key]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def join(self, key: Key) -> None:
        """Add a key. A key that is already queued keeps its tag."""
        if key not in self._entries:
            self._push(key, self._clock)

    def next(self, eligible: Callable[[Key], bool] | None = None) -> Key:
        """Return the key to serve next among the eligible ones. One must exist."""
        if eligible is not None:
            return min(entry for entry in self._entries.values() if eligible(entry[2]))[2]
        while self._entries.get(self._heap[0][2]) is not self._heap[0]:  # the key has left or has a newer entry
            heapq.heappop(self._heap)
        return self._heap[0][2]

    def charge(self, key: Key, cost: float) -> None:
        """Count work that a key received. The key stays. A single key takes nothing from others."""
        if len(self._entries) == 1:
            return
        tag = self._entries[key][0]
        self._clock = max(tag, self._clock + cost / len(self._entries))
        self._push(key, tag + cost)

    def leave(self, key: Key) -> None:
        del self._entries[key]
        if not self._entries:
            self._heap.clear()

    def _push(self, key: Key, tag: float) -> None:
        entry = tag, next(self._arrivals), key
        self._entries[key] = entry
        heapq.heappush(self._heap, entry)
        if len(self._heap) > STALE * len(self._entries) + SPARE:  # `next` among eligible keys removes no entry
            self._heap = list(self._entries.values())
            heapq.heapify(self._heap)


MAIN, LIGHT = 0, 1
"""The lanes: of heavy callers, and of the others while a heavy caller has work."""

HEAVY = 256  # units of queued and running work; a caller with more is heavy: about ten everyday sentences
RESERVE = 4  # divisor; a quarter of the rows is added, so that each lane has rows while the other one has all
SHORTER = 3  # ratio of the typical running work to the work of a short call, at least
LONG = 64  # units of a typical job that others wait long for: two everyday sentences with a beam of 4
SHORT_SHARE = 0.05  # share of the workers' time for batches of short calls
SHORT_SAVED = 0.1  # seconds of that time that may accumulate
ROUND = 4  # steps between two admissions to a running batch, see `intake`
SMALL = 8  # rows; a smaller batch admits jobs at every step

Party = str
"""A unit of fair service: a caller, or its short calls, with the suffix SHORT."""

SHORT = "\0"  # no caller has it in its name


class ShortTime:
    """The time that short calls may still take. The caller passes the time on its clock."""

    def __init__(self, workers: int) -> None:
        self._rate = SHORT_SHARE * workers
        self._saved, self._since = SHORT_SAVED, -math.inf

    def is_left(self, now: float) -> bool:
        """Return whether a short call may run separately."""
        self._saved = min(self._saved + self._rate * (now - self._since), SHORT_SAVED)
        self._since = now
        return self._saved > 0

    def spend(self, seconds: float) -> None:
        """Count a time slice of a worker."""
        self._saved -= seconds


class Lanes:
    """The work of each party, the parties in each lane, and the time that each lane has received.

    contended: whether a heavy party and another one have work, so that the others join the lane LIGHT
    """

    def __init__(self, workers: int) -> None:
        self._short_time = ShortTime(workers)
        self._work: dict[Party, int] = {}  # units of each party, queued and running
        self._heavy: set[Party] = set()
        self._running: tuple[dict[Party, int], dict[Party, int]] = ({}, {})  # jobs of each party in each lane
        self._ahead = 0.0  # seconds per party that MAIN received more than LIGHT while both have jobs
        self._total = self._squares = 0  # sums over all queued and running jobs: units, and squared units
        self.contended = False

    def is_short(self, cost: int, now: float) -> bool:
        """Return whether a call of this work runs separately, because it is much shorter than others and time is left.

        The typical job is the job of a random unit of work, not a random job: a few long sentences among many short
        ones are most of the work.
        """
        if self._total < HEAVY or max(SHORTER * cost, LONG) * self._total > self._squares:
            return False
        return self._short_time.is_left(now)

    def lane_of(self, party: Party) -> int:
        """Return the lane that a job of this party would join now."""
        if not self._heavy or party in self._heavy:
            return MAIN
        return LIGHT

    def submit(self, party: Party, cost: int) -> None:
        self._total += cost
        self._squares += cost * cost
        work = self._work[party] = self._work.get(party, 0) + cost
        if work >= HEAVY:
            self._heavy.add(party)
        self.contended = len(self._work) > 1 and bool(self._heavy)

    def join(self, lane: int, party: Party) -> None:
        """Count a job that joined a lane."""
        self._running[lane][party] = self._running[lane].get(party, 0) + 1

    def leave(self, lane: int | None, party: Party, cost: int) -> None:
        """Count a job that ended; lane: None if it was never admitted."""
        self._total -= cost
        self._squares -= cost * cost
        if _subtract(self._work, party, cost) < HEAVY:
            self._heavy.discard(party)
        self.contended = len(self._work) > 1 and bool(self._heavy)
        if lane is not None:
            _subtract(self._running[lane], party, 1)
            if not self._running[lane]:
                self._ahead = 0.0

    def next(self) -> int:
        """Return the next lane of a worker that has jobs in both."""
        return LIGHT if self._ahead > 0 else MAIN

    def charge(self, lane: int, seconds: float) -> None:
        """Count time that a worker spent on a lane."""
        if lane == LIGHT and any(party.endswith(SHORT) for party in self._running[LIGHT]):
            self._short_time.spend(seconds)
        if self._running[MAIN] and self._running[LIGHT]:
            share = seconds / len(self._running[lane])
            self._ahead += share if lane == MAIN else -share


class Running:
    """The rows that each worker runs in each lane, and their work in units when they began."""

    def __init__(self, workers: int) -> None:
        self.rows, self.work = ({lane: [0] * workers for lane in (MAIN, LIGHT)} for _ in range(2))

    def add(self, lane: int, worker: int, rows: int, work: int) -> None:
        """Count a job that began, or with negative numbers one that ended."""
        self.rows[lane][worker] += rows
        self.work[lane][worker] += work

    def are_full(self, most_rows: int) -> bool:
        """Return whether one lane has all rows and the other one has none."""
        return sum(self.rows[MAIN]) >= most_rows and not any(self.rows[LIGHT])

    def lanes_of(self, worker: int) -> tuple[int, ...]:
        """Return the lanes in which a worker has rows."""
        main, light = self.rows[MAIN][worker], self.rows[LIGHT][worker]
        if light:
            return (MAIN, LIGHT) if main else (LIGHT,)
        return (MAIN,) if main else ()

    def free_rows(self, lane: int, most_rows: int) -> int:
        """Return the rows that jobs may take in a lane. Each lane has a reserve that the other one cannot take."""
        own, total, reserve = sum(self.rows[lane]), sum(map(sum, self.rows.values())), reserved_rows(most_rows)
        free = min(most_rows - own, most_rows + reserve - total)
        if lane == MAIN:  # while many light callers have all other rows, it takes only the needed part of the reserve
            free = min(free, max(most_rows - total, reserve - own))
        return max(free, 0)


def reserved_rows(most_rows: int) -> int:
    """Return the rows beyond most_rows that are reserved for the lane that lacks rows."""
    return max(most_rows // RESERVE, 1)


def _subtract(counts: dict[Party, int], party: Party, amount: int) -> int:
    """Subtract from the count of a party, without which it is 0, and return the rest."""
    rest = counts.pop(party, 0) - amount
    if rest:
        counts[party] = rest
    return rest


class Intake(NamedTuple):
    """The bounds of an admission to a batch: a number of rows, or units of work."""

    rows: int
    work: float = math.inf


NOTHING = Intake(0, 0.0)


def intake(
    worker: int,
    rows: Sequence[int],
    work: Sequence[float],
    *,
    queued: int,
    queued_work: float,
    free: int,
    steps: int = ROUND,
    few: bool = False,
    contended: bool = False,
) -> Intake:
    """Return what the batch of a worker admits from the queue now.

    The first case that holds decides:

    1. The batch has SMALL rows or more, admitted less than ROUND steps ago, and would grow by less than half: NOTHING.
       Jobs that join together are encoded together, which takes less time for each (short ones take half the time in
       tens than in threes), and they share the gathering of a shortlist's output rows. A small batch gains more from
       another row than it loses.
    2. Sentences are few: all rows, if no batch is fuller, else NOTHING. One batch with all cores ends sooner than
       several batches that share them.
    3. Callers contend, or not all queued rows fit, or the queue has less work than a batch: rows up to the mean of all
       batches. The remaining work of a running job is unknown, so that its work says little beside a small queue.
    4. All queued jobs join now: work up to the mean of all batches, so that they end together.

    rows, work: rows and units of work of each worker in this lane
    queued, queued_work: rows and work in the queue
    free: rows that jobs may take in this lane
    steps: steps of the batch since its last admission
    """
    own, joining, workers = rows[worker], min(queued, free), len(rows)
    if own >= SMALL and steps < ROUND and 2 * joining < own:
        return NOTHING
    if few:
        return Intake(own + joining) if own == max(rows) else NOTHING
    if contended or joining < queued or queued_work < sum(work) / workers:
        return Intake(-(-(sum(rows) + joining) // workers))
    return Intake(own + free, (sum(work) + queued_work) / workers - work[worker])


def key_to_evict(keys: Iterable[Key], held: Callable[[Key], float], own: float) -> Key | None:
    """Return the key with the most held work, to evict for a key that would hold `own`.

    Returns None if no key holds more than `own`. The new work is then refused.
    """
    most = max(keys, key=held, default=None)
    return most if most is not None and held(most) > own else None
