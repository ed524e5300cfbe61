"""`lingon bench gpu`: its plan, engines of which some may be missing, the rounds, and the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from rich.table import Table

from lingon.bench.decode import Rounds, TimedRuns, causes_of, measure_rounds, row_of, speedup, title
from lingon.bench.device_roofline import DevicePeaks, floor_of, measure_device_peaks, peaks_of
from lingon.bench.engines.agreement import OutputComparison
from lingon.bench.engines.base import Cell, Setting
from lingon.bench.engines.worker import (
    CTRANSLATE2,
    LINGON,
    LINGON_GRAPHS,
    TORCH_GRAPH,
    TRANSFORMERS,
    TRANSFORMERS_STATIC,
    Engines,
    EngineSetting,
)
from lingon.bench.options import check_choice
from lingon.bench.results_file import ResumeFile, Row, new_table, save, terminal
from lingon.bench.roofline import count_decoding, multiply_adds_of
from lingon.bench.synthetic import SHAPES, TINY_SHAPES, forced_workloads
from lingon.bench.workloads import Workload
from lingon.bundle.store import open_bundle
from lingon.errors import DeviceError
from lingon.machine import usable_cores
from lingon.serving.runtime.device import CPU, CUDA, cuda_missing

ENGINES = (LINGON, LINGON_GRAPHS, TRANSFORMERS, TRANSFORMERS_STATIC, TORCH_GRAPH, CTRANSLATE2)
DEVICES = ("cuda", "cpu")
BATCHES = (1, 8, 64, 256)
BEAM_SIZES = (1, 4)
LEAST = 8  # sentences of a cell with mixed lengths at least


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuOptions:
    """The options of the command. An empty tuple selects everything."""

    models: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()  # fixed or mix
    engines: tuple[str, ...] = ()
    batches: tuple[int, ...] = ()
    beam_sizes: tuple[int, ...] = ()
    device: str = "cuda"
    runs: int = 5
    slow: float = 10.0  # seconds
    quick: bool = False

    def __post_init__(self) -> None:
        choices: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
            "--model": (self.models, ("base", "big")),
            "--work": (self.workloads, ("fixed", "mix")),
            "--engine": (self.engines, ENGINES),
            "--batch": (self.batches, BATCHES),
            "--beam-size": (self.beam_sizes, BEAM_SIZES),
            "--device": ((self.device,), DEVICES),
        }
        for option, (values, offered) in choices.items():
            check_choice(option, values, offered)

    @property
    def largest(self) -> int:
        """The largest batch that is measured."""
        return max(self.batches or BATCHES)

    def includes(self, workload: Workload) -> bool:
        """Return whether the user has not excluded a workload."""
        return not self.workloads or ("fixed" if workload.exact_length else "mix") in self.workloads


def engine_settings(options: GpuOptions, cores: int) -> list[EngineSetting]:
    """Return the engines in the setting that each is measured in.

    On the CPU, which has few kernels for it, only Lingon computes in half precision, because it has no other graphs
    for a card.
    """
    found = []
    for engine in options.engines or ENGINES:
        half = options.device == "cuda" or engine in (LINGON, LINGON_GRAPHS)
        setting = Setting(
            precision="fp16" if half else "fp32",
            workers=1,
            threads=cores,
            device="cuda" if options.device == "cuda" else "cpu",
            cuda_graphs=engine == LINGON_GRAPHS,
            static_cache=engine == TRANSFORMERS_STATIC,
        )
        found.append(EngineSetting(engine, setting))
    return found


def cells_of(workload: Workload, options: GpuOptions) -> list[Cell]:
    """Return the cells of a workload that the user has not excluded."""
    return [
        Cell(
            workload=workload.name,
            batch=batch,
            beam_size=beam_size,
            exact_length=workload.exact_length,
            target_ratio=workload.target_ratio,
        )
        for beam_size, batch in product(options.beam_sizes or BEAM_SIZES, options.batches or BATCHES)
    ]


def sources_of(workload: Workload, cell: Cell) -> Sequence[Sequence[int]]:
    """Return the sources of one run: a single batch, of mixed lengths two batches."""
    count = cell.batch if workload.exact_length else max(2 * cell.batch, LEAST)
    return workload.sources[:count]


TIE = 5e-2
"""Differences of log-probability up to this are rounding errors of half precision, as in the gates of an export."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuBenchmark:
    """The settings of a run, the same for every model.

    show: shows the current activity, replaced by the next; write: writes a line that stays
    """

    options: GpuOptions
    rounds: Rounds
    peaks: DevicePeaks
    cache: Path
    resume_file: ResumeFile
    show: Callable[[str], None]
    write: Callable[[str], None]

    def measure(self, workloads: Sequence[Workload]) -> list[Row]:
        """Return all rows of workloads with the same bundle."""
        bundle = open_bundle(workloads[0].bundle)
        settings = engine_settings(self.options, 1 if self.options.quick else usable_cores())
        rows: list[Row] = []
        with Engines(bundle, settings, self.cache, self.show) as engines:
            model = _ModelRun(self, engines)
            for workload in workloads:
                for cell in cells_of(workload, self.options):
                    rows += model.rows(workload, cell)
        return rows


class _ModelRun:
    """The cells of one model."""

    def __init__(self, benchmark: GpuBenchmark, engines: Engines) -> None:
        self._benchmark, self._engines = benchmark, engines
        self._model = multiply_adds_of(engines.bundle)
        self._layers = len(list(engines.bundle.manifest.states_of("cache"))) // 2  # a layer has keys and values
        self._comparison = OutputComparison(engines.bundle, threads=usable_cores(), tie=TIE)

    def rows(self, workload: Workload, cell: Cell) -> list[Row]:
        """Return the rows of a cell, from the resume file or measured now."""
        sources = sources_of(workload, cell)
        rows: list[Row] = self._benchmark.resume_file.record(cell.key, lambda: self._measure(cell, sources))
        times = (f"{row['engine']} {row['median_ms']:.1f}" for row in rows if row["reason"] is None)
        self._benchmark.write(f"{title(cell)}, ms: {', '.join(times)}")
        return rows

    def _measure(self, cell: Cell, sources: Sequence[Sequence[int]]) -> list[Row]:
        measures, reasons = self._engines.measures(cell, sources)
        timed = measure_rounds(
            measures, self._benchmark.rounds, lambda step: self._benchmark.show(f"{title(cell)}: {step}")
        )
        by_name = {each.engine: found for each, found in timed.items()}
        return [
            self._row(each, cell, sources, timed[each], by_name)
            if each in timed
            else missing_row(each, cell, reasons[each])
            for each in self._engines.settings
        ]

    def _row(
        self,
        engine_setting: EngineSetting,
        cell: Cell,
        sources: Sequence[Sequence[int]],
        timed: TimedRuns,
        by_name: dict[str, TimedRuns],
    ) -> Row:
        engine, precision = self._engines.loaded[engine_setting], engine_setting.setting.precision
        row = row_of(engine_setting.engine, engine_setting, cell, timed)
        counts = count_decoding(sources, timed.outputs, cell, self._model.vocab)
        floor = floor_of(self._model, self._layers, counts, cell.beam_size, self._benchmark.peaks, precision)
        ours = by_name[LINGON].outputs if LINGON in by_name else None
        theirs = by_name.get(TRANSFORMERS)
        return {
            **row,
            "device": engine_setting.setting.device,
            "sentences": len(sources),
            "steps": counts.steps,
            "ms_per_step": round(row["median_ms"] / counts.steps, 4),
            "ratio_to_transformers": round(speedup(theirs.runs_ms, timed.runs_ms), 3) if theirs else None,
            "floor_ms": round(floor.total, 4),
            "floor_parts_ms": {name: round(value, 4) for name, value in asdict(floor).items()},
            "fraction_of_floor": round(floor.total / row["median_ms"], 4),
            **self._comparison.columns(cell, sources, ours, timed.outputs, explain=True),
            **engine.columns(),
            "reason": None,
        }


def missing_row(engine_setting: EngineSetting, cell: Cell, reason: str) -> Row:
    """Return the row of an engine that could not decode a cell. reason: why, in one line."""
    return {
        "work": cell.workload,
        "engine": engine_setting.engine,
        "precision": engine_setting.setting.precision,
        "settings": engine_setting.shape,
        "shortlist": False,
        "batch": cell.batch,
        "beam_size": cell.beam_size,
        "device": engine_setting.setting.device,
        "reason": reason,
    }


def measured(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of engines that could decode their cell."""
    return [row for row in rows if row["reason"] is None]


def table_of(workload: str, rows: Sequence[Row]) -> Table:
    """Return the table of one workload: a row for each engine in each cell."""
    title = f"{workload}: medians; the floor is a lower bound, in ms a step"
    heads = ("tokens/s", "ms a step", "to transformers", "floor", "% of floor", "% same as lingon")
    table = new_table(("beam", "batch", "engine"), heads, title=title, title_justify="left")
    cell = None
    for row in rows:
        if cell != (cell := (row["beam_size"], row["batch"])):
            table.add_section()
        table.add_row(str(row["beam_size"]), str(row["batch"]), f"{row['engine']} {row['precision']}", *_values(row))
    return table


def _values(row: Row) -> list[str]:
    if row["reason"] is not None:
        return ["-"]
    ratio, same = row["ratio_to_transformers"], row["agreement"]
    return [
        f"{row['tokens_per_s']:,.0f}",
        f"{row['ms_per_step']:.3g}",
        "" if ratio is None else f"{ratio:.2f}x",
        f"{row['floor_ms'] / row['steps']:.3g}",
        f"{100 * row['fraction_of_floor']:.1f}",
        "" if same is None else f"{100 * same:.1f}",
    ]


def lines_of(rows: Sequence[Row]) -> list[str]:
    """Return the missing cells of each engine and reason, and the agreement of each engine with Lingon."""
    missing = Counter((row["engine"], row["reason"]) for row in rows if row["reason"] is not None)
    lines = [f"{engine} is missing in {count} cells: {reason}" for (engine, reason), count in missing.items()]
    compared = [row for row in measured(rows) if row["agreement"] is not None and row["engine"] != LINGON]
    for engine in dict.fromkeys(row["engine"] for row in compared):
        own = [row for row in compared if row["engine"] == engine]
        sentences = sum(row["sentences"] for row in own)
        same = sum(row["sentences"] * row["agreement"] for row in own) / sentences
        lines.append(
            f"{engine}: {same:.2%} of {sentences} outputs are those of {LINGON} (differences: {causes_of(own)})"
        )
    return lines


MIN_RUN_MS = 50.0  # milliseconds of one run at least: shorter work is repeated within the run


def run(options: GpuOptions, results: Path, cache: Path, *, resume: bool) -> None:
    """Measure, show the tables and write the result files, which appear only when everything is measured."""
    if options.device == "cuda" and (missing := cuda_missing()):
        raise DeviceError(f"--device cuda: {missing}")
    if options.quick:
        options = replace(options, batches=options.batches or (1, 8), runs=2)
    console = terminal()
    resume_file = ResumeFile.of(cache / "gpu.part.jsonl", asdict(options), resume=resume)
    with console.status("measuring the peaks of the device") as status:
        rounds = 1 if options.quick else 10
        peaks = resume_file.record("peaks", lambda: measure_device_peaks(options.device, rounds))
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
    save("gpu", rows, results, device=options.device, peaks=peaks, works=facts)
    resume_file.delete()


def _workloads(name: str, options: GpuOptions, cache: Path) -> list[Workload]:
    """Return the selected workloads of a model."""
    shape = {**SHAPES, **TINY_SHAPES}[name]
    provider = CUDA if options.device == "cuda" else CPU
    found = forced_workloads(cache, name, shape, provider, options.largest)
    return [workload for workload in found if options.includes(workload)]
