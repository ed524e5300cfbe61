"""`lingon bench gpu` step by step: from its options to the tables, the JSON file and the chart."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from rich.console import Console

from lingon.bench.decode.measure import Rounds
from lingon.bench.decode.results import Row
from lingon.bench.gpu.measure import GpuBenchmark
from lingon.bench.gpu.plan import GpuOptions
from lingon.bench.gpu.report import WIDTH, lines_of, table_of, write_chart
from lingon.bench.results_file import commit, machine, save
from lingon.bench.resume import ResumeFile
from lingon.bench.roofline.device_peaks import measure_device_peaks, peaks_of
from lingon.bench.workloads.random_weights import SHAPES, TINY_SHAPES
from lingon.bench.workloads.synthetic import forced_workloads
from lingon.bench.workloads.workload import Workload
from lingon.errors import DeviceError
from lingon.machine import usable_cores
from lingon.serving.runtime.device import CPU, CUDA, cuda_missing

MIN_RUN_MS = 50.0  # milliseconds of one run at least: shorter work is repeated within the run


def run(options: GpuOptions, results: Path, cache: Path, *, resume: bool) -> None:
    """Measure, show the tables and write the result files, which appear only when everything is measured."""
    if options.device == "cuda" and (missing := cuda_missing()):
        raise DeviceError(f"--device cuda: {missing}")
    if options.quick:
        options = replace(options, batches=options.batches or (1, 8), runs=2)
    console = Console()
    console.width = max(console.width, WIDTH)
    values = {name: str(value) for name, value in asdict(options).items()}
    head = {"commit": commit(), "machine": machine(), "cores": usable_cores(), **values}
    resume_file = ResumeFile(cache / "gpu.part.jsonl", head, resume=resume)
    with console.status("measuring the peaks of the device") as status:
        peaks = resume_file.get("peaks") or measure_device_peaks(options.device, rounds=1 if options.quick else 10)
        resume_file.add("peaks", peaks)
        benchmark = GpuBenchmark(
            options=options,
            rounds=Rounds(runs=options.runs, slow_s=options.slow, min_run_ms=1 if options.quick else MIN_RUN_MS),
            peaks=peaks_of(peaks),
            cache=cache,
            resume_file=resume_file,
            show=status.update,
            write=partial(console.print, highlight=False, soft_wrap=True),
        )
        rows: list[Row] = []
        facts: dict[str, dict[str, float]] = {}
        for name in TINY_SHAPES if options.quick else options.models or SHAPES:
            status.update(f"preparing the model {name}")
            workloads = _workloads(name, options, cache)
            rows += benchmark.measure(workloads)
            facts |= {each.name: each.facts for each in workloads}
    for workload in facts:
        console.print(table_of(workload, [row for row in rows if row["work"] == workload]))
    for line in lines_of(rows):
        console.print(line, highlight=False, soft_wrap=True)
    path = save("gpu", rows, results, device=options.device, peaks=peaks, works=facts)
    resume_file.delete()
    console.print(f"written: {path}", soft_wrap=True)
    console.print(write_chart(rows, path.with_suffix(".svg")), soft_wrap=True)


def _workloads(name: str, options: GpuOptions, cache: Path) -> list[Workload]:
    """The selected workloads of a model."""
    shape = {**SHAPES, **TINY_SHAPES}[name]
    provider = CUDA if options.device == "cuda" else CPU
    found = forced_workloads(cache, name, shape, provider, options.largest)
    return [workload for workload in found if options.includes(workload)]
