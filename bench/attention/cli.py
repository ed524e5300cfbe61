"""The command `lingon bench attention-cost`; it imports heavy modules only when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def attention_cost(
    length: Annotated[
        list[int] | None,
        typer.Option(help="Positions of the sequence; may be repeated. (default: the powers of 2 from 16 to 2048)"),
    ] = None,
    dim: Annotated[int, typer.Option(help="Width of every layer, an even number.")] = 64,
    radius: Annotated[int, typer.Option(help="Positions to each side that windowed attention sees.")] = 16,
    kernel: Annotated[int, typer.Option(help="Positions that the convolution sees, an odd number.")] = 3,
    rounds: Annotated[int, typer.Option(help="Measured rounds; each has all layers in turns.")] = 7,
    slow: Annotated[float, typer.Option(help="Seconds: a layer is left out where one call takes longer.")] = 5.0,
    memory: Annotated[float, typer.Option(help="GiB: a layer is left out where it needs more.")] = 2.0,
    threads: Annotated[int, typer.Option(help="Threads of every layer.")] = 1,
    results: Annotated[
        Path | None, typer.Option(help="Folder for the results. Default: bench/results, with --quick build/bench.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Try it out: three short lengths, 2 rounds; seconds.")] = False,
) -> None:
    """Measure time and memory of attention and other sequence layers as the length grows, next to the theory.

    The layers: self-attention with its matrix and fused, windowed and linear attention, a fully connected layer over
    the whole sequence, a convolution and a GRU. Also draws the costs, and the sinusoidal positional encoding.
    """
    from rich.console import Console

    from lingon.bench.attention.measure import CostOptions, growth, measure
    from lingon.bench.attention.report import WIDTH, draw, draw_positions, left_out_lines, tables
    from lingon.bench.results_file import results_folder, save

    trial = CostOptions.quick() if quick else CostOptions()
    options = CostOptions(
        lengths=tuple(length or trial.lengths),
        dim=dim,
        radius=radius,
        kernel=kernel,
        rounds=min(rounds, trial.rounds) if quick else rounds,
        shortest=trial.shortest,
        slow=slow,
        memory=memory,
        threads=threads,
    )
    console = Console()
    console.width = max(console.width, WIDTH)
    rows = measure(options, lambda line: console.print(line, style="dim", highlight=False))
    growths = growth(rows)
    for table in tables(rows, growths):
        console.print(table)
    for line in left_out_lines(rows):
        print(line)
    path = save("attention-cost", rows, results_folder(results, quick=quick), threads=threads, growth=growths)
    draw(rows, path.with_suffix(".svg"))
    positions = path.with_name(path.name.replace("attention-cost.json", "positional-encoding.svg"))
    draw_positions(positions)
    for each in (path, path.with_suffix(".svg"), positions):
        print(f"written: {each}")
