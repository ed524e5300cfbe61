"""The verb calibrate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lingon.export.options import PAIR, Files


def calibrate(
    model: Annotated[Path, typer.Argument(help="models/NAME for its highest version, or models/NAME/VERSION.")],
    train_data: Annotated[
        tuple[Path, Path],
        typer.Option(metavar=PAIR, help="Source and target file of the training text; 1,000 pairs or more."),
    ],
    valid_data: Annotated[
        Files,
        typer.Option(
            metavar=PAIR,
            help="Source and target file of text that the model was not trained on, of the kind that it is for; 2,500 "
            "pairs are read. They fit the confidence.",
            show_default="the confidence of the bundle stays",
        ),
    ] = None,
    other_data: Annotated[
        Files,
        typer.Option(
            metavar=PAIR,
            help="The same of other kinds of text, such as news, so that the confidence is low where the model is not "
            "at home; only with --valid-data.",
            show_default="none",
        ),
    ] = None,
) -> None:
    """Write the next version of a bundle with new text data, by which a server judges and mends translations.

    Text data names words that the model translates to themselves, which stand for placeholders, URLs and other strings
    that a translation keeps; it has the usual lengths of translations, profiles of both languages, and the regression
    for the confidence. All other files of the bundle stay as they are.
    """
    from lingon.errors import SettingsError
    from lingon.lines import check_files, read_parallel

    given = [files for files in (train_data, valid_data, other_data) if files]
    check_files(path for files in given for path in files)
    if other_data and not valid_data:
        raise SettingsError("--other-data needs --valid-data: the confidence is fitted to both")
    from lingon.export.text_data.add import CalibrationText, add_text_data

    texts = CalibrationText.of(
        *(read_parallel(*files) if files else () for files in (train_data, valid_data, other_data))
    )
    for files, pairs in ((valid_data, texts.held_out), (other_data, texts.other)):
        if files and not pairs:
            raise SettingsError(f"{files[0]}: has no line with text in both files")
    bundle = add_text_data(model, texts, log=lambda line: typer.echo(line, err=True))
    assert bundle.manifest.text is not None
    typer.echo(
        f"{bundle.folder}: words that translate to themselves: {', '.join(bundle.manifest.text.words) or 'none'}"
    )
