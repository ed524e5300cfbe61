"""The verb `lingon bench decode`; heavy modules are imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

CACHE = Path("~/.cache/lingon/bench")


def decode(
    work: Annotated[list[str] | None, typer.Option(help="base or shipped; may be repeated. (default: both)")] = None,
    engine: Annotated[
        list[str] | None, typer.Option(help="lingon, ctranslate2, transformers or optimum. (default: all)")
    ] = None,
    batch: Annotated[list[int] | None, typer.Option(help="1, 8, 32 or 128. (default: all)")] = None,
    beam_size: Annotated[list[int] | None, typer.Option(help="1 or 4. (default: both)")] = None,
    runs: Annotated[int, typer.Option(help="Measured runs of everybody in every cell.")] = 7,
    slow: Annotated[float, typer.Option(help="Seconds of a run above which 3 runs must do.")] = 10.0,
    sentences: Annotated[int, typer.Option(min=1, help="Of each test set of the shipped work.")] = 512,
    model: Annotated[Path, typer.Option(help="The bundle of the shipped work.")] = Path("models/en-de"),
    data: Annotated[Path | None, typer.Option(help="Folder of its test sets. (default: tests/data)")] = None,
    results: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("bench/results"),
    cache: Annotated[Path, typer.Option(help="Folder for models that are made for this.")] = CACHE,
    quick: Annotated[
        bool, typer.Option("--quick", help="To try it out: tiny base model, few runs, sentences.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was killed.")] = False,
) -> None:
    """Decoding time of this engine and its peers on the same weights, beside what the machine could do at most."""
    from lingon.bench.decode.run import Asked, run

    asked = Asked(
        works=tuple(work or ()),
        engines=tuple(engine or ()),
        batches=tuple(batch or ()),
        beam_sizes=tuple(beam_size or ()),
        runs=runs,
        slow=slow,
        sentences=sentences,
        model=model,
        data=data,
        quick=quick,
    )
    run(asked, results, cache.expanduser(), resume=resume)
