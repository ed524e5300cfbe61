"""Measuring: all engines take turns in a cell, over all cells of all workloads of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lingon.bench.decode.measure import Rounds, measure_in_turns
from lingon.bench.decode.plan import LINGON, TRANSFORMERS, EngineSetting, title
from lingon.bench.decode.results import Row, TimedRuns, row_of, speedup
from lingon.bench.engines.agreement import OutputComparison
from lingon.bench.engines.base import Cell
from lingon.bench.gpu.plan import GpuOptions, cells_of, engine_settings, sources_of
from lingon.bench.gpu.processes import FallibleEngines
from lingon.bench.resume import ResumeFile
from lingon.bench.roofline.counts import count_decoding
from lingon.bench.roofline.device_floor import floor_of
from lingon.bench.roofline.device_peaks import DevicePeaks
from lingon.bench.roofline.multiply_adds import multiply_adds_of
from lingon.bench.workloads.workload import Workload
from lingon.bundle import open_bundle
from lingon.machine import usable_cores

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
        """All rows of workloads with the same bundle."""
        bundle = open_bundle(workloads[0].bundle)
        settings = engine_settings(self.options, 1 if self.options.quick else usable_cores())
        rows: list[Row] = []
        with FallibleEngines(bundle, settings, self.cache, self.show) as engines:
            model = _ModelRun(self, engines)
            for workload in workloads:
                for cell in cells_of(workload, self.options):
                    rows += model.rows(workload, cell)
        return rows


class _ModelRun:
    """The cells of one model."""

    def __init__(self, benchmark: GpuBenchmark, engines: FallibleEngines) -> None:
        self._benchmark, self._engines = benchmark, engines
        self._model = multiply_adds_of(engines.bundle)
        self._layers = len(list(engines.bundle.manifest.states_of("cache"))) // 2  # a layer has keys and values
        self._comparison = OutputComparison(engines.bundle, threads=usable_cores(), tie=TIE)

    def rows(self, workload: Workload, cell: Cell) -> list[Row]:
        """The rows of a cell, from the resume file or measured now."""
        key = " ".join(str(value) for value in asdict(cell).values())
        rows: list[Row] | None = self._benchmark.resume_file.get(key)
        if rows is None:
            rows = self._measure(cell, sources_of(workload, cell))
            self._benchmark.resume_file.add(key, rows)
        times = (f"{row['engine']} {row['median_ms']:.1f}" for row in rows if row["reason"] is None)
        self._benchmark.write(f"{title(cell)}, ms: {', '.join(times)}")
        return rows

    def _measure(self, cell: Cell, sources: Sequence[Sequence[int]]) -> list[Row]:
        measures, reasons = self._engines.measures(cell, sources)
        timed = measure_in_turns(
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
            "load_s": round(engine.load_s, 3),
            "disk_mb": round(engine.disk_mb, 1),
            "peak_mb": round(engine.peak_mb, 1),
            "reason": None,
        }


def missing_row(engine_setting: EngineSetting, cell: Cell, reason: str) -> Row:
    """The row of an engine that could not decode a cell. reason: why, in one line."""
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
