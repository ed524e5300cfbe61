"""The options of `lingon bench decode`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Work = Annotated[
    list[str] | None,
    typer.Option(help="Workload: base (random weights) or shipped (--model); may be repeated. (default: both)"),
]
Engine = Annotated[
    list[str] | None,
    typer.Option(help="lingon, ctranslate2, transformers or optimum; may be repeated. (default: all)"),
]
Batch = Annotated[list[int] | None, typer.Option(help="Batch size: 1, 8, 32 or 128; may be repeated. (default: all)")]
Runs = Annotated[int, typer.Option(help="Measured runs of each engine setting in each cell.")]
Slow = Annotated[float, typer.Option(help="Seconds: a setting whose run takes longer gets at most 3 runs.")]
Sentences = Annotated[int, typer.Option(min=1, help="Sentences of each test set of the workload shipped.")]
Model = Annotated[
    list[Path] | None,
    typer.Option(help="Bundle of the workload shipped; may be repeated. (default: models/en-de)"),
]
TestSet = Annotated[
    list[str] | None,
    typer.Option(
        help="Test set of the workload shipped, SET or SET.PART for the files SET.SOURCE-TARGET.PART.LANGUAGE in "
        "--data; may be repeated. (default: tatoeba and ntrex)"
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(help="Folder with the test sets of the workload shipped. (default: the repository's tests/data)"),
]
Quick = Annotated[
    bool,
    typer.Option("--quick", help="Try it out: a small model, few runs, few sentences; some 5 minutes on 2 cores."),
]
