"""The operators that a decoder step may consist of, one by one: does the device have a kernel, is it right, how fast?

    python -m lingon.bench.tools.engine.operators --device cuda

Each graph has one operator, or the few that do its work. Attention and products are repeated in a graph, each reading
the result of the one before, so that the time of one is not that of starting a run. A row without a time has the
reason, for example that the device has no kernel.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from lingon.bench.options import shared
from lingon.bench.results_file import commit, machine, results_folder, save
from lingon.bench.resume import ResumeFile
from lingon.bench.tools.engine.operators import attention, others
from lingon.bench.tools.engine.operators.case import Case, measure, measure_captured
from lingon.serving.runtime.device import CPU, CUDA, cuda_missing

WIDTH = 170  # characters of the table
TIMES = (("us", "reason"), ("captured_us", "captured_reason"))
"""The columns of a row that have a time, and the column that says why it is missing."""
NO_KERNEL = re.compile("Could not find an implementation|does not run")
"""In the messages of ONNX Runtime, and of lingon.serving.runtime.sessions.create if it would run on the CPU."""


def cases(*, quick: bool) -> Iterator[Case]:
    """All cases, or with quick few and small ones."""
    rows = (1, 8) if quick else (1, 8, 64, 256)
    yield from attention.cases(rows, (16,) if quick else (64, 256), (16,) if quick else (32, 128))
    yield from others.cases(rows, 640 if quick else 32_000)


def measured(cases_again: Callable[[], Iterator[Case]], provider: str, resume_file: ResumeFile) -> list[dict[str, Any]]:
    """The rows of all cases, from the resume file or measured now."""
    rows = [_once(f"plain {case.key}", partial(measure, case, provider), resume_file) for case in cases_again()]
    if provider == CUDA:
        for case, row in zip(cases_again(), rows, strict=True):
            row |= _once(f"captured {case.key}", partial(measure_captured, case), resume_file)
    return rows


def _once(key: str, work: Callable[[], dict[str, Any]], resume_file: ResumeFile) -> dict[str, Any]:
    found: dict[str, Any] | None = resume_file.get(key)
    if found is None:
        found = work()
        resume_file.add(key, found)
    return found


def table_of(rows: Sequence[dict[str, Any]]) -> Table:
    """The table of all rows."""
    table = Table("question", "variant", "type", "sizes", "us", "us in a CUDA graph", "largest error")
    for row in rows:
        times = (_time(row[us], row[reason]) for us, reason in TIMES)
        error = "" if row["error"] is None else f"{row['error']:.1e}"
        table.add_row(row["question"], row["variant"], row["type"], row["sizes"], *times, error)
    return table


def _time(us: float | None, reason: str) -> str:
    """A time, or in a word why there is none."""
    if us is not None:
        return f"{us:,.1f}"
    return "no kernel" if NO_KERNEL.search(reason) else "failed" if reason else ""


def reasons_of(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each variant, type and reason why it was not measured."""
    missing = dict.fromkeys(
        (row["variant"], row["type"], how, row[name])
        for row in rows
        for (_, name), how in zip(TIMES, ("", " in a CUDA graph"), strict=True)
        if row[name]
    )
    return [f"{variant}, {kind}{how}: {reason}" for variant, kind, how, reason in missing]


def main(
    device: Annotated[str, typer.Option(help="cuda, or cpu to rehearse.")] = "cuda",
    quick: Annotated[bool, typer.Option("--quick", help="Few and small arrays.")] = False,
    results: Annotated[Path | None, typer.Option(help="Folder for the results.")] = None,
    resume: shared.Resume = False,
) -> None:
    """Measure all operators, print a table and write DATE-operators.json."""
    if device not in ("cuda", "cpu"):
        raise typer.BadParameter(f"device must be cuda or cpu, got {device!r}")
    if device == "cuda" and (missing := cuda_missing()):
        raise typer.BadParameter(f"device cuda: {missing}")
    provider, console = CUDA if device == "cuda" else CPU, Console()
    console.width = max(console.width, WIDTH)
    folder = results_folder(results, quick=quick)
    head = {"commit": commit(), "machine": machine(), "device": device, "quick": quick}
    resume_file = ResumeFile(folder / "operators.part.jsonl", head, resume=resume)
    rows = measured(partial(cases, quick=quick), provider, resume_file)
    console.print(table_of(rows))
    for line in reasons_of(rows):
        console.print(line, highlight=False, soft_wrap=True)
    path = save("operators", rows, folder, device=device)
    resume_file.delete()
    typer.echo(f"written: {path}")


if __name__ == "__main__":
    typer.run(main)
