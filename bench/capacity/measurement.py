"""Measures one server on one core: its speed with n sentences at once, the work of sentences, and a Poisson load."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lingon import AsyncClient
from lingon.bench.capacity.queues import Speed
from lingon.bench.serve.load.jobs import arrivals
from lingon.bench.serve.servers.processes import serving
from lingon.bench.statistics import percentile

AT_ONCE = (1, 2, 4, 8, 16, 32, 64)  # sentences; the last is a full batch
SECONDS = 4.0  # of each measurement
ROUNDS = 3  # the best one counts: others of a shared machine only slow a server down


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
    """Serve a model on the first usable core, with this process on the others; yields the address."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[1:] or cores)
    command = [sys.executable, "-m", "lingon", "serve", str(model), "--port", "0", "--metrics-port", "0"]
    with serving([*command, "--engines", "1", "--threads", "1"], frozenset(cores[:1])) as server:
        yield server.address


async def measure(
    address: str, texts: Sequence[str], shares: Sequence[float], seconds: float = SECONDS, rounds: int = ROUNDS
) -> Measured:
    """Measure a server; shares: of its capacity, the Poisson loads to offer."""
    async with AsyncClient(address) as client:
        results = await client.translate(list(texts[:256]), beam_size=1)
        tokens = [result.target_tokens for result in results]
        await _closed(client, texts, AT_ONCE[-1], seconds)  # warms up
        best = dict.fromkeys(AT_ONCE, 0.0)
        for _ in range(rounds):
            for count in AT_ONCE:
                best[count] = max(best[count], await _closed(client, texts, count, seconds))
        mean = sum(tokens) / len(tokens)
        speed = Speed(tuple(best.items()))
        loads = {}
        for share in shares:
            found = [await _open(client, texts, share * speed.capacity, 2 * seconds, seed) for seed in range(rounds)]
            loads[share] = min(found, key=lambda pair: pair[1])
    return Measured(speed, [each / mean for each in tokens], loads)


async def _closed(client: AsyncClient, texts: Sequence[str], at_once: int, seconds: float) -> float:
    """Sentences a second of callers that wait for their answers, after half a second."""
    start, count = time.perf_counter(), 0

    async def caller(first: int) -> None:
        nonlocal count
        place = first
        while (now := time.perf_counter() - start) < seconds:
            await client.translate(texts[place % len(texts)], beam_size=1)
            place += at_once
            count += now > 0.5

    await asyncio.gather(*(caller(first) for first in range(at_once)))
    return count / (time.perf_counter() - start - 0.5)


async def _open(
    client: AsyncClient, texts: Sequence[str], rate: float, seconds: float, seed: int
) -> tuple[float, float]:
    """The 50th and 99th percentile in milliseconds of a Poisson load, counted from when a call was due."""
    took: list[float] = []
    start = time.perf_counter() + 0.05

    async def call(due: float, text: str) -> None:
        await client.translate(text, beam_size=1)
        took.append(1000 * (time.perf_counter() - start - due))

    tasks = []
    for arrival in arrivals(rate, seconds, len(texts), seed):
        await asyncio.sleep(max(start + arrival.due - time.perf_counter(), 0))
        tasks.append(asyncio.create_task(call(arrival.due, texts[arrival.text])))
    await asyncio.gather(*tasks)
    return round(percentile(took, 50), 1), round(percentile(took, 99), 1)
