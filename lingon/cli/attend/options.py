"""The options of `lingon attend`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

TextArgument = Annotated[str, typer.Argument(help="A text.")]
TranslationArgument = Annotated[
    str | None, typer.Argument(help="A translation of it.", show_default="that of the model")
]
KindOption = Annotated[
    Literal["cross", "encoder", "decoder"],
    typer.Option(help="Attention of the target to the source, or self-attention of the encoder or the decoder."),
]
LayerOption = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Layer, from 0.",
        show_default="the last one; for cross-attention the heads from which the model makes alignments",
    ),
]
HeadOption = Annotated[int | None, typer.Option(min=0, help="Head, from 0.", show_default="the mean of the heads")]
MeanOption = Annotated[
    bool,
    typer.Option("--mean", help="Show the mean of all heads of the layer. Default: that of the heads for alignments."),
]
GridOption = Annotated[
    bool,
    typer.Option(
        "--grid",
        help="Show all layers and heads, or those of --layer or --head; with --mean the means of all layers. "
        "Default: one matrix.",
    ),
]
PiecesOption = Annotated[
    bool,
    typer.Option("--pieces", help="Show a row or column for each piece of the vocabulary. Default: one for each word."),
]
ImageOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        metavar="FILE",
        help="Write an image to this file, whose name ends in .png or .svg.",
        show_default="text on standard output",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the numbers as one JSON object. Default: a picture.")]
