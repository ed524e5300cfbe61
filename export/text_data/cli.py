"""The verb calibrate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def calibrate(
    model: Annotated[Path, typer.Argument(help="models/NAME for its highest version, or models/NAME/VERSION.")],
    train_data: Annotated[
        tuple[Path, Path],
        typer.Option(help="Source and target file of the training text, or of text of its kind; plain or .gz."),
    ],
) -> None:
    """Write the next version of a bundle with text data, which exports of older versions of Lingon lack.

    Text data names words that the model translates to themselves. A server lets them stand for placeholders, URLs and
    other strings that a translation keeps. All other files of the bundle stay as they are.
    """
    from lingon.export.text_data.add import add_text_data
    from lingon.lines import read_parallel

    bundle = add_text_data(model, read_parallel(*train_data))
    assert bundle.manifest.text is not None
    typer.echo(
        f"{bundle.folder}: words that translate to themselves: {', '.join(bundle.manifest.text.words) or 'none'}"
    )
