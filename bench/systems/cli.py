"""The command `lingon bench attention`; it imports heavy modules only when it runs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer


def attention(
    system: Annotated[
        list[str] | None,
        typer.Option(
            help="rnnenc, rnnsearch, luong-global, luong-local, luong-monotonic, transformer, or transformer-window, "
            "-additive, -rotary or -linear; may be repeated. (default: all, with --quick rnnenc and transformer)"
        ),
    ] = None,
    corpus: Annotated[
        list[str] | None,
        typer.Option(help="multi30k or tatoeba; may be repeated. (default: both, with --quick multi30k)"),
    ] = None,
    data: Annotated[
        Path, typer.Option(help="Folder with the files of the corpora, CORPUS.en-de.PART.LANGUAGE.gz.")
    ] = Path(".corpora"),
    configs: Annotated[Path, typer.Option(help="Folder with the configs of the systems.")] = Path("configs/attention"),
    steps: Annotated[
        int | None,
        typer.Option(help="Updates of each training. (default: 1200, 12 to 15 minutes on one core; with --quick 12)"),
    ] = None,
    lengths: Annotated[
        bool,
        typer.Option(
            "--lengths/--no-lengths",
            help="Train rnnenc, rnnsearch and transformer twice more, on short texts, for BLEU by length.",
        ),
    ] = True,
    work: Annotated[
        Path | None,
        typer.Option(
            help="Folder for runs, bundles and scores. What is there is not made again. "
            "Default: build/bench/attention, with --quick build/bench/attention-quick."
        ),
    ] = None,
    train: Annotated[
        bool, typer.Option("--train/--no-train", help="Train each run to its end, or measure it as far as it is.")
    ] = True,
    device: Annotated[
        str, typer.Option(help="Device of the trainings: auto, cpu or cuda. Everything else runs on the CPU.")
    ] = "auto",
    results: Annotated[
        Path | None, typer.Option(help="Folder for the results. Default: bench/results, with --quick build/bench.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Try it out: tiny models on sample sentences; some 10 seconds.")
    ] = False,
) -> None:
    """Train systems with and without attention alike, serve them, and compare quality, speed and word alignments.

    Every system trains for the same updates on the same text, is exported to a bundle, and translates with the engine
    of the server. Ctrl-C saves a checkpoint and exits with code 130; the same command goes on.
    """
    from dataclasses import replace

    from rich.console import Console

    from lingon.bench.results_file import results_folder, save
    from lingon.bench.systems.plan import CORPORA, SYSTEMS, Budget, selected
    from lingon.bench.systems.report import WIDTH, draw, length_table, signatures, table
    from lingon.bench.systems.run import Comparison, write_samples

    console = Console()
    console.width = max(console.width, WIDTH)
    budget = Budget.quick() if quick else Budget()
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
        budget=replace(budget, steps=steps or budget.steps),
        device=device,
        train=train,
        write=partial(console.print, style="dim", highlight=False),
    )
    rows = comparison.rows()
    by_length = comparison.length_rows() if lengths else []
    console.print(table(rows))
    for line in (*signatures(rows), *comparison.left_out):
        print(line)
    left_out = comparison.left_out
    path = save(
        "attention", rows, results_folder(results, quick=quick), device=device, left_out=left_out, lengths=by_length
    )
    print(f"written: {path}")
    if by_length:
        console.print(length_table(by_length))
        chart = path.with_name(path.name.replace("attention.json", "bleu-by-length.svg"))
        draw(by_length, chart)
        print(f"written: {chart}")
    if left_out:
        raise typer.Exit(1)
