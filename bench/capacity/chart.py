"""The chart of a results file: requests a second by servers, and what one slow server costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lingon.bench.charts import load_pyplot

COLOURS = {"fewest calls": "#1b6ca8", "fewer of two": "#56a3a6", "in turns": "#e08e45", "at random": "#b23a48"}


def draw(path: Path) -> Path:
    """Draw the chart of a results file beside it; returns its path."""
    found = json.loads(path.read_text(encoding="utf-8"))
    pyplot = load_pyplot()
    pyplot.rcParams["svg.hashsalt"] = "lingon"  # so that the same numbers give the same file
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4))
    _loads(left, found)
    _slow(right, found["slow_server"])
    figure.tight_layout()
    output = path.with_suffix(".svg")
    figure.savefig(output, metadata={"Date": None})
    pyplot.close(figure)
    return output


def _loads(axes: Any, found: dict[str, Any]) -> None:
    for policy, colour in COLOURS.items():
        rows = [row for row in found["rows"] if row["policy"] == policy]
        axes.plot(
            [row["servers"] for row in rows], [100 * row["load"] for row in rows], "o-", color=colour, label=policy
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted({row["servers"] for row in found["rows"]}))
    axes.get_xaxis().set_major_formatter(lambda value, _: f"{value:g}")
    axes.set(xlabel="servers, each on one core", ylabel="% of the capacity", ylim=(0, 100))
    axes.set_title(f"Highest load with a 99th percentile of {found['bound_ms']:g} ms", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="lower right")


def _slow(axes: Any, slow: dict[str, Any]) -> None:
    speed = max(row["speed"] for row in slow["rows"])  # the other is too slow for some policies
    shown = [row for row in slow["rows"] if row["speed"] == speed]
    sizes = sorted({row["servers"] for row in shown})
    width = 0.8 / len(COLOURS)
    for number, (policy, colour) in enumerate(COLOURS.items()):
        rows = {row["servers"]: row for row in shown if row["policy"] == policy}
        places = [place + (number - (len(COLOURS) - 1) / 2) * width for place in range(len(sizes))]
        axes.bar(places, [rows[size]["p99_ms"] for size in sizes], width, color=colour, label=policy)
    axes.set_xticks(range(len(sizes)), [str(size) for size in sizes])
    axes.set(xlabel="servers, each on one core", ylabel="99th percentile, ms")
    axes.set_title(f"One server at {100 * speed:g} % of the speed, load {100 * slow['load']:g} %", fontsize=10)
    axes.grid(alpha=0.3, axis="y")
