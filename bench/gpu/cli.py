"""The command `lingon bench gpu`; it imports heavy modules only when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

CACHE = Path("~/.cache/lingon/bench")


def gpu(
    model: Annotated[
        list[str] | None,
        typer.Option(help="Transformer with random weights: base or big; may be repeated. (default: both)"),
    ] = None,
    work: Annotated[
        list[str] | None,
        typer.Option(help="Lengths: fixed (25 source, 30 target tokens) or mix; may be repeated. (default: both)"),
    ] = None,
    engine: Annotated[
        list[str] | None,
        typer.Option(
            help="lingon, lingon-cuda-graphs, transformers, transformers-static, torch-graph or ctranslate2; may be "
            "repeated. (default: all)"
        ),
    ] = None,
    batch: Annotated[
        list[int] | None, typer.Option(help="Batch size: 1, 8, 64 or 256; may be repeated. (default: all)")
    ] = None,
    beam_size: Annotated[list[int] | None, typer.Option(help="1 or 4; may be repeated. (default: both)")] = None,
    device: Annotated[str, typer.Option(help="cuda, or cpu to rehearse the run.")] = "cuda",
    runs: Annotated[int, typer.Option(help="Measured runs of each engine in each cell.")] = 5,
    slow: Annotated[float, typer.Option(help="Seconds: an engine whose run takes longer gets at most 3 runs.")] = 10.0,
    results: Annotated[
        Path | None, typer.Option(help="Folder for the results. Default: bench/results, with --quick build/bench.")
    ] = None,
    cache: Annotated[Path, typer.Option(help="Folder for the models that the benchmark creates.")] = CACHE,
    quick: Annotated[
        bool, typer.Option("--quick", help="Try it out: a tiny model, two batch sizes, few runs; some 2 minutes.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run that was killed.")] = False,
) -> None:
    """Measure decoding on a card: Lingon, transformers, a bare PyTorch loop and CTranslate2, and the lower bound."""
    from lingon.bench.gpu.plan import GpuOptions
    from lingon.bench.gpu.run import run
    from lingon.bench.results_file import results_folder

    options = GpuOptions(
        models=tuple(model or ()),
        workloads=tuple(work or ()),
        engines=tuple(engine or ()),
        batches=tuple(batch or ()),
        beam_sizes=tuple(beam_size or ()),
        device=device,
        runs=runs,
        slow=slow,
        quick=quick,
    )
    run(options, results_folder(results, quick=quick), cache.expanduser(), resume=resume)
