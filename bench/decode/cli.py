"""The command `lingon bench decode`; it imports heavy modules only when it runs."""

from __future__ import annotations

from pathlib import Path

from lingon.bench.options import decode as options
from lingon.bench.options import shared


def decode(
    work: options.Work = None,
    engine: options.Engine = None,
    batch: options.Batch = None,
    beam_size: shared.BeamSizes = None,
    runs: options.Runs = 7,
    slow: options.Slow = 10.0,
    sentences: options.Sentences = 512,
    model: options.Model = None,
    test_set: options.TestSet = None,
    data: options.Data = None,
    results: shared.Results = None,
    cache: shared.Cache = shared.CACHE,
    quick: options.Quick = False,
    resume: shared.Resume = False,
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
