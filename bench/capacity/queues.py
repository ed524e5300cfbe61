"""Simulates servers that translate together what they have, and a balancer in front of them.

The time of a step of the decoder grows with the sentences in it, so that a server shares its speed among them: each
gets the same part. More sentences than a batch holds wait in the order of their arrival.
"""

from __future__ import annotations

import heapq
import itertools
import random
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a server is with n sentences at once.

    measured: pairs of n, from 1 up, and the sentences that it finishes in a second then; linear in between
    """

    measured: tuple[tuple[int, float], ...]

    @property
    def rows(self) -> int:
        """The most sentences at once."""
        return self.measured[-1][0]

    @property
    def capacity(self) -> float:
        """Sentences a second with a full batch."""
        return self.measured[-1][1]

    def total(self, sentences: int) -> float:
        """Sentences a second with this number at once."""
        place = bisect_left(self.measured, (sentences, 0.0))
        (n, rate) = self.measured[place]
        if n == sentences:
            return rate
        (before, slower) = self.measured[place - 1]
        return slower + (rate - slower) * (sentences - before) / (n - before)


@dataclass(slots=True)
class Machine:
    """One server.

    speeds: by the number of sentences, the work that each gets in a second; a sentence of mean length is a work of 1
    done: the work that a sentence has got which has been running from the start
    running: by the value of `done` at its end, the time of arrival of each running sentence
    version: grows with each change, so that an outdated end is recognised
    """

    speeds: Sequence[float]
    done: float = 0.0
    changed: float = 0.0
    version: int = 0
    running: list[tuple[float, float]] = field(default_factory=list)
    waiting: deque[tuple[float, float]] = field(default_factory=deque)

    def advance(self, now: float) -> None:
        """Let the time pass until now."""
        self.done += (now - self.changed) * self.speeds[len(self.running)]
        self.changed = now
        self.version += 1

    def add(self, arrived: float, work: float) -> None:
        """Take a sentence."""
        if len(self.running) == len(self.speeds) - 1:
            self.waiting.append((arrived, work))
        else:
            heapq.heappush(self.running, (self.done + work, arrived))

    def finish(self) -> float:
        """End the sentence that is done, and begin the next one; returns when the first one arrived."""
        _, arrived = heapq.heappop(self.running)
        if self.waiting:
            self.add(*self.waiting.popleft())
        return arrived

    def next_end(self) -> float | None:
        """When the next sentence ends, if none arrives until then."""
        if not self.running:
            return None
        return self.changed + max(self.running[0][0] - self.done, 0.0) / self.speeds[len(self.running)]


class Counts:
    """The open calls of each machine, and the machines with the fewest, in constant time."""

    def __init__(self, machines: int) -> None:
        self.of = [0] * machines
        self._with: list[list[int]] = [list(range(machines))]
        self._place = list(range(machines))
        self._fewest = 0

    def change(self, machine: int, by: int) -> None:
        """Add a call, or end one: by is 1 or -1."""
        old = self._with[self.of[machine]]
        last = old.pop()
        if last != machine:
            old[self._place[machine]], self._place[last] = last, self._place[machine]
        self.of[machine] += by
        count = self.of[machine]
        if count == len(self._with):
            self._with.append([])
        self._place[machine] = len(self._with[count])
        self._with[count].append(machine)
        self._fewest = min(self._fewest, count)
        while not self._with[self._fewest]:
            self._fewest += 1

    def fewest(self) -> list[int]:
        """The machines with the fewest calls."""
        return self._with[self._fewest]


Policy = Callable[[Counts, random.Random, int], int]
"""Chooses the machine of a call by the open calls, a source of chance, and the number of the call."""


def at_random(counts: Counts, chance: random.Random, number: int) -> int:
    """Any machine."""
    return int(chance.random() * len(counts.of))


def in_turns(counts: Counts, chance: random.Random, number: int) -> int:
    """Each machine in turn."""
    return number % len(counts.of)


def fewer_of_two(counts: Counts, chance: random.Random, number: int) -> int:
    """Of two random machines, which may be the same, the one with fewer calls: what Envoy does by default."""
    one, other = at_random(counts, chance, number), at_random(counts, chance, number)
    return one if counts.of[one] <= counts.of[other] else other


def fewest(counts: Counts, chance: random.Random, number: int) -> int:
    """Any of the machines with the fewest calls: what deploy/envoy sets."""
    machines = counts.fewest()
    return machines[int(chance.random() * len(machines))]


POLICIES: dict[str, Policy] = {
    "fewest calls": fewest,
    "fewer of two": fewer_of_two,
    "in turns": in_turns,
    "at random": at_random,
}


def poisson_calls(
    rate: float, works: Sequence[float], requests: int, chance: random.Random
) -> Iterator[tuple[float, float]]:
    """Poisson arrivals: the times of `requests` calls, `rate` a second, and the work of each, drawn from works."""
    now = 0.0
    for _ in range(requests):
        now += chance.expovariate(rate)
        yield now, works[int(chance.random() * len(works))]


def simulate(
    speeds: Sequence[Sequence[float]], calls: Iterator[tuple[float, float]], policy: Policy, seed: int = 1
) -> list[float]:
    """Send calls to machines; returns the seconds that each took, in the order of their ends.

    speeds: of each machine, see Machine
    calls: times and works, the earliest first
    """
    machines, counts, chance = [Machine(each) for each in speeds], Counts(len(speeds)), random.Random(seed)
    ends: list[tuple[float, int, int]] = []  # time, machine and its version
    took: list[float] = []

    def plan(index: int) -> None:
        if (end := machines[index].next_end()) is not None:
            heapq.heappush(ends, (end, index, machines[index].version))

    def end_until(now: float) -> None:
        while ends and ends[0][0] <= now:
            end, index, version = heapq.heappop(ends)
            machine = machines[index]
            if version != machine.version:
                continue
            machine.advance(end)
            took.append(end - machine.finish())
            counts.change(index, -1)
            plan(index)

    for number, (now, work) in enumerate(calls):
        end_until(now)
        index = policy(counts, chance, number)
        machines[index].advance(now)
        machines[index].add(now, work)
        counts.change(index, 1)
        plan(index)
    end_until(float("inf"))
    return took


def shared(speed: Speed, factor: float = 1.0) -> list[float]:
    """The speeds of a machine: by the number of sentences, from none up, the work that each gets in a second."""
    return [0.0, *(factor * speed.total(count) / count for count in range(1, speed.rows + 1))]


def after_warm_up(took: Sequence[float]) -> list[float]:
    """The calls without the first tenth, in which queues are still empty."""
    return list(itertools.islice(took, len(took) // 10, None))
