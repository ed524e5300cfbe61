"""The command `lingon bench decode`; it imports heavy modules only when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

CACHE = Path("~/.cache/lingon/bench")


def decode(
    work: Annotated[
        list[str] | None,
        typer.Option(help="Workload: base (random weights) or shipped (--model); may be repeated. (default: both)"),
    ] = None,
    engine: Annotated[
        list[str] | None,
        typer.Option(help="lingon, ctranslate2, transformers or optimum; may be repeated. (default: all)"),
    ] = None,
    batch: Annotated[
        list[int] | None, typer.Option(help="Batch size: 1, 8, 32 or 128; may be repeated. (default: all)")
    ] = None,
    beam_size: Annotated[list[int] | None, typer.Option(help="1 or 4; may be repeated. (default: both)")] = None,
    runs: Annotated[int, typer.Option(help="Measured runs of each engine setting in each cell.")] = 7,
    slow: Annotated[float, typer.Option(help="Seconds: a setting whose run takes longer gets at most 3 runs.")] = 10.0,
    sentences: Annotated[int, typer.Option(min=1, help="Sentences of each test set of the workload shipped.")] = 512,
    model: Annotated[
        list[Path] | None,
        typer.Option(help="Bundle of the workload shipped; may be repeated. (default: models/en-de)"),
    ] = None,
    test_set: Annotated[
        list[str] | None,
        typer.Option(
            help="Test set of the workload shipped, SET or SET.PART for the files SET.SOURCE-TARGET.PART.LANGUAGE in "
            "--data; may be repeated. (default: tatoeba and ntrex)"
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder with the test sets of the workload shipped. (default: the repository's tests/data)"),
    ] = None,
    results: Annotated[
        Path | None, typer.Option(help="Folder for the results. Default: bench/results, with --quick build/bench.")
    ] = None,
    cache: Annotated[Path, typer.Option(help="Folder for the models that the benchmark creates.")] = CACHE,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Try it out: a small model, few runs, few sentences; some 5 minutes on 2 cores."),
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run that was killed.")] = False,
) -> None:
    """Measure the decoding time of Lingon and other engines on the same weights, and its lower bound."""
    from lingon.bench.decode.run import DecodeOptions, run
    from lingon.bench.results_file import results_folder

    options = DecodeOptions(
        workloads=tuple(work or ()),
        engines=tuple(engine or ()),
        batches=tuple(batch or ()),
        beam_sizes=tuple(beam_size or ()),
        runs=runs,
        slow=slow,
        sentences=sentences,
        models=tuple(model or [Path("models/en-de")]),
        data=data,
        test_sets=tuple(test_set or ()),
        quick=quick,
    )
    run(options, results_folder(results, quick=quick), cache.expanduser(), resume=resume)
