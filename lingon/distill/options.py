"""The options of `lingon distill`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lingon.distill.choice import Choice

TextFilesOption = Annotated[
    list[Path],
    typer.Option(metavar="FILE", help="Text to translate, one a line, plain or .gz; may be given several times."),
]
FolderOption = Annotated[Path, typer.Option(help="Folder for the corpus; a run that was ended goes on from it.")]
HumanTranslationsOption = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        help="Human translations of each --source, which --choose closest needs.",
        show_default="none",
    ),
]
NumHypothesesOption = Annotated[
    int | None,
    typer.Option(
        "--num-hypotheses",
        "--n-best",
        min=1,
        help="Translations of each text, at most --beam-size.",
        show_default="1, else --beam-size",
    ),
]
ChooseOption = Annotated[
    Choice,
    typer.Option(
        help="Which translations become training pairs: the best one, all of --num-hypotheses, or the one that is "
        "closest to a human translation by chrF."
    ),
]

WholeOption = Annotated[
    bool,
    typer.Option(
        "--whole",
        help="The teacher reads each text as it is: none is split, no string is kept, numbers alone are read too.",
    ),
]
