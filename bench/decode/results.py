"""The rows of the results: one for each engine, setting and cell, with ratios once a cell is measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from lingon.bench.decode.plan import CTRANSLATE2, STAGGERED, EngineSetting
from lingon.bench.engines.base import Cell, Tokens

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
