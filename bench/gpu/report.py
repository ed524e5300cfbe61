"""The results of `lingon bench gpu` for the reader: tables for the terminal, lines of text, and a chart."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from lingon.bench.decode.plan import (
    CTRANSLATE2,
    LINGON,
    LINGON_GRAPHS,
    TORCH_GRAPH,
    TRANSFORMERS,
    TRANSFORMERS_STATIC,
)
from lingon.bench.decode.report import Chart, draw
from lingon.bench.decode.results import Row

WIDTH = 120
"""Characters of the widest table."""

COLOURS = {
    LINGON: "#b3541e",
    LINGON_GRAPHS: "#d98a5b",
    TORCH_GRAPH: "#4a7c59",
    CTRANSLATE2: "#1f4e79",
    TRANSFORMERS_STATIC: "#999999",
    TRANSFORMERS: "#555555",
}
CHART = Chart(
    ratio="ratio_to_transformers",
    reference=TRANSFORMERS,
    colours={(engine, precision): colour for engine, colour in COLOURS.items() for precision in ("fp16", "fp32")},
)


def measured(rows: Sequence[Row]) -> list[Row]:
    """The rows of engines that could decode their cell."""
    return [row for row in rows if row["reason"] is None]


def table_of(workload: str, rows: Sequence[Row]) -> Table:
    """The table of one workload: a row for each engine in each cell."""
    table = Table(title=f"{workload}: medians; the floor is a lower bound, in ms a step", title_justify="left")
    heads = ("engine", "tokens/s", "ms a step", "to transformers", "floor", "% of floor", "% same as lingon")
    for head in ("beam", "batch", *heads):
        table.add_column(head, justify="left" if head == "engine" else "right")
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
    """For each engine and reason, the cells that are missing; for each engine, its agreement with Lingon."""
    missing = Counter((row["engine"], row["reason"]) for row in rows if row["reason"] is not None)
    lines = [f"{engine} is missing in {count} cells: {reason}" for (engine, reason), count in missing.items()]
    compared = [row for row in measured(rows) if row["agreement"] is not None and row["engine"] != LINGON]
    for engine in dict.fromkeys(row["engine"] for row in compared):
        own = [row for row in compared if row["engine"] == engine]
        causes: Counter[str] = sum((Counter(row["causes"]) for row in own), Counter())
        counts = ", ".join(f"{count} {cause}" for cause, count in causes.most_common()) or "none"
        sentences = sum(row["sentences"] for row in own)
        same = sum(row["sentences"] * row["agreement"] for row in own) / sentences
        lines.append(f"{engine}: {same:.2%} of {sentences} outputs are those of {LINGON} (differences: {counts})")
    return lines


def write_chart(rows: Sequence[Row], output: Path) -> str:
    """Write the chart of the speed relative to transformers, if there is one; return a line about it."""
    compared = [row for row in measured(rows) if row["ratio_to_transformers"] is not None]
    if not compared:
        return f"no chart: {TRANSFORMERS} was not measured"
    if importlib.util.find_spec("matplotlib") is None:
        return "no chart: matplotlib is not installed"
    draw(compared, output, CHART)
    return f"written: {output}"
