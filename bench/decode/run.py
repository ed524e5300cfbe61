"""`lingon bench decode` step by step: from its options to the tables, the JSON file and the chart."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from rich.console import Console

from lingon.bench.decode.measure import DecodeBenchmark, Rounds
from lingon.bench.decode.plan import CellFilter, engine_settings
from lingon.bench.decode.report import WIDTH, agreement_lines, draw, staggered_lines, tables
from lingon.bench.decode.results import Row
from lingon.bench.results_file import commit, machine, save
from lingon.bench.resume import ResumeFile
from lingon.bench.roofline.machine_peaks import best_peaks, measure_peaks
from lingon.bench.workloads.random_weights import Shape
from lingon.bench.workloads.shipped import shipped_workloads
from lingon.bench.workloads.synthetic import base_workload
from lingon.bench.workloads.workload import Workload
from lingon.errors import SettingsError
from lingon.machine import usable_cores

WORKLOADS = ("base", "shipped")
TINY = Shape(layers=2, dim=64, heads=2, ffn=128, vocab=400)


@dataclass(frozen=True, kw_only=True, slots=True)
class DecodeOptions:
    """The options of the command; an empty tuple selects everything."""

    workloads: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    batches: tuple[int, ...] = ()
    beam_sizes: tuple[int, ...] = ()
    runs: int = 7
    slow: float = 10.0  # seconds
    sentences: int = 512
    models: tuple[Path, ...] = (Path("models/en-de"),)
    data: Path | None = None
    test_sets: tuple[str, ...] = ()
    quick: bool = False

    def __post_init__(self) -> None:
        if unknown := [workload for workload in self.workloads if workload not in WORKLOADS]:
            raise SettingsError(f"--work must be of {', '.join(WORKLOADS)}, got {unknown[0]}")

    def reduced(self) -> DecodeOptions:
        """The options of a quick run: fewer batch sizes, runs and sentences."""
        return replace(self, batches=self.batches or (1, 8), runs=2, sentences=min(self.sentences, 16))


def run(options: DecodeOptions, results: Path, cache: Path, *, resume: bool) -> None:
    """Measure, show the tables and write the result files, which appear only when everything is measured."""
    console = Console()
    options = options.reduced() if options.quick else options
    values = {name: str(value) for name, value in asdict(options).items()}
    head = {"commit": commit(), "machine": machine(), "cores": usable_cores(), **values}
    resume_file = ResumeFile(cache / "decode.part.jsonl", head, resume=resume)
    with console.status("preparing the workloads") as status:
        workloads = workloads_of(options, cache)
        status.update("measuring the machine's peaks")
        peaks = resume_file.get("peaks") or measure_peaks(rounds=1 if options.quick else 10)
        resume_file.add("peaks", peaks)
        benchmark = DecodeBenchmark(
            settings=engine_settings(options.engines, usable_cores()),
            cell_filter=CellFilter(batches=options.batches, beam_sizes=options.beam_sizes),
            rounds=Rounds(runs=options.runs, slow_s=options.slow),
            peaks=best_peaks(peaks),
            cache=cache,
            resume_file=resume_file,
            show=status.update,
            write=partial(console.print, highlight=False, soft_wrap=True),
        )
        rows = benchmark.measure(workloads)
    facts = {each.name: {"sentences": len(each.sources), "left_out": each.left_out, **each.facts} for each in workloads}
    _show(console, rows, facts, options.runs)
    path = save("decode", rows, results, peaks=peaks, works=facts)
    resume_file.delete()
    console.print(f"written: {path}")
    if any(row["ratio_to_ctranslate2"] for row in rows):  # The chart shows nothing else.
        draw(rows, path.with_suffix(".svg"))
        console.print(f"written: {path.with_suffix('.svg')}")


def workloads_of(options: DecodeOptions, cache: Path) -> list[Workload]:
    """The selected workloads."""
    workloads: list[Workload] = []
    if "base" in (options.workloads or WORKLOADS):
        workloads.append(base_workload(cache, TINY if options.quick else Shape()))
    if "shipped" in (options.workloads or WORKLOADS):
        workloads += shipped_workloads(options.models, options.data, options.sentences, options.test_sets)
    return workloads


def _show(console: Console, rows: list[Row], facts: dict[str, dict[str, float]], runs: int) -> None:
    console.width = max(console.width, WIDTH)
    for table in tables(rows, runs):
        console.print()
        console.print(table)
    console.print()
    for line in (*staggered_lines(rows), *agreement_lines(rows)):
        console.print(line, highlight=False, soft_wrap=True)
    for workload, known in facts.items():
        values = ", ".join(f"{fact} {value:g}" for fact, value in known.items())
        console.print(f"{workload}: {values}", highlight=False, soft_wrap=True)
