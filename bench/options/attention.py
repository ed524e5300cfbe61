"""The options of `lingon bench attention`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

System = Annotated[
    list[str] | None,
    typer.Option(
        help="rnnenc, rnnsearch, luong-global, luong-local, luong-monotonic, transformer, or transformer-window, "
        "-additive, -rotary or -linear; may be repeated. (default: all, with --quick rnnenc and transformer)"
    ),
]
Corpus = Annotated[
    list[str] | None,
    typer.Option(help="multi30k or tatoeba; may be repeated. (default: both, with --quick multi30k)"),
]
Data = Annotated[Path, typer.Option(help="Folder with the files of the corpora, CORPUS.en-de.PART.LANGUAGE.gz.")]
Configs = Annotated[Path, typer.Option(help="Folder with the configs of the systems.")]
Steps = Annotated[
    int | None,
    typer.Option(help="Updates of each training. (default: 1200, 12 to 15 minutes on one core; with --quick 12)"),
]
Lengths = Annotated[
    bool,
    typer.Option(
        "--lengths/--no-lengths",
        help="Train rnnenc, rnnsearch and transformer twice more, on short texts, for BLEU by length.",
    ),
]
Work = Annotated[
    Path | None,
    typer.Option(
        help="Folder for runs, bundles and scores. What is there is not made again. "
        "Default: build/bench/attention, with --quick build/bench/attention-quick."
    ),
]
Device = Annotated[
    str, typer.Option(help="Device of the trainings: auto, cpu or cuda. Everything else runs on the CPU.")
]
Quick = Annotated[bool, typer.Option("--quick", help="Try it out: tiny models on sample sentences; some 10 seconds.")]
