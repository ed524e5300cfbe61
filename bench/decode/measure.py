"""Measuring: processes of engines, rounds in which they take turns in a cell, all cells of all workloads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from lingon.bench.decode.plan import (
    LINGON,
    STAGGERED,
    CellFilter,
    EngineSetting,
    Row,
    TimedRuns,
    available,
    bytes_of,
    cells_of,
    folder_of,
    row_of,
    sources_of,
    title,
    with_ratios,
)
from lingon.bench.engines.agreement import OutputComparison
from lingon.bench.engines.base import Cell, Tokens
from lingon.bench.machine_roofline import Peaks, floor_ms
from lingon.bench.results_file import ResumeFile
from lingon.bench.roofline import MultiplyAdds, count_decoding, mean_shortlist_size, multiply_adds_of
from lingon.bench.worker_process import Worker
from lingon.bench.workloads import Workload
from lingon.bundle.store import Bundle, open_bundle
from lingon.errors import SettingsError
from lingon.files import publish_folder
from lingon.scoring import score

EngineMode = tuple[str, EngineSetting]
"""A name in the results (the engine's, or STAGGERED) and the setting of the engine."""

Measure = Callable[[int], tuple[float, Tokens]]
"""Translate the sentences of a cell N times; returns the milliseconds of one time, and the outputs."""


@dataclass(slots=True)
class LoadedEngine:
    """The process of an engine that has loaded its model."""

    process: Worker
    load_s: float
    disk_mb: float
    peak_mb: float = 0.0


@dataclass(slots=True)
class EngineProcesses:
    """The processes of engine settings for a bundle; used as a `with`.

    show: receives a line about the current activity, for a progress display
    """

    bundle: Bundle
    settings: Sequence[EngineSetting]
    cache: Path
    show: Callable[[str], None]
    engines: dict[EngineSetting, LoadedEngine] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> EngineProcesses:
        with ExitStack() as stack:
            for each in self.settings:
                self.engines[each] = load_engine(each, self.bundle, self.cache, self.show, stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def set_sources(self, sources: Sequence[Sequence[int]]) -> None:
        """Set the sources that all engines translate from now on."""
        for engine in self.engines.values():
            engine.process.ask(do="sources", sources=sources)

    def measures(self, cell: Cell, count: int) -> dict[EngineMode, Measure]:
        """For each mode that supports the cell, the function that measures it on the first `count` sources."""
        found: dict[EngineMode, Measure] = {}
        for each, engine in self.engines.items():
            if each.supports(cell):
                found[each.engine, each] = measure_of(engine, cell, count)
                if each.engine == LINGON and cell.exact_length and cell.batch > 1:
                    found[STAGGERED, each] = measure_of(engine, cell, count, staggered=True)
        return found


def load_engine(
    engine_setting: EngineSetting, bundle: Bundle, cache: Path, show: Callable[[str], None], stack: ExitStack
) -> LoadedEngine:
    """Start the process of an engine, which the stack ends; its model files are written first, if they are missing."""
    folder = folder_of(engine_setting.engine, bundle, cache)
    if not folder.is_dir():
        show(f"writing the model files of {engine_setting.engine}")
        with publish_folder(folder) as part, _worker(engine_setting) as process:
            process.ask(do="prepare", bundle=str(bundle.folder), folder=str(part))
    show(f"loading {engine_setting.label}")
    process = stack.enter_context(_worker(engine_setting))
    load_s = process.ask(do="load", folder=str(folder), setting=asdict(engine_setting.setting))["load_s"]
    return LoadedEngine(process, load_s, bytes_of(engine_setting, folder, bundle) / 2**20)


def measure_of(engine: LoadedEngine, cell: Cell, count: int, *, staggered: bool = False) -> Measure:
    """The function that measures an engine in a cell, on the first `count` sources."""
    return partial(_measure, engine, cell, count, staggered)


def _worker(engine_setting: EngineSetting) -> Worker:
    return Worker("lingon.bench.decode.worker", engine_setting.engine, label=engine_setting.label)


def _measure(engine: LoadedEngine, cell: Cell, count: int, staggered: bool, repeats: int) -> tuple[float, Tokens]:
    answer = engine.process.ask(do="translate", cell=asdict(cell), count=count, repeats=repeats, staggered=staggered)
    engine.peak_mb = answer["peak_mb"]
    return answer["ms"], answer["outputs"]


Key = TypeVar("Key")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rounds:
    """How often and for how long each engine is measured in a cell."""

    runs: int = 7
    slow_runs: int = 3  # runs of an engine whose run takes longer than slow_s
    slow_s: float = 10.0  # seconds
    min_run_ms: float = 150.0  # milliseconds of one run at least: shorter work is repeated within the run

    def __post_init__(self) -> None:
        if self.runs < 1:
            raise SettingsError(f"--runs must be at least 1, got {self.runs}")
        if self.slow_s <= 0:
            raise SettingsError(f"--slow must be above 0 seconds, got {self.slow_s:g}")

    def plan(self, warm_ms: float) -> tuple[int, int]:
        """The number of runs, and of repetitions within a run, for work that takes warm_ms after the warm-up."""
        runs = min(self.runs, self.slow_runs) if warm_ms > 1000 * self.slow_s else self.runs
        return runs, max(math.ceil(self.min_run_ms / warm_ms), 1)


def measure_in_turns(
    measures: Mapping[Key, Measure], rounds: Rounds, show: Callable[[str], None]
) -> dict[Key, TimedRuns]:
    """Warm up all engines, uncounted, then measure them in turns, so that slow periods of the machine affect all alike.

    Each round begins with another engine. show: receives a line about each round, for a progress display
    """
    plans = {key: _warm_up(measure, rounds) for key, measure in measures.items()}
    timed: dict[Key, TimedRuns] = {key: TimedRuns([], []) for key in measures}
    keys = list(measures)
    for number in range(rounds.runs):
        show(f"round {number + 1} of {rounds.runs}")
        first = number % len(keys)
        for key in keys[first:] + keys[:first]:
            runs, repeats = plans[key]
            if number < runs:
                milliseconds, outputs = measures[key](repeats)
                timed[key] = TimedRuns([*timed[key].runs_ms, milliseconds], outputs)
    return timed


def _warm_up(measure: Measure, rounds: Rounds) -> tuple[int, int]:
    """Warm up and plan the runs.

    The first time allocates memory and starts threads. If it is short, a second time shows how long one takes.
    """
    milliseconds, _ = measure(1)
    if milliseconds < rounds.min_run_ms:
        milliseconds, _ = measure(1)
    return rounds.plan(milliseconds)


@dataclass(frozen=True, kw_only=True, slots=True)
class DecodeBenchmark:
    """The settings of a run, the same for every workload.

    show: shows the current activity, replaced by the next; write: writes a line that stays
    """

    settings: Sequence[EngineSetting]
    cell_filter: CellFilter
    rounds: Rounds
    peaks: Peaks
    cache: Path
    resume_file: ResumeFile
    show: Callable[[str], None]
    write: Callable[[str], None]

    def measure(self, workloads: Sequence[Workload]) -> list[Row]:
        """All rows of all workloads; workloads with the same bundle share its processes."""
        rows: list[Row] = []
        for folder in dict.fromkeys(workload.bundle for workload in workloads):
            bundle = open_bundle(folder)
            usable, lines = available(self.settings, bundle)
            for line in lines:
                self.write(line)
            if not usable:
                raise SettingsError(f"--engine: none of the engines can run {folder} here")
            rows += self._measure_bundle(bundle, usable, [each for each in workloads if each.bundle == folder])
        return rows

    def _measure_bundle(
        self, bundle: Bundle, settings: Sequence[EngineSetting], workloads: Sequence[Workload]
    ) -> list[Row]:
        model, rows = multiply_adds_of(bundle), []
        with EngineProcesses(bundle, settings, self.cache, self.show) as processes:
            for workload in workloads:
                run = _WorkloadRun(self, processes, workload, model)
                rows += [row for cell in run.cells() for row in run.rows(cell)]
        return rows


class _WorkloadRun:
    """The cells of one workload."""

    def __init__(
        self, benchmark: DecodeBenchmark, processes: EngineProcesses, workload: Workload, model: MultiplyAdds
    ) -> None:
        self._benchmark, self._processes, self._workload, self._model = benchmark, processes, workload, model
        self._tokenizer = processes.bundle.tokenizer() if workload.references else None
        self._comparison = OutputComparison(processes.bundle)
        processes.set_sources(workload.sources)

    def cells(self) -> list[Cell]:
        """The cells of the workload that the user has not excluded."""
        manifest = self._processes.bundle.manifest
        longest, shortlist = manifest.limits.max_target_tokens, manifest.shortlist is not None
        return cells_of(self._workload, longest, self._benchmark.cell_filter, shortlist=shortlist)

    def rows(self, cell: Cell) -> list[Row]:
        """The rows of a cell, from the resume file or measured now."""
        key = " ".join(str(value) for value in asdict(cell).values())
        rows: list[Row] | None = self._benchmark.resume_file.get(key)
        if rows is None:
            rows = self._measure(cell)
            self._benchmark.resume_file.add(key, rows)
        self._benchmark.write(_cell_line(cell, rows))
        return rows

    def _measure(self, cell: Cell) -> list[Row]:
        sources = sources_of(self._workload, cell)
        measures = self._processes.measures(cell, len(sources))
        timed = measure_in_turns(
            measures, self._benchmark.rounds, lambda step: self._benchmark.show(f"{title(cell)}: {step}")
        )
        reference = next((found.outputs for mode, found in timed.items() if _is_reference(mode)), None)
        return with_ratios([self._row(mode, cell, sources, found, reference) for mode, found in timed.items()])

    def _row(
        self,
        mode: EngineMode,
        cell: Cell,
        sources: Sequence[Sequence[int]],
        timed: TimedRuns,
        reference: Tokens | None,
    ) -> Row:
        name, engine_setting = mode
        row, engine = row_of(name, engine_setting, cell, timed), self._processes.engines[engine_setting]
        precision = engine_setting.setting.precision
        pieces = mean_shortlist_size(self._processes.bundle, sources) if cell.shortlist else self._model.vocab
        counts = count_decoding(sources, timed.outputs, cell, pieces)
        floor = floor_ms(self._model, self._benchmark.peaks, precision, counts)
        explain = precision == "fp32" and not cell.shortlist
        return {
            **row,
            "floor_ms": round(floor, 3),
            "fraction_of_floor": round(floor / row["median_ms"], 3),
            **self._quality(timed.outputs),
            **self._comparison.columns(cell, sources, reference, timed.outputs, explain=explain),
            "load_s": round(engine.load_s, 3),
            "disk_mb": round(engine.disk_mb, 1),
            "peak_mb": round(engine.peak_mb, 1),
        }

    def _quality(self, outputs: Tokens) -> dict[str, Any]:
        """BLEU and chrF; None if the workload has no references."""
        if self._tokenizer is None:
            return {"bleu": None, "chrf": None}
        texts = [self._tokenizer.decode(output) for output in outputs]
        return quality_of(texts, self._workload)


def quality_of(texts: Sequence[str], workload: Workload) -> dict[str, Any]:
    """BLEU and chrF of translations of the first sources of a workload with references."""
    scores = score(texts, workload.references[: len(texts)], workload.language)
    return {"bleu": round(scores.bleu, 2), "chrf": round(scores.chrf, 2)}


def _is_reference(mode: EngineMode) -> bool:
    """Whether the outputs of this mode are the reference for agreement: Lingon in fp32, in its first setting."""
    return mode[0] == LINGON and mode[1].setting.precision == "fp32"


def _cell_line(cell: Cell, rows: Sequence[Row]) -> str:
    """The times of a cell in one line, shown while other cells are still measured."""
    times = (f"{row['engine']} {row['precision']} {row['settings']} {row['median_ms']:.0f}" for row in rows)
    return f"{title(cell)}, ms: {', '.join(times)}"
