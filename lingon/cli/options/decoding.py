"""Options of decoding and of texts that several verbs have."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class TextFormat(StrEnum):
    """How the input is written."""

    PLAIN = "plain"
    HTML = "html"
    XML = "xml"
    PIECES = "pieces"


class GuardChoice(StrEnum):
    """What is done about translations that are suspect."""

    OFF = "off"
    WARN = "warn"
    RETRY = "retry"
    REFUSE = "refuse"


SourceOption = Annotated[
    str | None,
    typer.Option("--source", "--source-language", help="Language of the texts, as en.", show_default="the model's"),
]
DetectedSourceOption = Annotated[
    str | None,
    typer.Option(
        "--source",
        "--source-language",
        help="Language of the texts, such as en; auto detects it for each text, and leaves one that is in --target as "
        "it is.",
        show_default="the model's",
    ),
]
SameLanguageOption = Annotated[
    bool,
    typer.Option(
        "--same-language",
        help="With --source auto: the texts are in one language, and those beside a text tell it too, of each batch "
        "(--batch-size). Default: each text tells its own.",
    ),
]
TargetOption = Annotated[
    str | None,
    typer.Option(
        "--target",
        "--target-language",
        help="Language of the translations, such as de.",
        show_default="the model's",
    ),
]

SourceLanguageOption = Annotated[
    str | None, typer.Option(help="Language of the sources, such as en.", show_default="the model's")
]
TargetLanguageOption = Annotated[
    str | None, typer.Option(help="Language of the targets, such as de.", show_default="the model's")
]
"""Where --source and --target are texts."""

MAX_BEAM_SIZE = 128
"""Of any bundle: the rule of lingon.bundle.BeamSize, which takes long to import. Most bundles allow less."""

BeamSizeOption = Annotated[
    int | None,
    typer.Option(min=1, max=MAX_BEAM_SIZE, help="Beam size; 1 is greedy search.", show_default="the model's"),
]
OwnBeamSizeOption = Annotated[int, typer.Option(min=1, max=MAX_BEAM_SIZE, help="Beam size; 1 is greedy search.")]
"""With a default of the verb's own."""

LengthPenaltyOption = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="alpha in the score of a translation, log-probability / length^alpha.",
        show_default="the model's",
    ),
]
MaxOutputTokensOption = Annotated[
    int | None,
    typer.Option(min=1, help="Largest number of tokens in a translation.", show_default="the model's bound"),
]
KeepOption = Annotated[
    list[str] | None,
    typer.Option(
        help="String that translations keep as it is, such as a name of a product; may be given several times.",
        metavar="STRING",
        show_default="none",
    ),
]
GuardOption = Annotated[
    GuardChoice | None,
    typer.Option(
        help="What is done about a translation that is empty, loops, or has the wrong language or length: nothing, "
        "a warning, a second try, or an error in its place.",
        show_default="retry with --beam-size 1, else warn",
    ),
]
OwnDeviceOption = Annotated[str, typer.Option(help="Device: auto, cpu or cuda.")]
"""Of a verb that needs no server."""

ShortlistOption = Annotated[
    bool | None,
    typer.Option(
        help="Restrict the target vocabulary to pieces that fit the source, which is faster.",
        show_default="the model's",
    ),
]
