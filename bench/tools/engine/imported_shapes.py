"""Decoding time of the shapes of published models with random weights: OPUS-MT, and a student of Firefox.

    python -m lingon.bench.tools.engine.imported_shapes

Every sentence has 25 source tokens and exactly 30 target tokens, in greedy search. CTranslate2 has no SSRU cells, so
that the student is compared with the same shape with self-attention. The rounds of all engines alternate; a time is the
median of its rounds. A batch of 8 is also decoded in two halves, each on half of the cores: the better way
of CTranslate2 counts.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from lingon.bench.engines import ctranslate2, lingon
from lingon.bench.engines.base import BenchEngine, Cell, Setting
from lingon.bench.options import shared
from lingon.bench.results_file import results_folder, save
from lingon.bench.workloads.random_weights import Shape
from lingon.bench.workloads.synthetic import TARGET_TOKENS, base_workload
from lingon.bundle import open_bundle
from lingon.machine import usable_cores

OPUS = Shape(vocab=58_101, activation="silu")
STUDENT = Shape(layers=6, decoder_layers=2, decoder_cell="ssru", dim=256, heads=8, ffn=1536)
SHAPES = {"opus": OPUS, "student": STUDENT, "student, self-attention": replace(STUDENT, decoder_cell="attention")}
TINY = {name: replace(shape, dim=64, heads=2, ffn=64, vocab=400) for name, shape in SHAPES.items()}
ENGINES = {"lingon": lingon, "ctranslate2": ctranslate2}
WAYS, PRECISIONS = ((1, 1), (8, 1), (8, 2)), ("fp32", "int8")  # batches, and workers that share one
SENTENCES = 16  # of a round


@dataclass(frozen=True, slots=True)
class Row:
    """A measured cell; ms: milliseconds for each sentence, the median of the rounds."""

    shape: str
    engine: str
    precision: str
    batch: int
    workers: int
    shortlist: bool
    ms: float
    fastest_ms: float


@dataclass(frozen=True, slots=True)
class Entry:
    """A loaded engine and what it decodes."""

    shape: str
    engine: str
    precision: str
    batch: int
    workers: int
    loaded: BenchEngine
    sources: Any
    shortlists: tuple[bool, ...]


def entries(shapes: dict[str, Shape], cache: Path) -> list[Entry]:
    """Write the models and load every engine that is installed and computes them."""
    found = []
    for name, shape in shapes.items():
        workload = base_workload(cache, shape, SENTENCES)
        for engine, module in ENGINES.items():
            if module.unavailable_reason() or (engine != "lingon" and shape.decoder_cell != "attention"):
                continue
            folder = workload.bundle if engine == "lingon" else cache / "ctranslate2" / name.replace(", ", "-")
            module.prepare(open_bundle(workload.bundle), folder)
            listed = (False,) if shape.activation == "silu" else (False, True)  # OPUS-MT has no shortlist
            for precision, (batch, workers) in product(PRECISIONS, WAYS):
                threads = max(usable_cores() // workers, 1)
                setting = Setting(precision=precision, workers=workers, threads=threads)  # type: ignore[arg-type]
                loaded = module.load(folder, setting)
                found.append(Entry(name, engine, precision, batch, workers, loaded, workload.sources, listed))
    return found


def measure(loaded: list[Entry], rounds: int, console: Console) -> list[Row]:
    """Measure all cells, one round of each after the other."""
    cells = [(entry, listed) for entry in loaded for listed in entry.shortlists]
    times: list[list[float]] = [[] for _ in cells]
    with console.status("") as status:
        for number in range(rounds + 1):
            status.update(f"round {number} of {rounds}")
            for (entry, listed), seconds in zip(cells, times, strict=True):
                cell = Cell(workload="base", batch=entry.batch, shortlist=listed, exact_length=TARGET_TOKENS)
                begun = time.perf_counter()
                entry.loaded.translate(entry.sources, cell)
                if number:  # the first round warms up
                    seconds.append((time.perf_counter() - begun) / len(entry.sources) * 1000)
    return [
        Row(
            shape=entry.shape,
            engine=entry.engine,
            precision=entry.precision,
            batch=entry.batch,
            workers=entry.workers,
            shortlist=listed,
            ms=statistics.median(seconds),
            fastest_ms=min(seconds),
        )
        for (entry, listed), seconds in zip(cells, times, strict=True)
    ]


def ratio(rows: list[Row], row: Row) -> float | None:
    """Return how many times as fast Lingon is as CTranslate2; the student is compared with its self-attention twin."""
    twin = row.shape if row.shape == "opus" else "student, self-attention"
    key = (twin, "ctranslate2", row.precision, row.batch, row.shortlist)
    other = [each.ms for each in rows if (each.shape, each.engine, each.precision, each.batch, each.shortlist) == key]
    return min(other) / row.ms if other and row.engine == "lingon" else None


def table(rows: list[Row]) -> Table:
    """Return the cells as a table."""
    drawn = Table(
        "shape", "engine", "precision", "batch", "workers", "shortlist", "ms/sentence", "CTranslate2 / Lingon"
    )
    for row in rows:
        share = ratio(rows, row)
        shown = "" if share is None else f"{share:.2f}"
        listed = "yes" if row.shortlist else "no"
        drawn.add_row(
            row.shape, row.engine, row.precision, str(row.batch), str(row.workers), listed, f"{row.ms:.1f}", shown
        )
    return drawn


def main(
    rounds: Annotated[int, typer.Option(min=1, help="Measured rounds.")] = 9,
    quick: Annotated[bool, typer.Option("--quick", help="Tiny models, to try it out.")] = False,
    cache: Annotated[Path, typer.Option(help="Folder for the models.")] = shared.CACHE,
    results: shared.Results = None,
) -> None:
    """Measure, show the table, and write the results."""
    console = Console()
    rows = measure(entries(TINY if quick else SHAPES, cache.expanduser()), rounds, console)
    console.print(table(rows))
    path = save("imported-shapes", [asdict(row) for row in rows], results_folder(results, quick=quick))
    console.print(f"written: {path}")


if __name__ == "__main__":
    typer.run(main)
