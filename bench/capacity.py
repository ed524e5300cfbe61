"""Measure one server on one core, and simulate up to a thousand of them behind a balancer.

    python -m lingon.bench.capacity models/en-de

A simulated request is one sentence. Times have no network and no proxy in them. The time of a step of the decoder grows
with the sentences in it, so that a server shares its speed among them equally. If a batch is full, further sentences
wait in the order of their arrival.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import json
import os
import random
import sys
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from lingon import AsyncClient
from lingon.bench.results_file import load_pyplot, percentile, save, save_chart
from lingon.bench.serve.load import OK, ClosedLoad, LoadGenerator, OpenLoad, Target
from lingon.bench.serve.run import serving
from lingon.files import read_lines


@dataclass(frozen=True, slots=True)
class Speed:
    """The speed of a server with n sentences at once.

    measured: pairs of n, from 1 up, and of sentences a second; linear in between
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
        """Return the sentences a second with this number at once."""
        index = bisect_left(self.measured, (sentences, 0.0))
        (n, rate) = self.measured[index]
        if n == sentences:
            return rate
        (before, slower) = self.measured[index - 1]
        return slower + (rate - slower) * (sentences - before) / (n - before)


@dataclass(slots=True)
class Machine:
    """One server.

    speeds: by the number of sentences, the work that each gets in a second; a sentence of mean length is a work of 1
    done: the work on a sentence that runs since the start
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
        """Advance the time to now."""
        self.done += (now - self.changed) * self.speeds[len(self.running)]
        self.changed = now
        self.version += 1

    def add(self, arrived: float, work: float) -> None:
        """Start a sentence, or enqueue it if the batch is full."""
        if len(self.running) == len(self.speeds) - 1:
            self.waiting.append((arrived, work))
        else:
            heapq.heappush(self.running, (self.done + work, arrived))

    def finish(self) -> float:
        """End the sentence that is done, start the next one, and return when the first one arrived."""
        _, arrived = heapq.heappop(self.running)
        if self.waiting:
            self.add(*self.waiting.popleft())
        return arrived

    def next_end(self) -> float | None:
        """Return when the next sentence ends if none arrives before."""
        if not self.running:
            return None
        return self.changed + max(self.running[0][0] - self.done, 0.0) / self.speeds[len(self.running)]


class Counts:
    """The open calls of each machine, and the machines with the fewest, in constant time."""

    def __init__(self, machines: int) -> None:
        self.of = [0] * machines
        self._with: list[list[int]] = [list(range(machines))]
        self._index = list(range(machines))
        self._fewest = 0

    def change(self, machine: int, by: int) -> None:
        """Add a call, or end one: by is 1 or -1."""
        old = self._with[self.of[machine]]
        last = old.pop()
        if last != machine:
            old[self._index[machine]], self._index[last] = last, self._index[machine]
        self.of[machine] += by
        count = self.of[machine]
        if count == len(self._with):
            self._with.append([])
        self._index[machine] = len(self._with[count])
        self._with[count].append(machine)
        self._fewest = min(self._fewest, count)
        while not self._with[self._fewest]:
            self._fewest += 1

    def fewest(self) -> list[int]:
        """Return the machines with the fewest calls."""
        return self._with[self._fewest]


Policy = Callable[[Counts, random.Random, int], int]
"""Chooses the machine of a call by the open calls, a source of chance, and the number of the call."""


def at_random(counts: Counts, chance: random.Random, number: int) -> int:
    """Choose any machine."""
    return int(chance.random() * len(counts.of))


def round_robin(counts: Counts, chance: random.Random, number: int) -> int:
    """Choose the machines in a fixed order."""
    return number % len(counts.of)


def fewer_of_two(counts: Counts, chance: random.Random, number: int) -> int:
    """Choose the one with fewer calls of two random machines, which may be the same. Envoy does this by default."""
    one, other = at_random(counts, chance, number), at_random(counts, chance, number)
    return one if counts.of[one] <= counts.of[other] else other


def fewest(counts: Counts, chance: random.Random, number: int) -> int:
    """Choose any of the machines with the fewest calls. deploy/envoy sets this."""
    machines = counts.fewest()
    return machines[int(chance.random() * len(machines))]


POLICIES: dict[str, Policy] = {
    "fewest calls": fewest,
    "fewer of two": fewer_of_two,
    "round robin": round_robin,
    "at random": at_random,
}


def poisson_calls(
    rate: float, works: Sequence[float], requests: int, chance: random.Random
) -> Iterator[tuple[float, float]]:
    """Yield Poisson arrivals: the times of `requests` calls, `rate` a second, and the work of each, one of works."""
    now = 0.0
    for _ in range(requests):
        now += chance.expovariate(rate)
        yield now, works[int(chance.random() * len(works))]


def simulate(speeds: Sequence[Sequence[float]], calls: Iterator[tuple[float, float]], policy: Policy) -> list[float]:
    """Send calls to machines, and return the seconds of each, in the order of their ends.

    speeds: of each machine, see Machine
    calls: times and works, the earliest first
    """
    machines, counts, chance = [Machine(each) for each in speeds], Counts(len(speeds)), random.Random(1)
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
    """Return the speeds of a machine: by the number of sentences, from none up, the work that each gets in a second."""
    return [0.0, *(factor * speed.total(count) / count for count in range(1, speed.rows + 1))]


def after_warm_up(took: Sequence[float]) -> list[float]:
    """Return the calls without the first tenth, in which queues are still empty."""
    return list(itertools.islice(took, len(took) // 10, None))


AT_ONCE = (1, 2, 4, 8, 16, 32, 64)  # sentences; the last number is a full batch
SECONDS = 4.0  # of each measurement
ENDLESS = 10_000_000  # requests, more than a server answers in that time
ROUNDS = 3  # of which the best one counts, because other work on a machine only slows a server down


@dataclass(frozen=True, slots=True)
class Measured:
    """One server on one core.

    works: of the sentences, in units of their mean
    load_ms: by the share of the capacity that was offered, the 50th and 99th percentile of a Poisson load
    """

    speed: Speed
    works: Sequence[float]
    load_ms: dict[float, tuple[float, float]]


@contextmanager
def one_core(model: Path) -> Iterator[str]:
    """Serve a model on the first usable core, with this process on the others, and yield the address."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[1:] or cores)
    command = [sys.executable, "-m", "lingon", "serve", str(model), "--port", "0", "--metrics-port", "0"]
    with serving([*command, "--engines", "1", "--threads", "1"], frozenset(cores[:1])) as server:
        yield server.address


async def measure(
    address: str, texts: Sequence[str], shares: Sequence[float], seconds: float = SECONDS, rounds: int = ROUNDS
) -> Measured:
    """Measure a server. shares: the Poisson loads to offer, in parts of its capacity."""
    async with AsyncClient(address) as client:
        tokens = [result.target_tokens for result in await client.translate(list(texts[:256]), beam_size=1)]
    generator, target = LoadGenerator(list(texts)), Target(address=address)
    await _closed(generator, target, AT_ONCE[-1], seconds)  # warms up
    best = dict.fromkeys(AT_ONCE, 0.0)
    for _ in range(rounds):
        for count in AT_ONCE:
            best[count] = max(best[count], await _closed(generator, target, count, seconds))
    mean, speed, loads = sum(tokens) / len(tokens), Speed(tuple(best.items())), {}
    for share in shares:
        found = [await _open(generator, target, share * speed.capacity, 2 * seconds, seed) for seed in range(rounds)]
        loads[share] = min(found, key=lambda pair: pair[1])
    await generator.close()
    return Measured(speed, [each / mean for each in tokens], loads)


async def _closed(generator: LoadGenerator, target: Target, clients: int, seconds: float) -> float:
    """Return the sentences a second of clients that wait for their answers, after half a second."""
    for measured in (min(seconds, 0.5), seconds):
        start = time.perf_counter()
        answers = await generator.run(ClosedLoad(target=target, clients=clients, requests=ENDLESS, seconds=measured))
    return sum(answer.code == OK for answer in answers) / (time.perf_counter() - start)


async def _open(
    generator: LoadGenerator, target: Target, rate: float, seconds: float, seed: int
) -> tuple[float, float]:
    """Return the 50th and 99th percentile in milliseconds of a Poisson load, counted from when a call was due."""
    job = OpenLoad(target=target, offered=rate, seconds=seconds, warm_up=0.0, seed=seed)
    took = [answer.latency for answer in await generator.run(job)]
    return round(percentile(took, 50), 1), round(percentile(took, 99), 1)


COLOURS = {"fewest calls": "#1b6ca8", "fewer of two": "#56a3a6", "round robin": "#e08e45", "at random": "#b23a48"}


def draw(path: Path) -> Path:
    """Draw the chart of a results file beside it, and return its path."""
    found = json.loads(path.read_text(encoding="utf-8"))
    pyplot = load_pyplot()
    pyplot.rcParams["svg.hashsalt"] = "lingon"  # so that the same numbers give the same file
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4))
    _loads(left, found)
    _slow(right, found["slow_server"])
    figure.tight_layout()
    output = path.with_suffix(".svg")
    save_chart(figure, output)
    return output


def _loads(axes: Any, found: dict[str, Any]) -> None:
    for policy, colour in COLOURS.items():
        rows = [row for row in found["rows"] if row["policy"] == policy]
        axes.plot(
            [row["servers"] for row in rows], [100 * row["load"] for row in rows], "o-", color=colour, label=policy
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted({row["servers"] for row in found["rows"]}))
    axes.get_xaxis().set_major_formatter(lambda value, _: f"{value:g}")
    axes.set(xlabel="servers, each on one core", ylabel="% of the capacity", ylim=(0, 100))
    axes.set_title(f"Highest load with a 99th percentile of {found['bound_ms']:g} ms", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="lower right")


def _slow(axes: Any, slow: dict[str, Any]) -> None:
    speed = max(row["speed"] for row in slow["rows"])  # the other is too slow for some policies
    shown = [row for row in slow["rows"] if row["speed"] == speed]
    sizes = sorted({row["servers"] for row in shown})
    width = 0.8 / len(COLOURS)
    for number, (policy, colour) in enumerate(COLOURS.items()):
        rows = {row["servers"]: row for row in shown if row["policy"] == policy}
        positions = [index + (number - (len(COLOURS) - 1) / 2) * width for index in range(len(sizes))]
        axes.bar(positions, [rows[size]["p99_ms"] for size in sizes], width, color=colour, label=policy)
    axes.set_xticks(range(len(sizes)), [str(size) for size in sizes])
    axes.set(xlabel="servers, each on one core", ylabel="99th percentile, ms")
    axes.set_title(f"One server at {100 * speed:g} % of the speed, load {100 * slow['load']:g} %", fontsize=10)
    axes.grid(alpha=0.3, axis="y")


SERVERS = (1, 4, 16, 64, 256, 1024)  # each on one core
SHARES = (0.5, 0.75)  # of the capacity, the loads that are measured and simulated
CALLS = 60_000  # at least, of a simulation
CALLS_EACH = 600  # at least, of each server
STEPS = 6  # of the search for a load; the last step is 1.6 % of the capacity
BLIND = ("round robin", "at random")  # policies that do not look at the servers
SLOW = (0.7, 0.25)  # speeds of the slow server, in the speed of the others


def percentiles(measured: Measured, factors: Sequence[float], load: float, policy: str) -> tuple[float, float]:
    """Return the 50th and 99th percentile in milliseconds.

    factors: the speeds of servers; load: a share of their capacity
    """
    rate = load * sum(factors) * measured.speed.capacity
    by_factor = {factor: shared(measured.speed, factor) for factor in set(factors)}
    calls = poisson_calls(rate, measured.works, max(CALLS, CALLS_EACH * len(factors)), random.Random(7))
    took = after_warm_up(simulate([by_factor[factor] for factor in factors], calls, POLICIES[policy]))
    return 1000 * percentile(took, 50), 1000 * percentile(took, 99)


def highest_load(measured: Measured, servers: int, policy: str, bound_ms: float) -> float:
    """Return the highest share of the capacity at which the 99th percentile meets a bound."""
    low, high = 0.0, 1.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        meets = percentiles(measured, [1.0] * servers, middle, policy)[1] <= bound_ms
        low, high = (middle, high) if meets else (low, middle)
    return low


def by_size(measured: Measured, bound_ms: float, price: float) -> list[dict[str, Any]]:
    """Return the load that meets the bound, and its cost, for each number of servers and each policy."""
    rows = []
    # Chance splits a Poisson load into Poisson loads, so that each server is as if it were alone.
    alone = highest_load(measured, 1, "at random", bound_ms)
    for servers in SERVERS:
        for policy in POLICIES:
            load = alone if policy == "at random" else highest_load(measured, servers, policy, bound_ms)
            rate = load * servers * measured.speed.capacity
            cost = price * servers * 1e6 / rate / 3600 if rate else float("inf")
            rows.append(
                {
                    "servers": servers,
                    "policy": policy,
                    "load": round(load, 3),
                    "requests_per_s": round(rate, 1),
                    "cost_per_million": round(cost, 4),
                }
            )
    return rows


def with_slow(measured: Measured, load: float) -> list[dict[str, Any]]:
    """Return percentiles at a load, by speed of the slow server, number of servers and policy; None if they grow on."""
    rows = []
    for slow, servers, policy in itertools.product(SLOW, (4, 16, 64), POLICIES):
        factors = [slow, *[1.0] * (servers - 1)]
        overloaded = policy in BLIND and load * sum(factors) / servers >= slow
        found = (None, None) if overloaded else percentiles(measured, factors, load, policy)
        p50, high = (each and round(each, 1) for each in found)
        rows.append({"speed": slow, "servers": servers, "policy": policy, "p50_ms": p50, "p99_ms": high})
    return rows


def against_measurement(measured: Measured) -> list[dict[str, Any]]:
    """Return the measured and the simulated percentiles of one server under a Poisson load."""
    rows = []
    for share, (p50, high) in measured.load_ms.items():
        simulated = percentiles(measured, [1.0], share, "at random")
        rows.append(
            {
                "load": share,
                "p50_ms": p50,
                "p99_ms": high,
                "simulated_p50_ms": round(simulated[0], 1),
                "simulated_p99_ms": round(simulated[1], 1),
            }
        )
    return rows


def main(
    model: Annotated[Path, typer.Argument(help="A bundle.")] = Path("models/en-de"),
    source: Annotated[Path, typer.Option(help="File with sentences, one a line.")] = Path("tests/data/tatoeba.en"),
    bound: Annotated[float, typer.Option(min=1, help="Highest 99th percentile, in milliseconds.")] = 300.0,
    price: Annotated[float, typer.Option(min=0, help="Price of a core for an hour.")] = 0.04,
    load: Annotated[float, typer.Option(min=0.01, max=0.99, help="Load with a slow server.")] = 0.6,
    results: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("bench/results"),
) -> None:
    """Write a results file and a chart."""
    with one_core(model) as address:
        measured = asyncio.run(measure(address, list(read_lines(source)), SHARES))
    facts = {
        "speed": {str(count): round(rate, 1) for count, rate in measured.speed.measured},
        "one_server": against_measurement(measured),
        "bound_ms": bound,
        "price_per_core_hour": price,
        "slow_server": {"load": load, "rows": with_slow(measured, load)},
    }
    draw(save("capacity", by_size(measured, bound, price), results, **facts))


if __name__ == "__main__":
    typer.run(main)
