"""The command `python -m chaos`: reliability tests of a real server under load and faults.

This process generates the load and is pinned to its own core; servers run on another core.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lingon.cli.main import UsageError
from lingon.errors import LingonError

if TYPE_CHECKING:
    from chaos.context import Session
    from chaos.verdict.checks import Row

app = typer.Typer(help=__doc__, invoke_without_command=True, add_completion=False)

Model = Annotated[Path, typer.Option(help="models/NAME or models/NAME/VERSION.")]
Results = Annotated[Path, typer.Option(help="Folder for the results.")]
Keep = Annotated[
    Path | None,
    typer.Option(help="Folder for logs and histories (default: a temporary folder, kept only if a case fails)."),
]
MODEL, RESULTS = Path("models/en-de"), Path("bench/results")


@app.callback()
def cases(
    context: typer.Context,
    only: Annotated[str, typer.Option(help="Names of cases, separated by commas (default: all).")] = "",
    quick: Annotated[bool, typer.Option("--quick", help="Run short versions; the results are not saved.")] = False,
    model: Model = MODEL,
    results: Results = RESULTS,
    keep: Keep = None,
) -> None:
    """Run the cases, print their results and merge them into the result file of the day; exit with 1 if one fails."""
    if context.invoked_subcommand is None:
        run_cases(_names(only), model=model, results=results, keep=keep, quick=quick)


@app.command()
def table(
    results: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A result file of a run.")],
) -> None:
    """Print the results as docs/explanation/reliability.md shows them: the number of each verdict, and a table."""
    from chaos.report import read_rows, summary
    from chaos.report import table as as_table

    rows = read_rows(results)
    typer.echo(f"{summary(rows)}\n\n{as_table(rows)}")


@app.command()
def soak(
    minutes: Annotated[float, typer.Option(min=0.1, help="Minutes of mixed traffic.")] = 30.0,
    control_minutes: Annotated[
        float | None,
        typer.Option(min=0.0, help="Minutes of the positive control with a leak (default: half as many); 0 skips it."),
    ] = None,
    model: Model = MODEL,
    results: Results = RESULTS,
    keep: Keep = None,
) -> None:
    """Run mixed traffic and crashing clients for a long time: nothing may grow or be lost; then again with a leak."""
    run_cases(
        ["soak"],
        model=model,
        results=results,
        keep=keep,
        quick=False,
        soak_minutes=minutes,
        control_minutes=minutes / 2 if control_minutes is None else control_minutes,
    )


def run_cases(
    names: list[str],
    *,
    model: Path,
    results: Path,
    keep: Path | None,
    quick: bool,
    soak_minutes: float = 30.0,
    control_minutes: float = 15.0,
) -> None:
    """Run the cases with these names, or all of them without names; ends the program."""
    session = _session(model, keep, quick=quick, soak_minutes=soak_minutes, control_minutes=control_minutes)
    from chaos.report import save, table
    from chaos.verdict.checks import FAIL

    rows = []
    for row in _run(session, names):
        rows.append(row)
        if not quick:
            save([row], results, ["python", "-m", "chaos", *sys.argv[1:]])
    typer.echo(table(rows))
    failed = [row for row in rows if row.verdict == FAIL]
    if keep is None and not failed:
        shutil.rmtree(session.folder)
    else:
        typer.echo(f"logs and histories: {session.folder}", err=True)
    raise typer.Exit(1 if failed else 0)


def _session(model: Path, keep: Path | None, **more: Any) -> Session:
    """The session of a run; this process is pinned to the cores of clients."""
    from chaos.cpu_pinning import CpuPinning

    pinning = CpuPinning.choose()
    os.sched_setaffinity(0, pinning.clients)  # now, because the threads that gRPC starts inherit it
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from chaos.context import Session

    folder = keep or Path(tempfile.mkdtemp(prefix="chaos-"))
    return Session(model=model, folder=folder, pinning=pinning, log=lambda line: typer.echo(line, err=True), **more)


def _run(session: Session, names: list[str]) -> Iterator[Row]:
    """Run the cases with these names, or all of them without names; print the result of each, and yield it."""
    from chaos.case import run
    from chaos.selection import all_cases, chosen

    for which in chosen(all_cases(), names):
        typer.echo(f"{which.name} ...", err=True)
        row = run(which, session)
        typer.echo(f"  {row.verdict}: {row.found}", err=True)
        yield row


def _names(only: str) -> list[str]:
    return [part.strip() for part in only.split(",") if part.strip()]


def main() -> int:
    """Run the command; an error is printed as one line."""
    try:
        code = app(prog_name="python -m chaos", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except LingonError as error:
        typer.echo(f"chaos: error: {error}", err=True)
        return error.exit_code
    except UsageError as error:
        typer.echo(f"chaos: error: {error.format_message()} (see python -m chaos --help)", err=True)
        return 2
    except KeyboardInterrupt:
        return 130
