"""The command `lingon bench attention-cost`; it imports heavy modules only when it runs."""

from __future__ import annotations

from lingon.bench.options import attention_cost as options
from lingon.bench.options import shared


def attention_cost(
    length: options.Length = None,
    dim: options.Dim = 64,
    radius: options.Radius = 16,
    kernel: options.Kernel = 3,
    rounds: options.Rounds = 7,
    slow: options.Slow = 5.0,
    memory: options.Memory = 2.0,
    threads: options.Threads = 1,
    results: shared.Results = None,
    quick: options.Quick = False,
) -> None:
    """Measure time and memory of attention and other sequence layers as the length grows, next to the theory.

    The layers: self-attention with its matrix and fused, windowed and linear attention, a fully connected layer over
    the whole sequence, a convolution and a GRU. Also draws the costs, and the sinusoidal positional encoding.
    """
    from rich.console import Console

    from lingon.bench.attention_cost.measure import CostOptions, growth, measure
    from lingon.bench.attention_cost.report import WIDTH, draw, draw_positions, left_out_lines, tables
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
