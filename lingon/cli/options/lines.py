"""Options of the verbs that work line by line: `translate`, `score` and `align`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

PairSourceOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Source texts, one a line, plain or .gz.", show_default="SOURCE<tab>TARGET lines"
    ),
]
PairTargetOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Translations of --source, line by line.", show_default="standard input"),
]
BatchSizeOption = Annotated[int, typer.Option(min=1, max=1024, help="Largest number of lines in one request.")]
JsonLinesOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON object for each line. Default: plain text.")
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        metavar="FILE",
        help="Write the results to this file, compressed if it ends in .gz. They are written to FILE.part, which is "
        "renamed to FILE at the end; after an error FILE is unchanged and FILE.part holds the lines so far.",
        show_default="standard output",
    ),
]
AlignmentOption = Annotated[
    bool,
    typer.Option(
        "--alignment",
        help="Add a column that aligns words: i-j means that source word i became target word j, from 0. "
        "Default: no such column.",
    ),
]
