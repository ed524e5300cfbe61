"""Options that several commands of the benchmarks have, and the check of values that must be among a few."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from lingon.errors import SettingsError

Results = Annotated[
    Path | None, typer.Option(help="Folder for the results. Default: bench/results, with --quick build/bench.")
]
ToolResults = Annotated[Path | None, typer.Option(help="Folder for the results. Default: not written.")]
Cache = Annotated[Path, typer.Option(help="Folder for the models that the benchmark creates.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue a run that was killed.")]
BeamSizes = Annotated[list[int] | None, typer.Option(help="1 or 4; may be repeated. (default: both)")]
Train = Annotated[
    bool, typer.Option("--train/--no-train", help="Train each run to its end, or measure it as far as it is.")
]

CACHE = Path("~/.cache/lingon/bench")
"""The default of Cache."""


def check_choice(option: str, values: Iterable[object], offered: Iterable[object]) -> None:
    """Raise SettingsError for the first value that is not among the offered ones."""
    known = list(offered)
    for value in values:
        if value not in known:
            raise SettingsError(f"{option} must be one of {', '.join(map(str, known))}, got {value!r}")


def results_folder(given: Path | None, *, quick: bool) -> Path:
    """Return the folder for the results of a run. A trial run writes none beside the kept results."""
    return given or Path("build/bench" if quick else "bench/results")
