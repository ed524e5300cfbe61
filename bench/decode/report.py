"""The tables that a terminal shows: times and ratios by cell, and what each engine takes besides time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from lingon.bench.decode.plan import OURS, RIVAL, STAGGERED
from lingon.bench.decode.results import Row, best_settings, cells, together

WIDTH = 104
"""Characters that the widest table takes."""

KINDS = ((False, 1, "greedy"), (False, 4, "beam 4"), (True, 1, "shortlist"))
"""Whether over a shortlist, beam size, and what that is called."""


def tables(rows: Sequence[Row], full_runs: int) -> list[Group]:
    """For each work its times, then what else is known of the engines. full_runs: fewer are marked with a star."""
    found = []
    for work in dict.fromkeys(row["work"] for row in rows):
        own = together([row for row in rows if row["work"] == work])
        found += [_times(work, own, full_runs), _engines(work, own)]
    return found


def staggered(rows: Sequence[Row]) -> list[str]:
    """How sentences that arrive one by one fare against all at once: of every work and precision the worst cell."""
    worst: dict[tuple[str, str], tuple[float, str]] = {}
    for (work, shortlist, beam_size, batch), own in cells(rows).items():
        for late in (row for row in own if row["engine"] == STAGGERED):
            prompt = next(row for row in own if row["engine"] == OURS and _member(row)[1:] == _member(late)[1:])
            share = late["median_ms"] / prompt["median_ms"]
            where = f"batch {batch}, beam {beam_size}{', shortlist' if shortlist else ''}, {late['settings']}"
            key = (work, late["precision"])
            worst[key] = max(worst.get(key, (0.0, "")), (share, where))
    return [
        f"{work}, {precision}: sentences that arrive one by one take at most {share:.2f} times as long ({where})"
        for (work, precision), (share, where) in worst.items()
    ]


def _times(work: str, rows: Sequence[Row], full_runs: int) -> Group:
    """Rows: engine and precision, each in its fastest setting of the cell; columns: beam size and batch."""
    best = best_settings(rows)
    columns = sorted({(row["beam_size"], row["batch"]) for row in best})
    table = _table("batch")
    for beam_size, batch in columns:
        table.add_column(str(batch) if beam_size == 1 else f"{batch} beam {beam_size}", justify="right")
    for shortlist in (False, True):
        own = [row for row in best if row["shortlist"] == shortlist]
        if shortlist and own:
            table.add_section()
            table.add_row("over a shortlist:")
        for kind in dict.fromkeys(_kind(row) for row in own):
            line = {(row["beam_size"], row["batch"]): row for row in own if _kind(row) == kind}
            table.add_row(" ".join(kind), *(_time(line.get(column), full_runs) for column in columns))
    fewest = min(len(row["runs_ms"]) for row in best)
    star = f" (* of {fewest})" if fewest < full_runs else ""
    title = f"{work}: ms, medians of {full_runs} runs{star}; times as fast as {RIVAL} in its fastest setting"
    return Group(Text(title, "bold"), table)


def _engines(work: str, rows: Sequence[Row]) -> Group:
    """Rows: engine, precision and setting; what they take, how near they come to the floor, what their output is."""
    table = _table("")
    kinds = [kind for kind in KINDS if _scored(rows, kind)]
    heads = ["load s", "disk MB", "peak MB", "% of floor", "% same tokens"]
    for head in (*heads, *(f"BLEU chrF {name}" for *_, name in kinds)):
        table.add_column(head, justify="right", max_width=11)
    for member in dict.fromkeys(_member(row) for row in rows):
        own = [row for row in rows if _member(row) == member]
        table.add_row(" ".join(member), *_facts(own), *(_quality(own, kind) for kind in kinds))
    title = f"{work}: workers x threads, and what else is known (same tokens: of sentences, as of lingon fp32)"
    return Group(Text(title, "bold"), table)


def _facts(rows: Sequence[Row]) -> list[str]:
    floors = [100 * row["fraction_of_floor"] for row in rows]
    same = [100 * row["agreement"] for row in rows if row["agreement"] is not None and not row["shortlist"]]
    return [
        f"{rows[0]['load_s']:.2f}",
        f"{rows[0]['disk_mb']:.0f}",
        f"{max(row['peak_mb'] for row in rows):.0f}",
        f"{min(floors):.0f}-{max(floors):.0f}",
        f"{min(same):.1f}-{max(same):.1f}" if same else "",
    ]


def _scored(rows: Sequence[Row], kind: tuple[bool, int, str]) -> list[Row]:
    """The rows of a kind that have BLEU, the largest batch last."""
    found = [row for row in rows if (row["shortlist"], row["beam_size"]) == kind[:2] and row["bleu"] is not None]
    return sorted(found, key=lambda row: int(row["batch"]))


def _quality(rows: Sequence[Row], kind: tuple[bool, int, str]) -> str:
    scored = _scored(rows, kind)
    return f"{scored[-1]['bleu']:.1f} {scored[-1]['chrf']:.1f}" if scored else ""


def _time(row: Row | None, full_runs: int) -> str:
    if row is None:
        return ""
    star = "*" if len(row["runs_ms"]) < full_runs else ""
    ratio = "" if row["ratio_to_ctranslate2"] is None else f" {row['ratio_to_ctranslate2']:.2f}x"
    return f"{row['median_ms']:.{0 if row['median_ms'] >= 10 else 1}f}{star}{ratio}"


def _table(first: str) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column(first, no_wrap=True)
    return table


def _kind(row: Row) -> tuple[Any, ...]:
    return row["engine"], row["precision"]


def _member(row: Row) -> tuple[Any, ...]:
    return row["engine"], row["precision"], row["settings"]
