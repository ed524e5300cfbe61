"""The options of `lingon bench gpu`."""

from __future__ import annotations

from typing import Annotated

import typer

Model = Annotated[
    list[str] | None,
    typer.Option(help="Transformer with random weights: base or big; may be repeated. (default: both)"),
]
Work = Annotated[
    list[str] | None,
    typer.Option(help="Lengths: fixed (25 source, 30 target tokens) or mix; may be repeated. (default: both)"),
]
Engine = Annotated[
    list[str] | None,
    typer.Option(
        help="lingon, lingon-cuda-graphs, transformers, transformers-static, torch-graph or ctranslate2; may be "
        "repeated. (default: all)"
    ),
]
Batch = Annotated[list[int] | None, typer.Option(help="Batch size: 1, 8, 64 or 256; may be repeated. (default: all)")]
Device = Annotated[str, typer.Option(help="cuda, or cpu to rehearse the run.")]
Runs = Annotated[int, typer.Option(help="Measured runs of each engine in each cell.")]
Slow = Annotated[float, typer.Option(help="Seconds: an engine whose run takes longer gets at most 3 runs.")]
Quick = Annotated[
    bool, typer.Option("--quick", help="Try it out: a tiny model, two batch sizes, few runs; some 2 minutes.")
]
