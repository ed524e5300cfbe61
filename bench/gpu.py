"""`lingon bench gpu`: its plan, engines of which some may be missing, the rounds, and the tables.

Every cell is measured three times over: its time, in rounds of all engines; its parts, in further rounds in which the
host waits for the device after each part; and the kernels of a step, after all cells, because a profiler slows what
follows it. See lingon.bench.engines.parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
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
from lingon.bench.engines.parts import ENCODER, STEPS
from lingon.bench.engines.worker import (
    CTRANSLATE2,
    LINGON,
    LINGON_GRAPHS,
    LINGON_NATIVE,
    OF_LINGON,
    TORCH_GRAPH,
    TRANSFORMERS,
    TRANSFORMERS_STATIC,
    Engines,
    EngineSetting,
    LoadedEngine,
    parts_of,
    step_kernels_of,
)
from lingon.bench.options import check_choice
from lingon.bench.results_file import ResumeFile, Row, new_table, save, terminal
from lingon.bench.roofline import count_decoding, multiply_adds_of
from lingon.bench.synthetic import (
    EMULATED_SHAPES,
    EMULATED_TOKENS,
    SHAPES,
    TARGET_TOKENS,
    TINY_SHAPES,
    forced_workloads,
)
from lingon.bench.workloads import Workload
from lingon.bundle.store import open_bundle
from lingon.errors import DeviceError, LingonError, SettingsError
from lingon.machine import usable_cores
from lingon.serving.runtime.device import CPU, CUDA, cuda_missing

ENGINES = (LINGON, LINGON_NATIVE, LINGON_GRAPHS, TRANSFORMERS, TRANSFORMERS_STATIC, TORCH_GRAPH, CTRANSLATE2)
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
    operators: str = ""  # of a rehearsal: the module that emulates the operators of fp16-native

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
        if self.operators and not (self.quick and self.device == "cpu"):
            raise SettingsError("--operators is for a rehearsal with --device cpu and --quick")

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
    for a card. Without emulated operators it leaves fp16-native out there.
    """
    found = []
    for engine in options.engines or ENGINES:
        half = options.device == "cuda" or engine in OF_LINGON
        native = engine == LINGON_NATIVE
        if native and options.device == "cpu" and not options.operators:
            continue
        setting = Setting(
            precision="fp16-native" if native else "fp16" if half else "fp32",
            workers=1,
            threads=cores,
            device="cuda" if options.device == "cuda" else "cpu",
            cuda_graphs=engine in (LINGON_GRAPHS, LINGON_NATIVE),
            static_cache=engine == TRANSFORMERS_STATIC,
            operators=options.operators if native else "",
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
            cells = [(workload, cell) for workload in workloads for cell in cells_of(workload, self.options)]
            for workload, cell in cells:
                rows += model.rows(workload, cell)
            kernels = [found for workload, cell in cells for found in model.kernels(workload, cell)]
        return [row | columns for row, columns in zip(rows, kernels, strict=True)]


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

    def kernels(self, workload: Workload, cell: Cell) -> list[Row]:
        """Return the columns of the kernels of a step for each row of a cell, from the resume file or counted now.

        Cells with mixed lengths have none, because no two runs of theirs differ in their steps alone.
        """
        if not workload.exact_length:
            return [{}] * len(self._engines.settings)
        sources = sources_of(workload, cell)
        found: list[Row] = self._benchmark.resume_file.record(
            f"kernels {cell.key}", lambda: self._count_kernels(cell, sources)
        )
        return found

    def _count_kernels(self, cell: Cell, sources: Sequence[Sequence[int]]) -> list[Row]:
        self._benchmark.show(f"{title(cell)}: the kernels of a step")
        usable, _ = self._engines.measures(cell, sources)
        return [
            _kernel_columns(self._engines.loaded[each], cell, len(sources)) if each in usable else {}
            for each in self._engines.settings
        ]

    def _measure(self, cell: Cell, sources: Sequence[Sequence[int]]) -> list[Row]:
        measures, reasons = self._engines.measures(cell, sources)
        timed = measure_rounds(
            measures, self._benchmark.rounds, lambda step: self._benchmark.show(f"{title(cell)}: {step}")
        )
        parts = self._measure_parts(list(timed), cell, len(sources))
        by_name = {each.engine: found for each, found in timed.items()}
        return [
            self._row(each, cell, sources, timed[each], by_name) | parts[each]
            if each in timed
            else missing_row(each, cell, reasons[each])
            for each in self._engines.settings
        ]

    def _measure_parts(self, settings: Sequence[EngineSetting], cell: Cell, count: int) -> dict[EngineSetting, Row]:
        """Return the columns of the parts of each engine: those of the round of median length."""
        self._benchmark.show(f"{title(cell)}: encoder, steps and host")
        found: dict[EngineSetting, list[dict[str, float]]] = {each: [] for each in settings}
        for _ in range(min(self._benchmark.rounds.runs, PART_ROUNDS)):
            for each in settings:
                with suppress(LingonError):  # the times of the cell are kept, and the next cell loads the engine again
                    if (parts := parts_of(self._engines.loaded[each], cell, count)) is not None:
                        found[each].append(parts)
        return {each: _part_columns(rounds) for each, rounds in found.items()}

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
        reference = next((name for name in (LINGON, LINGON_GRAPHS) if name in by_name), None)
        ours = by_name[reference].outputs if reference else None
        theirs, loop = by_name.get(TRANSFORMERS), by_name.get(TORCH_GRAPH)
        return {
            **row,
            "device": engine_setting.setting.device,
            "sentences": len(sources),
            "steps": counts.steps,
            "ms_per_step": round(row["median_ms"] / counts.steps, 4),
            "ratio_to_transformers": round(speedup(theirs.runs_ms, timed.runs_ms), 3) if theirs else None,
            "ratio_to_torch_graph": round(speedup(loop.runs_ms, timed.runs_ms), 3) if loop else None,
            "floor_ms": round(floor.total, 4),
            "floor_parts_ms": {name: round(value, 4) for name, value in asdict(floor).items()},
            "fraction_of_floor": round(floor.total / row["median_ms"], 4),
            "reference": reference,
            **self._comparison.columns(cell, sources, ours, timed.outputs, explain=True),
            **engine.columns(),
            "reason": None,
        }


PART_ROUNDS = 3  # rounds in which the parts of a cell are timed


def _part_columns(rounds: Sequence[dict[str, float]]) -> Row:
    """Return the columns of the round of median length; each is None if there is none."""
    if not rounds:
        return dict.fromkeys(("parts_ms", "encoder_ms", "steps_ms", "host_ms"))
    found = sorted(rounds, key=lambda each: each["whole"])[len(rounds) // 2]
    host = found["whole"] - found[ENCODER] - found[STEPS]
    values = {"parts_ms": found["whole"], "encoder_ms": found[ENCODER], "steps_ms": found[STEPS], "host_ms": host}
    return {name: round(value, 3) for name, value in values.items()}


def _kernel_columns(engine: LoadedEngine, cell: Cell, count: int) -> Row:
    """Return the columns of the kernels of a step: how many, their microseconds, and each by name."""
    try:
        found = step_kernels_of(engine, cell, count)
    except LingonError as error:  # the process has ended; the times of its cells are kept
        found = str(error)
    if isinstance(found, str):
        return {"kernels_a_step": None, "kernels_reason": found}
    by_time = sorted(found.items(), key=lambda item: item[1], reverse=True)
    return {
        "kernels_a_step": round(sum(times for times, _ in found.values()), 1),
        "kernels_us_a_step": round(sum(microseconds for _, microseconds in found.values()), 1),
        "kernels": {name: [round(times, 2), round(microseconds, 2)] for name, (times, microseconds) in by_time},
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
    title = (
        f"{workload}: medians in ms, and how many times faster than torch-graph and transformers; encoder, steps and"
        " host of further rounds; kernels of a step; the floor is a lower bound; outputs that are those of lingon"
    )
    times = ("tokens/s", "ms", "encoder", "steps", "host", "kernels", "to loop", "to transf.")
    heads = (*times, "floor", "% of floor", "% same")
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
    same, parts = row["agreement"], (row.get(f"{part}_ms") for part in ("encoder", "steps", "host"))
    return [
        f"{row['tokens_per_s']:,.0f}",
        f"{row['median_ms']:.2f}",
        *("" if part is None else f"{part:.2f}" for part in parts),
        "" if row.get("kernels_a_step") is None else f"{row['kernels_a_step']:.0f}",
        *(
            "" if row[name] is None else f"{row[name]:.2f}x"
            for name in ("ratio_to_torch_graph", "ratio_to_transformers")
        ),
        f"{row['floor_ms']:.3g}",
        f"{100 * row['fraction_of_floor']:.1f}",
        "" if same is None else f"{100 * same:.1f}",
    ]


def lines_of(rows: Sequence[Row]) -> list[str]:
    """Return the missing cells of each engine and reason, and the agreement of each engine with Lingon.

    Lingon's own reference is that of its standard graphs, see the column reference.
    """
    missing = Counter((row["engine"], row["reason"]) for row in rows if row["reason"] is not None)
    lines = [f"{engine} is missing in {count} cells: {reason}" for (engine, reason), count in missing.items()]
    compared = [row for row in measured(rows) if row["agreement"] is not None and row["engine"] != row["reference"]]
    for engine in dict.fromkeys(row["engine"] for row in compared):
        own = [row for row in compared if row["engine"] == engine]
        sentences = sum(row["sentences"] for row in own)
        same = sum(row["sentences"] * row["agreement"] for row in own) / sentences
        reference, causes = own[0]["reference"], causes_of(own)
        lines.append(f"{engine}: {same:.2%} of {sentences} outputs are those of {reference} (differences: {causes})")
    return lines


MIN_RUN_MS = 50.0  # milliseconds of one run at least: shorter work is repeated within the run


def run(options: GpuOptions, results: Path, cache: Path, *, resume: bool) -> None:
    """Measure, show the tables and write the result files, which appear only when everything is measured."""
    if options.device == "cuda" and (missing := cuda_missing()):
        raise DeviceError(f"--device cuda: {missing}")
    if options.quick:
        options = replace(options, batches=options.batches or (1, 8), runs=1 if options.operators else 2)
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
    shape = (EMULATED_SHAPES if options.operators else {**SHAPES, **TINY_SHAPES})[name]
    provider = CUDA if options.device == "cuda" else CPU
    tokens = EMULATED_TOKENS if options.operators else TARGET_TOKENS
    found = forced_workloads(cache, name, shape, provider, options.largest, tokens)
    return [workload for workload in found if options.includes(workload)]
