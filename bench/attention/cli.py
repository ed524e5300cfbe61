"""The command `lingon bench attention`; it imports heavy modules only when it runs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from lingon.bench.options import attention as options
from lingon.bench.options import shared

if TYPE_CHECKING:
    from rich.console import Console

    from lingon.bench.attention.plan import Budget
    from lingon.bench.attention.run import Comparison


def attention(
    system: options.System = None,
    corpus: options.Corpus = None,
    data: options.Data = Path(".corpora"),
    configs: options.Configs = Path("configs/attention"),
    steps: options.Steps = None,
    lengths: options.Lengths = True,
    work: options.Work = None,
    train: shared.Train = True,
    device: options.Device = "auto",
    results: shared.Results = None,
    quick: options.Quick = False,
) -> None:
    """Train systems with and without attention alike, serve them, and compare quality, speed and word alignments.

    Every system trains for the same updates on the same text, is exported to a bundle, and translates with the engine
    of the server. Ctrl-C saves a checkpoint and exits with code 130; the same command goes on.
    """
    from rich.console import Console

    from lingon.bench.attention.plan import CORPORA, SYSTEMS, selected
    from lingon.bench.attention.report import WIDTH
    from lingon.bench.attention.run import Comparison, write_samples

    console = Console()
    console.width = max(console.width, WIDTH)
    folder = work or Path("build/bench") / ("attention-quick" if quick else "attention")
    if quick:
        system, corpus, data = system or ["rnnenc", "transformer"], corpus or ["multi30k"], folder / "samples"
        write_samples(data)
    comparison = Comparison(
        systems=selected(system, tuple(each.name for each in SYSTEMS), "--system"),
        corpora=selected(corpus, tuple(each.name for each in CORPORA), "--corpus"),
        configs=configs,
        data=data,
        work=folder,
        budget=_budget(steps, quick=quick),
        device=device,
        train=train,
        write=partial(console.print, style="dim", highlight=False),
    )
    _report(comparison, console, results, lengths=lengths, quick=quick)


def _budget(steps: int | None, *, quick: bool) -> Budget:
    """The budget of each training; steps: its updates, if given."""
    from dataclasses import replace

    from lingon.bench.attention.plan import Budget

    budget = Budget.quick() if quick else Budget()
    return replace(budget, steps=steps or budget.steps)


def _report(comparison: Comparison, console: Console, results: Path | None, *, lengths: bool, quick: bool) -> None:
    """Measure, print the tables, and write results and chart; exit with code 1 if anything was left out."""
    from lingon.bench.attention.report import draw, length_table, signatures, table
    from lingon.bench.results_file import results_folder, save

    rows = comparison.rows()
    by_length = comparison.length_rows() if lengths else []
    console.print(table(rows))
    for line in (*signatures(rows), *comparison.left_out):
        print(line)
    facts = {"device": comparison.device, "left_out": comparison.left_out, "lengths": by_length}
    path = save("attention", rows, results_folder(results, quick=quick), **facts)
    print(f"written: {path}")
    if by_length:
        console.print(length_table(by_length))
        chart = path.with_name(path.name.replace("attention.json", "bleu-by-length.svg"))
        draw(by_length, chart)
        print(f"written: {chart}")
    if comparison.left_out:
        raise typer.Exit(1)
