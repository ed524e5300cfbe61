"""The rows of the result: one for every contestant, setting and cell, complete with ratios once a cell is measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from lingon.bench.decode.plan import RIVAL, STAGGERED, EngineSetting
from lingon.bench.decode.rounds import Timed
from lingon.bench.engines.base import Cell

Name = TypeVar("Name")
Row = dict[str, Any]
"""One row of the JSON file, by the names that it has there."""


def row_of(engine: str, entrant: EngineSetting, cell: Cell, timed: Timed) -> Row:
    """What follows from the times alone; engine: the entrant's, or the name of another way of using it."""
    median = statistics.median(timed.runs_ms)
    return {
        "work": cell.work,
        "engine": engine,
        "precision": entrant.setting.precision,
        "settings": entrant.shape,
        "shortlist": cell.shortlist,
        "batch": cell.batch,
        "beam_size": cell.beam_size,
        "runs_ms": [round(run, 3) for run in timed.runs_ms],
        "median_ms": round(median, 3),
        "min_ms": round(min(timed.runs_ms), 3),
        "tokens_per_s": round(1000 * sum(map(len, timed.outputs)) / median, 1),
    }


def with_ratios(rows: Sequence[Row]) -> list[Row]:
    """The rows of one cell with ratios to CTranslate2's fastest setting of that cell: of all, and of fp32 alone.

    A ratio above 1 says that the row is faster.
    """
    runs = {place: row["runs_ms"] for place, row in enumerate(rows)}
    rivals = [place for place, row in enumerate(rows) if row["engine"] == RIVAL]
    best = fastest(runs, rivals)
    best_fp32 = fastest(runs, [place for place in rivals if rows[place]["precision"] == "fp32"])
    return [
        {
            **row,
            "ratio_to_ctranslate2": _ratio(runs, best, place),
            "ratio_to_ctranslate2_fp32": _ratio(runs, best_fp32, place) if row["precision"] == "fp32" else None,
        }
        for place, row in enumerate(rows)
    ]


def cells(rows: Sequence[Row]) -> dict[tuple[Any, ...], list[Row]]:
    """Rows by their cell: work, shortlist, beam size, batch."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault((row["work"], row["shortlist"], row["beam_size"], row["batch"]), []).append(row)
    return found


def best_settings(rows: Sequence[Row]) -> list[Row]:
    """Of every engine and precision in every cell, the row of its fastest setting."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        key = tuple(row[name] for name in ("work", "engine", "precision", "shortlist", "batch", "beam_size"))
        if key not in found or row["median_ms"] < found[key]["median_ms"]:
            found[key] = row
    return list(found.values())


def together(rows: Sequence[Row]) -> list[Row]:
    """The rows of engines that got their sentences all at once."""
    return [row for row in rows if row["engine"] != STAGGERED]


def _ratio(runs: dict[int, list[float]], best: int | None, place: int) -> float | None:
    return None if best is None else round(ratio(runs[best], runs[place]), 3)


def fastest(runs: Mapping[Name, Sequence[float]], among: Iterable[Name]) -> Name | None:
    """Who of `among` has the lowest median; None where nobody of them ran. runs: milliseconds by name."""
    there = [name for name in among if runs.get(name)]
    return min(there, key=lambda name: statistics.median(runs[name]), default=None)


def ratio(theirs: Sequence[float], ours: Sequence[float]) -> float:
    """How many times faster ours is: the median over the rounds that both ran, each round against the same round.

    theirs, ours: milliseconds of each round, in the order of the rounds
    """
    return statistics.median(one / other for one, other in zip(theirs, ours, strict=False))
