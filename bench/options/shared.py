"""Options that several commands of `lingon bench` have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Results = Annotated[
    Path | None, typer.Option(help="Folder for the results. Default: bench/results, with --quick build/bench.")
]
Cache = Annotated[Path, typer.Option(help="Folder for the models that the benchmark creates.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue a run that was killed.")]
BeamSizes = Annotated[list[int] | None, typer.Option(help="1 or 4; may be repeated. (default: both)")]
Train = Annotated[
    bool, typer.Option("--train/--no-train", help="Train each run to its end, or measure it as far as it is.")
]

CACHE = Path("~/.cache/lingon/bench")
"""The default of Cache."""
