"""The options of `lingon evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ModelArgument = Annotated[
    Path, typer.Argument(help="A checkpoint, a training run or a bundle (models/NAME or models/NAME/VERSION).")
]
TestSourceOption = Annotated[
    Path, typer.Option(metavar="FILE", help="Text to translate, one sentence a line, plain or .gz.")
]
TestTargetOption = Annotated[
    Path, typer.Option(metavar="FILE", help="Reference translations of --source, line by line.")
]
OwnLengthPenaltyOption = Annotated[
    float, typer.Option(min=0.0, help="alpha in the score of a translation, log-probability / length^alpha.")
]
PrecisionOption = Annotated[
    str | None,
    typer.Option(help="Precision of a bundle, such as fp32, fp16 or int8.", show_default="the best one for the device"),
]
LimitOption = Annotated[
    int | None,
    typer.Option(min=1, help="Evaluate only this many sentences from the beginning.", show_default="all"),
]
TranslationsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write the translations to this file, one a line, compressed if it ends in .gz.",
        show_default="not written",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the scores as one JSON object. Default: a table.")]
