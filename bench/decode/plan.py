"""The plan of `lingon bench decode`: cells, settings of engines, and the rows of the results."""

from __future__ import annotations

import hashlib
import importlib
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeVar

import lingon.bench.engines
from lingon.bench.engines.base import Cell, Setting, Tokens
from lingon.bench.engines.conversion import unconvertible
from lingon.bench.workloads import Workload
from lingon.bundle.names import MANIFEST, WEIGHTS
from lingon.bundle.store import Bundle
from lingon.errors import SettingsError
from lingon.serving.models.loading import default_engines, threads_per_engine

BATCHES = {1: (1, 8, 32, 128), 4: (1, 8, 32)}
"""The batch sizes that are measured, by beam size."""

LINGON = "lingon"
CTRANSLATE2 = "ctranslate2"
STAGGERED = "lingon staggered"
"""The name in the results of Lingon with sentences that arrive one by one."""

TRANSFORMERS = "transformers"
LINGON_GRAPHS = "lingon-cuda-graphs"
TRANSFORMERS_STATIC = "transformers-static"
TORCH_GRAPH = "torch-graph"

MODULES = {
    LINGON: "lingon.bench.engines.lingon",
    LINGON_GRAPHS: "lingon.bench.engines.lingon",
    CTRANSLATE2: "lingon.bench.engines.ctranslate2",
    TRANSFORMERS: "lingon.bench.engines.transformers",
    "optimum": "lingon.bench.engines.optimum",
    TRANSFORMERS_STATIC: "lingon.bench.engines.transformers",
    TORCH_GRAPH: "lingon.bench.engines.torch_graph",
}
"""The module of every engine; lingon.bench.engines.base describes its functions."""

ENGINES = (LINGON, CTRANSLATE2, TRANSFORMERS, "optimum")
"""The engines of `lingon bench decode`; lingon.bench.gpu names those of `lingon bench gpu`."""

READ_BUNDLES = (LINGON, LINGON_GRAPHS, TORCH_GRAPH)
"""Engines that read the bundle itself, so that no files are written for them."""

PRECISIONS: tuple[Literal["fp32", "int8"], ...] = ("fp32", "int8")
WITH_SHORTLIST = (LINGON, CTRANSLATE2)


@dataclass(frozen=True, kw_only=True, slots=True)
class CellFilter:
    """The batch sizes and beam sizes to which the user limits the table; an empty tuple means all."""

    batches: tuple[int, ...] = ()
    beam_sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        choices = {"--beam-size": (self.beam_sizes, set(BATCHES)), "--batch": (self.batches, set(BATCHES[1]))}
        for option, (values, offered) in choices.items():
            if unknown := sorted(set(values) - offered):
                raise SettingsError(f"{option} must be of {', '.join(map(str, sorted(offered)))}, got {unknown[0]}")


def cells_of(workload: Workload, max_length: int, cell_filter: CellFilter, *, shortlist: bool) -> list[Cell]:
    """The cells of a workload: greedy, beam search, and greedy with a shortlist if the bundle has one.

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
    """The sources of one run: a single batch if every output has the same length, otherwise all sources."""
    return workload.sources if workload.exact_length is None else workload.sources[: cell.batch]


def title(cell: Cell) -> str:
    """The description of a cell for messages."""
    return f"{cell.workload}, batch {cell.batch}, beam {cell.beam_size}{', shortlist' if cell.shortlist else ''}"


@dataclass(frozen=True, slots=True)
class EngineSetting:
    """An engine in one setting; each runs in its own process."""

    engine: str
    setting: Setting

    @property
    def label(self) -> str:
        """Engine, precision and workers x threads, such as "ctranslate2 int8 2x1"."""
        return f"{self.engine} {self.setting.precision} {self.shape}"

    @property
    def shape(self) -> str:
        """Workers x threads of each worker, such as "2x1"."""
        return f"{self.setting.workers}x{self.setting.threads}"

    def supports(self, cell: Cell) -> bool:
        """Whether this setting can decode the cell as it is specified.

        CTranslate2 with more workers than sentences in a batch would decode more sentences at a time than the cell
        allows. Only some engines have a shortlist.
        """
        keeps_batch = self.engine == LINGON or self.setting.workers <= cell.batch
        return keeps_batch and (not cell.shortlist or self.engine in WITH_SHORTLIST)


def engine_settings(engines: Sequence[str], cores: int) -> list[EngineSetting]:
    """All settings in which these engines are measured on a machine with so many cores; no names mean all engines."""
    if unknown := [engine for engine in engines if engine not in ENGINES]:
        raise SettingsError(f"--engine must be of {', '.join(ENGINES)}, got {unknown[0]}")
    shapes = dict.fromkeys([(1, cores), (cores, 1), (1, 1)])  # its threads may delay each other in short steps
    of_ctranslate2 = [
        Setting(precision=precision, workers=workers, threads=threads)
        for precision in PRECISIONS
        for workers, threads in shapes
    ]
    of_lingon = [  # the defaults of `lingon serve`
        Setting(precision=precision, workers=default_engines(), threads=threads_per_engine(default_engines()))
        for precision in PRECISIONS
    ]
    by_engine = {LINGON: of_lingon, CTRANSLATE2: of_ctranslate2}
    others = [Setting(workers=1, threads=cores)]
    return [
        EngineSetting(name, setting)
        for name in ENGINES
        if name in (engines or ENGINES)
        for setting in by_engine.get(name, others)
    ]


def available(settings: Iterable[EngineSetting], bundle: Bundle) -> tuple[list[EngineSetting], list[str]]:
    """The settings that can run this bundle here, and a line with the reason for every engine that cannot."""
    usable: list[EngineSetting] = []
    lines: dict[str, None] = {}
    for each in settings:
        reason = unavailable_reason(each, bundle)
        if reason is None:
            usable.append(each)
        else:
            lines[f"{each.engine} is left out: {reason}"] = None
    return usable, list(lines)


def unavailable_reason(engine_setting: EngineSetting, bundle: Bundle) -> str | None:
    """Why an engine cannot run a bundle here; None if it can, as far as is known before it is loaded."""
    if (
        engine_setting.engine in (LINGON, LINGON_GRAPHS)
        and engine_setting.setting.precision not in bundle.manifest.precisions
    ):
        return f"{bundle.folder} has no precision {engine_setting.setting.precision}"
    reason: str | None = module_of(engine_setting.engine).unavailable_reason()
    if reason is None and engine_setting.engine not in (LINGON, LINGON_GRAPHS):
        reason = unconvertible(bundle)
    return reason


def module_of(engine: str) -> ModuleType:
    """The module of an engine; the library that it wraps is imported later, when the engine is loaded."""
    return importlib.import_module(MODULES[engine])


def folder_of(engine: str, bundle: Bundle, cache: Path) -> Path:
    """The folder with an engine's model files: the bundle for READ_BUNDLES, a folder below cache for other engines.

    The name of that folder contains a digest of the manifest and of the code that converts the bundle, so that
    outdated files are never measured.
    """
    if engine in READ_BUNDLES:
        return bundle.folder
    digest = hashlib.sha256((bundle.folder / MANIFEST).read_bytes())
    for path in sorted(Path(lingon.bench.engines.__path__[0]).glob("*.py")):
        digest.update(path.read_bytes())
    return (
        cache
        / MODULES[engine].rpartition(".")[2]
        / f"{bundle.manifest.name}-{bundle.manifest.version}-{digest.hexdigest()[:12]}"
    )


def bytes_of(engine_setting: EngineSetting, folder: Path, bundle: Bundle) -> int:
    """The size on disk of the model files that a setting reads; of a bundle, only those of its precision."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    if engine_setting.engine in READ_BUNDLES:
        # fp32 weights that fp16 holds exactly are those of fp16.
        precision = engine_setting.setting.precision
        weights = bundle.manifest.precisions[precision].weights
        unread = {name for name in bundle.manifest.precisions if name != precision}
        parts = [(path, path.relative_to(folder).parts) for path in files]
        files = [
            path for path, (first, *rest) in parts if first not in unread and (first != WEIGHTS or rest[0] in weights)
        ]
    return sum(path.stat().st_size for path in files)


Key = TypeVar("Key")
Row = dict[str, Any]
"""One row of the JSON file, by the names that it has there."""


@dataclass(frozen=True, slots=True)
class TimedRuns:
    """The measurements of one engine in one cell: milliseconds of each run, and the outputs of the last round."""

    runs_ms: list[float]
    outputs: Tokens


def row_of(engine: str, engine_setting: EngineSetting, cell: Cell, timed: TimedRuns) -> Row:
    """The columns that follow from the times alone. engine: the engine's name, or `STAGGERED`."""
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
    """The rows of one cell with two ratios: to CTranslate2's fastest setting of the cell, and to its fastest in fp32.

    A ratio above 1 means that the row is faster.
    """
    runs = {index: row["runs_ms"] for index, row in enumerate(rows)}
    candidates = [index for index, row in enumerate(rows) if row["engine"] == CTRANSLATE2]
    best = fastest(runs, candidates)
    best_fp32 = fastest(runs, [index for index in candidates if rows[index]["precision"] == "fp32"])
    return [
        {
            **row,
            "ratio_to_ctranslate2": _rounded_ratio(runs, best, index),
            "ratio_to_ctranslate2_fp32": _rounded_ratio(runs, best_fp32, index) if row["precision"] == "fp32" else None,
        }
        for index, row in enumerate(rows)
    ]


def _rounded_ratio(runs: dict[int, list[float]], reference: int | None, index: int) -> float | None:
    return None if reference is None else round(speedup(runs[reference], runs[index]), 3)


def fastest(runs: Mapping[Key, Sequence[float]], among: Iterable[Key]) -> Key | None:
    """The one of `among` with the lowest median; None if there are no runs of any. runs: milliseconds."""
    measured = [key for key in among if runs.get(key)]
    return min(measured, key=lambda key: statistics.median(runs[key]), default=None)


def speedup(reference: Sequence[float], runs: Sequence[float]) -> float:
    """How many times faster `runs` is than `reference`: the median ratio over the rounds that both have.

    Each round is compared with the same round. reference, runs: milliseconds of each round, in the order of rounds
    """
    return statistics.median(slow / quick for slow, quick in zip(reference, runs, strict=False))


def by_cell(rows: Sequence[Row]) -> dict[tuple[Any, ...], list[Row]]:
    """Rows grouped by cell: workload, shortlist, beam size, batch size."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["work"], row["shortlist"], row["beam_size"], row["batch"]), []).append(row)
    return groups


def best_settings(rows: Sequence[Row]) -> list[Row]:
    """For every engine and precision in every cell, the row of the fastest setting."""
    best: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        key = tuple(row[name] for name in ("work", "engine", "precision", "shortlist", "batch", "beam_size"))
        if key not in best or row["median_ms"] < best[key]["median_ms"]:
            best[key] = row
    return list(best.values())


def without_staggered(rows: Sequence[Row]) -> list[Row]:
    """The rows of runs in which all sentences arrive at the start."""
    return [row for row in rows if row["engine"] != STAGGERED]
