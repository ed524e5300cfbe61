"""The options of `lingon bench multi30k`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Pair = Annotated[
    list[str] | None,
    typer.Option(help="Language pair, en-de or en-fr; may be repeated. (default: both, with --quick en-de)"),
]
Configs = Annotated[Path, typer.Option(help="Folder with a config for each pair, PAIR.toml.")]
Work = Annotated[
    Path | None,
    typer.Option(
        help="Folder for a run of each pair, WORK/PAIR, and for translations. A run that is there goes on from its "
        "last checkpoint. Default: build/bench/multi30k, with --quick build/bench/multi30k-quick."
    ),
]
Quick = Annotated[
    bool, typer.Option("--quick", help="Try it out: a tiny model on sample sentences, 12 updates; seconds.")
]
