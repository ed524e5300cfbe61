"""Target tokens a second of a running server with 1 and 32 concurrent requests, greedy and beam 4.

    python -m lingon.bench.tools.servers.concurrency --server 127.0.0.1:50051

Every sentence is one request; a client sends its next request when it has the answer to the last one. The cells are
measured in turns over several rounds, of which the first is not counted; the table shows medians.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from lingon import AsyncClient
from lingon.bench.results_file import save
from lingon.lines import read_lines

CELLS = [(concurrent, beam_size) for beam_size in (1, 4) for concurrent in (1, 32)]


async def run_cell(client: AsyncClient, texts: list[str], concurrent: int, beam_size: int) -> dict[str, Any]:
    """Translate texts, `concurrent` at a time; returns rates a second and latencies in milliseconds."""
    remaining, tokens, latencies = iter(texts), 0, []

    async def worker() -> None:
        nonlocal tokens
        for text in remaining:
            start = time.perf_counter()
            result = await client.translate(text, beam_size=beam_size, split_sentences="off", guard="off")
            latencies.append(1000 * (time.perf_counter() - start))
            tokens += result.target_tokens

    start = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(concurrent)))
    seconds = time.perf_counter() - start
    return {
        "tokens_per_s": tokens / seconds,
        "sentences_per_s": len(texts) / seconds,
        "p50_ms": statistics.median(latencies),
        "p99_ms": statistics.quantiles(latencies, n=100)[98],
    }


async def measure(server: str, texts: list[str], rounds: int) -> list[dict[str, Any]]:
    """Measure all cells in turns; return the median of each figure over the rounds."""
    found: dict[tuple[int, int], list[dict[str, Any]]] = {cell: [] for cell in CELLS}
    async with AsyncClient(server) as client:
        for number in range(rounds + 1):
            for cell in CELLS:
                part = texts if cell[0] > 1 else texts[: max(len(texts) // 5, 1)]
                figures = await run_cell(client, part, *cell)
                if number:
                    found[cell].append(figures)
    return [
        {
            "concurrent": concurrent,
            "beam_size": beam_size,
            "rounds": rounds,
            **{name: round(statistics.median(run[name] for run in runs), 2) for name in runs[0]},
        }
        for (concurrent, beam_size), runs in found.items()
    ]


def main(
    server: Annotated[str, typer.Option(help="HOST:PORT of a running server.")] = "127.0.0.1:50051",
    source: Annotated[Path, typer.Option(help="File with sentences, one a line.")] = Path("tests/data/tatoeba.en"),
    rounds: Annotated[int, typer.Option(min=1, help="Measured rounds.")] = 5,
    results: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("bench/results"),
) -> None:
    """Measure a running server."""
    rows = asyncio.run(measure(server, list(read_lines(source)), rounds))
    table = Table("concurrent", "beam", "tokens/s", "sentences/s", "p50 ms", "p99 ms")
    for row in rows:
        names = ("concurrent", "beam_size", "tokens_per_s", "sentences_per_s", "p50_ms", "p99_ms")
        table.add_row(*(f"{row[name]:,.1f}" if isinstance(row[name], float) else str(row[name]) for name in names))
    Console().print(table)
    typer.echo(f"written: {save('concurrency', rows, results)}")


if __name__ == "__main__":
    typer.run(main)
