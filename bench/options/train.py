"""The options of `lingon bench train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Config = Annotated[Path, typer.Argument(help="Configuration of the training run to measure.")]
Tokenizer = Annotated[Path, typer.Option(help="Bundle or folder with the sentencepiece model.")]
Data = Annotated[
    Path | None,
    typer.Option(
        help="Folder with tatoeba.en-de.train.{en,de}.gz (default: the repository's 500 test pairs, repeated)."
    ),
]
Rounds = Annotated[int, typer.Option(min=1, help="Measured rounds; each round runs --updates of every loop.")]
Updates = Annotated[int, typer.Option(min=1, help="Updates of a loop in a round.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads of every loop (default: the number of cores).")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda. On cuda both loops compute in bf16. (default: auto)")]
Preset = Annotated[str | None, typer.Option(help="Preset of the model (default: that of CONFIG, on cuda base).")]
BatchTokens = Annotated[
    int | None,
    typer.Option(min=1, help="Padded tokens of an update, on each side (default: of CONFIG, on cuda 32768)."),
]
Results = Annotated[Path, typer.Option(help="Folder for the results.")]
