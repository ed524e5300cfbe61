"""The verb `attend`: shows which source words a translation attends to, in the terminal, as an image or as numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lingon.cli.backend import BackendOptions
from lingon.cli.options import SourceLanguageOption, TargetLanguageOption, with_option_groups

if TYPE_CHECKING:
    from lingon.cli.attention import Picture

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
MatricesJsonOption = Annotated[
    bool, typer.Option("--json", help="Print the numbers as one JSON object. Default: a picture.")
]


EXTRA = "plot"  # installs what draws images


@with_option_groups
def attend(
    source: TextArgument,
    target: TranslationArgument = None,
    source_language: SourceLanguageOption = None,
    target_language: TargetLanguageOption = None,
    of: KindOption = "cross",
    layer: LayerOption = None,
    head: HeadOption = None,
    mean: MeanOption = False,
    grid: GridOption = False,
    pieces: PiecesOption = False,
    output_file: ImageOption = None,
    as_json: MatricesJsonOption = False,
    *,
    backend: BackendOptions,
) -> None:
    """Show which words a translation attends to. A text without a translation is first translated by the same model.

    A word of the source has the sum of the weights of its pieces, a word of the target the mean of its pieces.
    """
    from lingon.cli.attention import WantedMatrices, ask
    from lingon.cli.attention import as_json as to_json
    from lingon.errors import SettingsError

    wanted = WantedMatrices(kind=of, layer=layer, head=head, mean=mean, grid=grid, pieces=pieces)
    if output_file is not None:
        if as_json:
            raise SettingsError(f"--output {output_file} is an image; leave out --json")
        _check_image(output_file)
    picture, shown_target = ask(backend, (source, target), wanted, (source_language, target_language))
    if output_file is not None:
        _write_image(picture, output_file)
    elif as_json:
        _print(to_json(picture, source, shown_target))
    else:
        _print(_as_text(picture))


def _check_image(path: Path) -> None:
    """Raise before the model runs what would fail after it: a wrong name, a missing folder, a missing package."""
    from lingon.cli.output import check_output
    from lingon.errors import SettingsError
    from lingon.extras import name_missing_extra

    if path.suffix not in (".png", ".svg"):
        raise SettingsError(f"--output {path}: the name must end in .png or .svg")
    check_output(path)
    with name_missing_extra("lingon attend --output", [EXTRA]):
        import matplotlib  # noqa: F401


def _write_image(picture: Picture, path: Path) -> None:
    from lingon.cli.attention_image import draw
    from lingon.files import write_bytes

    write_bytes(path, draw(picture, path.suffix[1:]))


def _as_text(picture: Picture) -> str:
    """Return the picture for this terminal; without colours if standard output is not one, or with NO_COLOR."""
    import os

    from rich.console import Console

    from lingon.cli.attention_text import Screen, draw

    console = Console(highlight=False)
    bounded = console.is_terminal or "COLUMNS" in os.environ
    coloured = console.is_terminal and console.color_system is not None and not console.no_color
    screen = Screen(console.width if bounded else 10_000, coloured)
    with console.capture() as captured:
        for line in draw(picture, screen):
            console.print(line, soft_wrap=True)
    return captured.get().rstrip("\n")


def _print(text: str) -> None:
    """Print text as UTF-8, whatever the encoding of the terminal is."""
    from lingon.cli.output import writing

    with writing(None) as file:
        file.write(f"{text}\n".encode())
        file.flush()
