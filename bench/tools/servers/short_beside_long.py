"""How long a short sentence takes alone and beside sixteen long ones, and what that costs the long ones.

    lingon serve models/en-de &
    python -m lingon.bench.tools.servers.short_beside_long

All of them come from one client, with a beam of 4. The long ones follow each other, so that sixteen are under way.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from lingon import AsyncClient
from lingon.bench.statistics import percentile
from lingon.bench.workloads.sample_sentences import sample_file
from lingon.lines import read_lines

SHORT = "I would like a cup of tea."
LONG = 16  # sentences under way
WORDS = 40  # of a long sentence
BEAM = 4
PAUSE = 0.1  # seconds between two short sentences


@dataclass
class Load:
    """Long sentences that follow each other; done: how many have ended."""

    client: AsyncClient
    done: int = 0

    async def run(self, texts: itertools.cycle[str]) -> None:
        """Translate one sentence after the other, until cancelled."""
        while True:
            await self.client.translate(next(texts), beam_size=BEAM, split_sentences="off", long_text="split")
            self.done += 1


def long_sentences() -> list[str]:
    """Sentences of some forty words, joined from short ones."""
    words = [word for line in read_lines(sample_file("en")) for word in line.rstrip(".?!").lower().split()]
    return [" ".join(words[first : first + WORDS]) + "." for first in range(0, len(words) - WORDS, WORDS)]


async def latencies(client: AsyncClient, seconds: float) -> list[float]:
    """Milliseconds of short sentences, one after the other."""
    found, end = [], time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        await client.translate(SHORT, beam_size=BEAM)
        found.append(1000 * (time.perf_counter() - start))
        await asyncio.sleep(PAUSE)
    return found


async def measure(server: str, seconds: float) -> Table:
    """Return the table of the figures."""
    async with AsyncClient(server) as client:
        await latencies(client, 1.0)
        alone = await latencies(client, seconds)
        load, texts = Load(client), itertools.cycle(long_sentences())
        tasks = [asyncio.create_task(load.run(texts)) for _ in range(LONG)]
        await asyncio.sleep(2.0)
        rates, beside = [], list[float]()
        for with_short in (False, True):
            before, start = load.done, time.perf_counter()
            if with_short:
                beside = await latencies(client, seconds)
            else:
                await asyncio.sleep(seconds)
            rates.append((load.done - before) / (time.perf_counter() - start))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    table = Table("", "short: median ms", "p90 ms", "long sentences/s")
    table.add_row("alone", f"{statistics.median(alone):.1f}", f"{percentile(alone, 90):.1f}", f"{rates[0]:.1f}")
    table.add_row("together", f"{statistics.median(beside):.1f}", f"{percentile(beside, 90):.1f}", f"{rates[1]:.1f}")
    return table


def main(
    server: Annotated[str, typer.Option(help="Address of the server.")] = "127.0.0.1:50051",
    seconds: Annotated[float, typer.Option(min=0.5, help="Seconds of each measurement.")] = 8.0,
) -> None:
    """Print the latency of short sentences and the rate of long ones, alone and together."""
    Console().print(asyncio.run(measure(server, seconds)))


if __name__ == "__main__":
    typer.run(main)
