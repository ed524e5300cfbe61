"""`lingon bench decode`: cells, rounds with a run of each engine, the rows of the results, and their tables."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console, Group
from rich.text import Text

from lingon.bench.engines.agreement import OutputComparison
from lingon.bench.engines.base import Cell, Tokens
from lingon.bench.engines.worker import (
    CTRANSLATE2,
    FXTRANSLATE,
    LINGON,
    Engines,
    EngineSetting,
    Measure,
    engine_settings,
    measure_of,
)
from lingon.bench.options import check_choice
from lingon.bench.published_shapes import PUBLISHED, QUICK, published_workload
from lingon.bench.results_file import ResumeFile, Row, new_table, save, search_name, terminal
from lingon.bench.roofline import (
    Peaks,
    best_peaks,
    count_decoding,
    floor_ms,
    mean_shortlist_size,
    measure_peaks,
    multiply_adds_of,
)
from lingon.bench.synthetic import Shape, base_workload
from lingon.bench.workloads import Workload, shipped_workloads
from lingon.bundle.store import open_bundle
from lingon.errors import SettingsError
from lingon.machine import usable_cores
from lingon.scoring import score

BATCHES = {1: (1, 8, 32, 128), 4: (1, 8, 32)}
"""The batch sizes that are measured, by beam size."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CellFilter:
    """The batch sizes and beam sizes to which the user limits the table. An empty tuple means all."""

    batches: tuple[int, ...] = ()
    beam_sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_choice("--beam-size", self.beam_sizes, BATCHES)
        check_choice("--batch", self.batches, BATCHES[1])


def cells_of(workload: Workload, max_length: int, cell_filter: CellFilter, *, shortlist: bool) -> list[Cell]:
    """Return the cells of a workload: greedy, beam search, and greedy with a shortlist if the bundle has one.

    max_length: maximum number of target tokens, if the workload has no exact length
    """
    cells = []
    for with_shortlist in (False, True) if shortlist else (False,):
        for beam_size, batches in BATCHES.items():
            if with_shortlist and beam_size > 1:
                continue
            if cell_filter.beam_sizes and beam_size not in cell_filter.beam_sizes:
                continue
            for batch in batches:
                if not cell_filter.batches or batch in cell_filter.batches:
                    cells.append(_cell(workload, batch, beam_size, with_shortlist, max_length))
    return cells


def _cell(workload: Workload, batch: int, beam_size: int, shortlist: bool, max_length: int) -> Cell:
    return Cell(
        workload=workload.name,
        batch=batch,
        beam_size=beam_size,
        shortlist=shortlist,
        exact_length=workload.exact_length,
        max_length=max_length,
    )


def sources_of(workload: Workload, cell: Cell) -> Sequence[Sequence[int]]:
    """Return the sources of one run: a single batch if every output has the same length, otherwise all sources."""
    return workload.sources if workload.exact_length is None else workload.sources[: cell.batch]


def title(cell: Cell) -> str:
    """Return the description of a cell for messages."""
    return f"{cell.workload}, batch {cell.batch}, beam {cell.beam_size}{', shortlist' if cell.shortlist else ''}"


Key = TypeVar("Key")


STAGGERED = "lingon staggered"
"""The name in the results of Lingon with sentences that arrive one by one."""

EngineMode = tuple[str, EngineSetting]
"""A name in the results (the engine's, or STAGGERED) and the setting of the engine."""


@dataclass(frozen=True, slots=True)
class TimedRuns:
    """The measurements of one engine in one cell: milliseconds of each run, and the outputs of the last round."""

    runs_ms: list[float]
    outputs: Tokens


def row_of(engine: str, engine_setting: EngineSetting, cell: Cell, timed: TimedRuns) -> Row:
    """Return the columns that follow from the times alone. engine: the engine's name, or `STAGGERED`."""
    median = statistics.median(timed.runs_ms)
    return {
        "work": cell.workload,
        "engine": engine,
        "precision": engine_setting.setting.precision,
        "settings": engine_setting.shape,
        "shortlist": cell.shortlist,
        "batch": cell.batch,
        "beam_size": cell.beam_size,
        "runs_ms": [round(run, 3) for run in timed.runs_ms],
        "median_ms": round(median, 3),
        "min_ms": round(min(timed.runs_ms), 3),
        "tokens_per_s": round(1000 * sum(map(len, timed.outputs)) / median, 1),
    }


def with_ratios(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of one cell with ratios to the fastest setting of CTranslate2, also in fp32, and of fxtranslate.

    A ratio above 1 means that the row is faster.
    """
    runs = {index: row["runs_ms"] for index, row in enumerate(rows)}
    candidates = [index for index, row in enumerate(rows) if row["engine"] == CTRANSLATE2]
    best = fastest(runs, candidates)
    best_fxtranslate = fastest(runs, [index for index, row in enumerate(rows) if row["engine"] == FXTRANSLATE])
    best_fp32 = fastest(runs, [index for index in candidates if rows[index]["precision"] == "fp32"])
    return [
        {
            **row,
            "ratio_to_ctranslate2": _rounded_ratio(runs, best, index),
            "ratio_to_fxtranslate": _rounded_ratio(runs, best_fxtranslate, index),
            "ratio_to_ctranslate2_fp32": _rounded_ratio(runs, best_fp32, index) if row["precision"] == "fp32" else None,
        }
        for index, row in enumerate(rows)
    ]


def _rounded_ratio(runs: dict[int, list[float]], reference: int | None, index: int) -> float | None:
    return None if reference is None else round(speedup(runs[reference], runs[index]), 3)


def fastest(runs: Mapping[Key, Sequence[float]], among: Iterable[Key]) -> Key | None:
    """Return the one of `among` with the lowest median; None if there are no runs of any. runs: milliseconds."""
    measured = [key for key in among if runs.get(key)]
    return min(measured, key=lambda key: statistics.median(runs[key]), default=None)


def speedup(reference: Sequence[float], runs: Sequence[float]) -> float:
    """Return how many times faster `runs` is than `reference`: the median ratio over the rounds that both have.

    Each round is compared with the same round. reference, runs: milliseconds of each round, in the order of rounds
    """
    return statistics.median(slow / quick for slow, quick in zip(reference, runs, strict=False))


def by_cell(rows: Sequence[Row]) -> dict[tuple[Any, ...], list[Row]]:
    """Return the rows by cell: workload, shortlist, beam size, batch size."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["work"], row["shortlist"], row["beam_size"], row["batch"]), []).append(row)
    return groups


def best_settings(rows: Sequence[Row]) -> list[Row]:
    """Return the row of the fastest setting of every engine and precision in every cell."""
    best: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        key = tuple(row[name] for name in ("work", "engine", "precision", "shortlist", "batch", "beam_size"))
        if key not in best or row["median_ms"] < best[key]["median_ms"]:
            best[key] = row
    return list(best.values())


def without_staggered(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of runs in which all sentences arrive at the start."""
    return [row for row in rows if row["engine"] != STAGGERED]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rounds:
    """The number and the length of the runs of each engine in a cell."""

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
        """Return the number of runs, and of repetitions within a run, for work that takes warm_ms after the warm-up."""
        runs = min(self.runs, self.slow_runs) if warm_ms > 1000 * self.slow_s else self.runs
        return runs, max(math.ceil(self.min_run_ms / warm_ms), 1)


def measure_rounds(
    measures: Mapping[Key, Measure], rounds: Rounds, show: Callable[[str], None]
) -> dict[Key, TimedRuns]:
    """Warm up all engines, then run each in every round, so that slow periods of the machine affect all alike.

    Each round begins with another engine. show: receives a line about each round, for a progress display
    """
    plans = {key: _warm_up(measure, rounds) for key, measure in measures.items()}
    timed: dict[Key, TimedRuns] = {key: TimedRuns([], []) for key in measures}
    keys = list(measures)
    for number in range(rounds.runs if measures else 0):
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
        """Return all rows of all workloads. Workloads with the same bundle share its processes."""
        rows: list[Row] = []
        for folder in dict.fromkeys(workload.bundle for workload in workloads):
            own = [each for each in workloads if each.bundle == folder]
            twin = None if own[0].twin is None else open_bundle(own[0].twin)
            with Engines(open_bundle(folder), self.settings, self.cache, self.show, twin) as engines:
                rows += self._measure_bundle(engines, own)
        return rows

    def _measure_bundle(self, engines: Engines, workloads: Sequence[Workload]) -> list[Row]:
        engines.load()
        for line in dict.fromkeys(f"{each.engine} is left out: {why}" for each, why in engines.missing.items()):
            self.write(line)
        if not engines.loaded:
            raise SettingsError(f"--engine: none of the engines can run {engines.bundle.folder} here")
        rows: list[Row] = []
        for workload in workloads:
            run = _WorkloadRun(self, engines, workload)
            rows += [row for cell in run.cells() for row in run.rows(cell)]
        return rows


class _WorkloadRun:
    """The cells of one workload."""

    def __init__(self, benchmark: DecodeBenchmark, engines: Engines, workload: Workload) -> None:
        self._benchmark, self._engines, self._workload = benchmark, engines, workload
        self._models = [multiply_adds_of(each) for each in (engines.bundle, engines.twin) if each is not None]
        self._tokenizer = engines.bundle.tokenizer() if workload.references else None
        self._comparison = OutputComparison(engines.bundle)
        for engine in engines.loaded.values():
            engine.process.ask(do="sources", sources=workload.sources)

    def cells(self) -> list[Cell]:
        """Return the cells of the workload that the user has not excluded."""
        manifest = self._engines.bundle.manifest
        longest, shortlist = manifest.limits.max_target_tokens, manifest.shortlist is not None
        return cells_of(self._workload, longest, self._benchmark.cell_filter, shortlist=shortlist)

    def rows(self, cell: Cell) -> list[Row]:
        """Return the rows of a cell, from the resume file or measured now."""
        rows: list[Row] = self._benchmark.resume_file.record(cell.key, lambda: self._measure(cell))
        self._benchmark.write(_cell_line(cell, rows))
        return rows

    def _measure(self, cell: Cell) -> list[Row]:
        sources = sources_of(self._workload, cell)
        measures = self._measures(cell, len(sources))
        timed = measure_rounds(
            measures, self._benchmark.rounds, lambda step: self._benchmark.show(f"{title(cell)}: {step}")
        )
        reference = reference_of(timed)
        return with_ratios([self._row(mode, cell, sources, found, reference) for mode, found in timed.items()])

    def _measures(self, cell: Cell, count: int) -> dict[EngineMode, Measure]:
        """Return the function that measures the first `count` sources, for each mode that supports the cell."""
        found: dict[EngineMode, Measure] = {}
        for each, engine in self._engines.loaded.items():
            if each.supports(cell):
                found[each.engine, each] = measure_of(engine, cell, count)
                if each.engine == LINGON and cell.exact_length and cell.batch > 1:
                    found[STAGGERED, each] = measure_of(engine, cell, count, staggered=True)
        return found

    def _row(
        self,
        mode: EngineMode,
        cell: Cell,
        sources: Sequence[Sequence[int]],
        timed: TimedRuns,
        reference: Tokens | None,
    ) -> Row:
        name, engine_setting = mode
        row, engine = row_of(name, engine_setting, cell, timed), self._engines.loaded[engine_setting]
        precision = engine_setting.setting.precision
        model = self._models[engine.of_twin]
        pieces = mean_shortlist_size(self._engines.bundle, sources) if cell.shortlist else model.vocab
        counts = count_decoding(sources, timed.outputs, cell, pieces)
        floor = floor_ms(model, self._benchmark.peaks, precision, counts)
        explain = precision == "fp32" and not cell.shortlist and not engine.of_twin
        return {
            **row,
            "floor_ms": round(floor, 3),
            "fraction_of_floor": round(floor / row["median_ms"], 3),
            **self._quality(timed.outputs),
            **self._comparison.columns(cell, sources, reference, timed.outputs, explain=explain),
            **engine.columns(),
        }

    def _quality(self, outputs: Tokens) -> dict[str, Any]:
        """Return BLEU and chrF; they are None if the workload has no references."""
        if self._tokenizer is None:
            return {"bleu": None, "chrf": None}
        texts = [self._tokenizer.decode(output) for output in outputs]
        return quality_of(texts, self._workload)


def quality_of(texts: Sequence[str], workload: Workload) -> dict[str, Any]:
    """Return BLEU and chrF of translations of the first sources of a workload with references."""
    scores = score(texts, workload.references[: len(texts)], workload.language)
    return {"bleu": round(scores.bleu, 2), "chrf": round(scores.chrf, 2)}


def reference_of(timed: Mapping[EngineMode, TimedRuns]) -> Tokens | None:
    """Return the outputs with which the others are compared: of Lingon, of fp32 if that is measured."""
    own = [
        (setting.setting.precision != "fp32", runs.outputs) for (name, setting), runs in timed.items() if name == LINGON
    ]
    return min(own, key=lambda each: each[0])[1] if own else None


def _cell_line(cell: Cell, rows: Sequence[Row]) -> str:
    """Return the times of a cell in one line, which is shown while other cells are measured."""
    times = (f"{row['engine']} {row['precision']} {row['settings']} {row['median_ms']:.0f}" for row in rows)
    return f"{title(cell)}, ms: {', '.join(times)}"


PLAIN: dict[str, Any] = {"box": None, "padding": (0, 1, 0, 0)}
"""The style of the tables."""

SEARCHES = ((False, 1, "greedy"), (False, 4, "beam 4"), (True, 1, "shortlist"))
"""Kinds of search: with a shortlist or not, beam size, name."""


def tables(rows: Sequence[Row], full_runs: int) -> list[Group]:
    """Return a table of times and a table of the other measurements for each workload.

    full_runs: times of fewer runs are marked with a star
    """
    found = []
    for workload in dict.fromkeys(row["work"] for row in rows):
        own = without_staggered([row for row in rows if row["work"] == workload])
        found += [_times_table(workload, own, full_runs), _engines_table(workload, own)]
    return found


def staggered_lines(rows: Sequence[Row]) -> list[str]:
    """Return the worst slowdown of a cell if sentences arrive one by one, for each workload and precision."""
    worst: dict[tuple[str, str], tuple[float, str]] = {}
    for (workload, shortlist, beam_size, batch), own in by_cell(rows).items():
        for late in (row for row in own if row["engine"] == STAGGERED):
            together = next(row for row in own if row["engine"] == LINGON and _setting(row)[1:] == _setting(late)[1:])
            share = late["median_ms"] / together["median_ms"]
            cell = f"batch {batch}, beam {beam_size}{', shortlist' if shortlist else ''}, {late['settings']}"
            key = (workload, late["precision"])
            worst[key] = max(worst.get(key, (0.0, "")), (share, cell))
    return [
        f"{workload}, {precision}: sentences that arrive one by one take at most {share:.2f} times as long ({cell})"
        for (workload, precision), (share, cell) in worst.items()
    ]


def agreement_lines(rows: Sequence[Row]) -> list[str]:
    """Return the lowest agreement of the cells of each workload, other fp32 engine and search, and all causes."""
    found: dict[tuple[str, str, int], list[Row]] = {}
    for row in rows:
        if row["causes"] is not None and not row["engine"].startswith(LINGON):
            found.setdefault((row["work"], row["engine"], row["beam_size"]), []).append(row)
    return [_agreement_line(key, own) for key, own in found.items()]


def _agreement_line(key: tuple[str, str, int], rows: Sequence[Row]) -> str:
    workload, engine, beam_size = key
    lowest = min(row["agreement"] for row in rows)
    return (
        f"{workload}, {search_name(beam_size)}: at least {lowest:.2%} of sentences are the same with {engine} fp32 "
        f"(differences in {len(rows)} cells and settings: {causes_of(rows)})"
    )


def causes_of(rows: Sequence[Row]) -> str:
    """Return how many differences of rows have each cause."""
    causes: Counter[str] = sum((Counter(row["causes"]) for row in rows), Counter())
    return ", ".join(f"{count} {cause}" for cause, count in causes.most_common()) or "none"


def _times_table(workload: str, rows: Sequence[Row], full_runs: int) -> Group:
    """Return a table: engine and precision in the fastest setting of a cell, by beam size and batch size."""
    best = best_settings(rows)
    columns = sorted({(row["beam_size"], row["batch"]) for row in best})
    heads = [str(batch) if beam_size == 1 else f"{batch} beam {beam_size}" for beam_size, batch in columns]
    table = new_table(("batch size",), heads, **PLAIN)
    for shortlist in (False, True):
        own = [row for row in best if row["shortlist"] == shortlist]
        if shortlist and own:
            table.add_section()
            table.add_row("with shortlist:")
        for engine in dict.fromkeys(_engine(row) for row in own):
            line = {(row["beam_size"], row["batch"]): row for row in own if _engine(row) == engine}
            table.add_row(" ".join(engine), *(_time(line.get(column), full_runs) for column in columns))
    fewest = min(len(row["runs_ms"]) for row in best)
    star = f" (* of {fewest})" if fewest < full_runs else ""
    title = (
        f"{workload}: ms, median of {full_runs} runs{star}; speed relative to the fastest setting of {_opponents(best)}"
    )
    return Group(Text(title, "bold"), table)


def _engines_table(workload: str, rows: Sequence[Row]) -> Group:
    """Return a table: resources, share of the floor, agreement and quality of each engine, precision and setting."""
    searches = [search for search in SEARCHES if _scored(rows, search)]
    heads = ["load s", "disk MB", "loaded MB", "decoding MB", "peak MB", "% of floor", "% same output"]
    table = new_table(("",), [*heads, *(f"BLEU chrF {name}" for *_, name in searches)], **PLAIN)
    for setting in dict.fromkeys(_setting(row) for row in rows):
        own = [row for row in rows if _setting(row) == setting]
        table.add_row(" ".join(setting), *_columns(own), *(_quality(own, search) for search in searches))
    title = f"{workload}: workers x threads; floor: lower bound of time; same output: as lingon fp32"
    return Group(Text(title, "bold"), table)


def _columns(rows: Sequence[Row]) -> list[str]:
    floors = [100 * row["fraction_of_floor"] for row in rows]
    same = [100 * row["agreement"] for row in rows if row["agreement"] is not None and not row["shortlist"]]
    return [
        f"{rows[0]['load_s']:.2f}",
        f"{rows[0]['disk_mb']:.0f}",
        *(f"{max(row[name] for row in rows):.0f}" for name in ("loaded_mb", "decoding_mb", "peak_mb")),
        f"{min(floors):.0f}-{max(floors):.0f}",
        f"{min(same):.1f}-{max(same):.1f}" if same else "",
    ]


def _scored(rows: Sequence[Row], search: tuple[bool, int, str]) -> list[Row]:
    """Return the rows of a kind of search that have BLEU, the largest batch last."""
    found = [row for row in rows if (row["shortlist"], row["beam_size"]) == search[:2] and row["bleu"] is not None]
    return sorted(found, key=lambda row: int(row["batch"]))


def _quality(rows: Sequence[Row], search: tuple[bool, int, str]) -> str:
    scored = _scored(rows, search)
    return f"{scored[-1]['bleu']:.1f} {scored[-1]['chrf']:.1f}" if scored else ""


def _time(row: Row | None, full_runs: int) -> str:
    if row is None:
        return ""
    star = "*" if len(row["runs_ms"]) < full_runs else ""
    ratios = [f"{row[name]:.2f}x" for name in OPPONENTS.values() if row[name] is not None]
    return " ".join([f"{row['median_ms']:.{0 if row['median_ms'] >= 10 else 1}f}{star}", *ratios])


OPPONENTS = {CTRANSLATE2: "ratio_to_ctranslate2", FXTRANSLATE: "ratio_to_fxtranslate"}
"""The engines to which a table relates all times, with the columns of the ratios."""


def _opponents(rows: Sequence[Row]) -> str:
    """Return the names of the engines whose ratios a table has, in their order."""
    measured = [engine for engine, column in OPPONENTS.items() if any(row[column] is not None for row in rows)]
    return ", then of ".join(measured or [CTRANSLATE2])


def _engine(row: Row) -> tuple[Any, ...]:
    """Return engine and precision, and that the engine computes the twin of the model."""
    return row["engine"], row["precision"], *(["twin"] if row["of_twin"] else [])


def _setting(row: Row) -> tuple[Any, ...]:
    return *_engine(row), row["settings"]


WORKLOADS = ("base", "shipped")
"""The workloads of a run that names none. Those in lingon.bench.published_shapes must be named."""

SHIPPED_SENTENCES, PUBLISHED_SENTENCES = 512, 64
"""Sentences of each test set, and of a workload in a published shape."""

TINY = Shape(layers=2, dim=64, heads=2, ffn=128, vocab=400)


@dataclass(frozen=True, kw_only=True, slots=True)
class DecodeOptions:
    """The options of the command. An empty tuple selects everything."""

    workloads: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    batches: tuple[int, ...] = ()
    beam_sizes: tuple[int, ...] = ()
    runs: int = 7
    slow: float = 10.0  # seconds
    sentences: int | None = None
    models: tuple[Path, ...] = (Path("models/en-de"),)
    data: Path | None = None
    test_sets: tuple[str, ...] = ()
    quick: bool = False

    def __post_init__(self) -> None:
        check_choice("--work", self.workloads, (*WORKLOADS, *PUBLISHED))
        if self.sentences is not None and self.sentences < 1:
            raise SettingsError(f"--sentences must be at least 1, got {self.sentences}")

    def reduced(self) -> DecodeOptions:
        """Return the options of a quick run: fewer batch sizes, runs and sentences."""
        return replace(self, batches=self.batches or (1, 8), runs=2, sentences=min(self.sentences or 16, 16))


def run(options: DecodeOptions, results: Path, cache: Path, *, resume: bool) -> None:
    """Measure, show the tables and write the result files, which appear only when everything is measured."""
    console = terminal()
    options = options.reduced() if options.quick else options
    resume_file = ResumeFile.of(cache / "decode.part.jsonl", asdict(options), resume=resume)
    with console.status("preparing the workloads") as status:
        workloads = workloads_of(options, cache)
        status.update("measuring the machine's peaks")
        peaks = resume_file.record("peaks", lambda: measure_peaks(rounds=1 if options.quick else 10))
        benchmark = DecodeBenchmark(
            settings=engine_settings(options.engines, usable_cores(), options.precisions),
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
    save("decode", rows, results, peaks=peaks, works=facts)
    resume_file.delete()


def workloads_of(options: DecodeOptions, cache: Path) -> list[Workload]:
    """Return the selected workloads."""
    workloads, selected = list[Workload](), options.workloads or WORKLOADS
    if "base" in selected:
        workloads.append(base_workload(cache, TINY if options.quick else Shape()))
    if "shipped" in selected:
        sentences = options.sentences or SHIPPED_SENTENCES
        workloads += shipped_workloads(options.models, options.data, sentences, options.test_sets)
    for name, shape in (QUICK if options.quick else PUBLISHED).items():
        if name in selected:
            workloads.append(published_workload(cache, name, shape, options.sentences or PUBLISHED_SENTENCES))
    return workloads


def _show(console: Console, rows: list[Row], facts: dict[str, dict[str, float]], runs: int) -> None:
    for table in tables(rows, runs):
        console.print()
        console.print(table)
    console.print()
    for line in (*staggered_lines(rows), *agreement_lines(rows)):
        console.print(line, highlight=False, soft_wrap=True)
    for workload, known in facts.items():
        values = ", ".join(f"{fact} {value:g}" for fact, value in known.items())
        console.print(f"{workload}: {values}", highlight=False, soft_wrap=True)
