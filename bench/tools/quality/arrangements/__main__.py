"""Whether strings that are kept stay whole, and tags around them, in all arrangements and formats, in this process.

    python -m lingon.bench.tools.quality.arrangements models/en-de models/en-fr --cases 200000

Each form of strings is put into each arrangement, in each format, greedy and with a beam. Prints how many of the
translations have a fault, by arrangement, by form and by format, and the first ones of each kind.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from lingon.bench.results_file import machine, save
from lingon.bench.resume import ResumeFile
from lingon.bench.tools.quality.arrangements.run import Batch, batches, summed
from lingon.serving.in_process import LocalTranslator

RESUMED = Path("build/bench/arrangements.jsonl")
WIDTH = 140  # characters of the tables
SHOWN = 60  # faults that are printed


def table_of(rows: Sequence[dict[str, Any]]) -> Table:
    """Return a table with a column for each key."""
    table = Table(*dict.fromkeys(key for row in rows for key in row))
    for row in rows:
        table.add_row(*map(str, row.values()))
    return table


def main(
    models: Annotated[list[Path], typer.Argument(help="Bundles, one for each pair.")],
    cases: Annotated[int, typer.Option(min=1, help="Cases, at least.")] = 200_000,
    seed: Annotated[int, typer.Option(help="Of the random strings and words.")] = 0,
    every: Annotated[int, typer.Option(min=1, help="Of so many cases, one is tried, as a trial run.")] = 1,
    resume: Annotated[bool, typer.Option(help=f"Go on with a run that was ended; it is in {RESUMED}.")] = False,
    results: Annotated[Path | None, typer.Option(help="Folder for the results. Default: not written.")] = None,
) -> None:
    """Print, and save if asked for, how many cases have a fault."""
    head = {"models": list(map(str, models)), "cases": cases, "seed": seed, "every": every, "machine": machine()}
    file = ResumeFile(RESUMED, head, resume=resume)
    records = list[dict[str, Any]]()
    for model in models:
        with LocalTranslator(model) as translator:
            records += _measured(translator, model.name, cases // len(models), batches(seed), every, file)
    rows = summed(records)
    faults = [fault for record in records for fault in record["faults"]]
    console = Console(width=WIDTH)
    for name, found in rows.items():
        console.print(name)
        console.print(table_of(found))
    for fault in faults[:SHOWN]:
        typer.echo(str(fault))
    if results is not None:
        (total,) = rows.pop("total")
        saved = [{"by": name, **row} for name, found in rows.items() for row in found]
        path = save("arrangements", [total, *saved], results, seed=seed, faults=faults)
        typer.echo(f"written: {path}")
    file.delete()


def _measured(
    translator: LocalTranslator, model: str, cases: int, batches: Iterator[Batch], every: int, file: ResumeFile
) -> list[dict[str, Any]]:
    """Return the records of a model, those of an earlier run from its file; they have so many cases, or some more."""
    records, done, began, known = list[dict[str, Any]](), 0, time.monotonic(), 0
    for batch in batches:
        key = f"{model} {batch.key}"
        if (record := file.get(key)) is None:
            record = batch.measured(translator, model, every)
            file.add(key, record)
        else:
            known += record["cases"]
        records.append(record)
        done += record["cases"]
        rate = (done - known) / (time.monotonic() - began)
        faults = sum(len(each["faults"]) for each in records)
        typer.echo(f"{model}: {done:,} of {cases:,} cases, {faults} with a fault, {rate:.0f} a second", err=True)
        if done >= cases:
            break
    return records


if __name__ == "__main__":
    typer.run(main)
