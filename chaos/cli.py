"""The command `python -m chaos`: the tests of what is promised under load and faults, on a real server.

The process that generates the load is this one, pinned to a core of its own; servers run on another.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from lingon.cli.main import UsageError
from lingon.errors import LingonError, SettingsError

app = typer.Typer(help=__doc__, invoke_without_command=True, add_completion=False)

Model = Annotated[Path, typer.Option(help="models/NAME or models/NAME/VERSION.")]
Results = Annotated[Path, typer.Option(help="Folder for the results.")]
Keep = Annotated[Path | None, typer.Option(help="Folder for logs and histories (default: kept where a case fails).")]
MODEL, RESULTS = Path("models/en-de"), Path("bench/results")


@app.callback()
def cases(
    context: typer.Context,
    only: Annotated[str, typer.Option(help="Numbers of cases, with commas between them (default: all).")] = "",
    quick: Annotated[
        bool, typer.Option("--quick", help="Short runs, to try it out; what they find is not saved.")
    ] = False,
    model: Model = MODEL,
    results: Results = RESULTS,
    keep: Keep = None,
) -> None:
    """Run the cases, print what they found and merge it into the results of the day; exit code 1 where one fails."""
    if context.invoked_subcommand is None:
        run_cases(_numbers(only), model=model, results=results, keep=keep, quick=quick)


@app.command()
def table(
    results: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A file that was written by a run.")],
    most: Annotated[int, typer.Option(min=1, help="Characters of a figure.")] = 130,
) -> None:
    """Print results as README has them: how many of each verdict, and the table."""
    from chaos.report import read, summary
    from chaos.report import table as as_table

    rows = read(results)
    typer.echo(f"{summary(rows)}\n\n{as_table(rows, most)}")


@app.command()
def soak(
    minutes: Annotated[float, typer.Option(min=0.1, help="Of mixed traffic.")] = 30.0,
    control_minutes: Annotated[
        float | None, typer.Option(min=0.0, help="Of the same with a leak planted (default: half); 0 is not at all.")
    ] = None,
    model: Model = MODEL,
    results: Results = RESULTS,
    keep: Keep = None,
) -> None:
    """Mixed traffic for long, with clients that crash: nothing may grow or be lost; then with a planted leak."""
    run_cases(
        [36],
        model=model,
        results=results,
        keep=keep,
        quick=False,
        soak_minutes=minutes,
        control_minutes=minutes / 2 if control_minutes is None else control_minutes,
    )


def run_cases(
    numbers: list[int],
    *,
    model: Path,
    results: Path,
    keep: Path | None,
    quick: bool,
    soak_minutes: float = 30.0,
    control_minutes: float = 15.0,
) -> None:
    """Run cases by their numbers, all without any; ends the program."""
    from chaos.cpu_pinning import Cast

    cast = Cast.choose()
    os.sched_setaffinity(0, cast.clients)  # before gRPC starts its threads
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from chaos.case import all_cases, chosen, run
    from chaos.checks import FAIL
    from chaos.context import Session
    from chaos.report import save, table

    folder = keep or Path(tempfile.mkdtemp(prefix="chaos-"))
    session = Session(
        model, folder, quick, cast, lambda line: typer.echo(line, err=True), soak_minutes, control_minutes
    )
    rows = []
    for which in chosen(all_cases(), numbers):
        typer.echo(f"{which.title} ...", err=True)
        rows.append(run(which, session))
        typer.echo(f"  {rows[-1].verdict}: {rows[-1].figure}", err=True)
        if not quick:
            save(rows[-1:], results, sys.argv[1:])
    typer.echo(table(rows))
    failed = [row for row in rows if row.verdict == FAIL]
    if keep is None and not failed:
        shutil.rmtree(folder)
    else:
        typer.echo(f"logs and histories: {folder}", err=True)
    raise typer.Exit(1 if failed else 0)


def _numbers(only: str) -> list[int]:
    try:
        return [int(part) for part in only.split(",") if part.strip()]
    except ValueError:
        raise SettingsError(f"--only takes numbers with commas between them, got {only!r}") from None


def main() -> int:
    """The command; errors are one line."""
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
