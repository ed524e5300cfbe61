"""The command `lingon bench gpu`; it imports heavy modules only when it runs."""

from __future__ import annotations

from lingon.bench.options import gpu as options
from lingon.bench.options import shared


def gpu(
    model: options.Model = None,
    work: options.Work = None,
    engine: options.Engine = None,
    batch: options.Batch = None,
    beam_size: shared.BeamSizes = None,
    device: options.Device = "cuda",
    runs: options.Runs = 5,
    slow: options.Slow = 10.0,
    results: shared.Results = None,
    cache: shared.Cache = shared.CACHE,
    quick: options.Quick = False,
    resume: shared.Resume = False,
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
