"""The options of `lingon bench attention-cost`."""

from __future__ import annotations

from typing import Annotated

import typer

Length = Annotated[
    list[int] | None,
    typer.Option(help="Positions of the sequence; may be repeated. (default: the powers of 2 from 16 to 2048)"),
]
Dim = Annotated[int, typer.Option(help="Width of every layer, an even number.")]
Radius = Annotated[int, typer.Option(help="Positions to each side that windowed attention sees.")]
Kernel = Annotated[int, typer.Option(help="Positions that the convolution sees, an odd number.")]
Rounds = Annotated[int, typer.Option(help="Measured rounds; each has all layers in turns.")]
Slow = Annotated[float, typer.Option(help="Seconds: a layer is left out where one call takes longer.")]
Memory = Annotated[float, typer.Option(help="GiB: a layer is left out where it needs more.")]
Threads = Annotated[int, typer.Option(help="Threads of every layer.")]
Quick = Annotated[bool, typer.Option("--quick", help="Try it out: three short lengths, 2 rounds; seconds.")]
