"""The results of `lingon bench serve` for the reader: tables for the terminal, and a chart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from lingon.bench.results_file import load_pyplot
from lingon.bench.serve.load import Objective
from lingon.bench.serve.plan import BASE_MB, CTRANSLATE2, LINGON

Row = dict[str, Any]
COLOURS = {LINGON: "#1f4e79", CTRANSLATE2: "#b3541e"}
COLUMNS = ("p50", "p95", "p99", "good")
OFFSET: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8}
LINE_STYLES = {"p99_ms": "-", "p95_ms": "--", "p50_ms": ":"}


def tables(rows: Sequence[Row], objective: Objective) -> list[Table]:
    """A table of load points for each beam size, one of goodput, and one of start, single client and memory."""
    beam_sizes = sorted({row["beam_size"] for row in rows if row["kind"] == "load"})
    return [
        *(_loads_table(rows, beam_size) for beam_size in beam_sizes),
        _goodput_table(rows, objective),
        _other_measurements_table(rows),
    ]


def clients_table(rows: Sequence[Row]) -> Table:
    """The table of latencies with a number of clients."""
    table = _table(
        "search",
        "clients",
        "system",
        "p50 ms",
        "p99 ms",
        "sentences/s",
        "errors",
        title="clients that wait for answers",
    )
    for row in _of(rows, "clients"):
        times = ("never" if row[name] is None else f"{row[name]:.1f}" for name in ("p50_ms", "p99_ms"))
        figures = (f"{row['achieved_per_s']:.0f}", str(sum(row["errors"].values())))
        table.add_row(_search(row["beam_size"]), str(row["clients"]), row["system"], *times, *figures)
    return table


def draw(rows: Sequence[Row], objective: Objective, path: Path) -> None:
    """Draw latency against offered load, a panel for each beam size; the suffix of path selects SVG, PNG or PDF."""
    pyplot = load_pyplot()
    beam_sizes = sorted({row["beam_size"] for row in rows if row["kind"] == "load"})
    figure, panels = pyplot.subplots(
        1, len(beam_sizes), figsize=(5.5 * len(beam_sizes), 4.5), sharey=True, squeeze=False, layout="constrained"
    )
    for axes, beam_size in zip(panels[0], beam_sizes, strict=True):
        for name in _systems(rows):
            found = [row for row in _of(rows, "load", beam_size=beam_size, system=name) if not row["void"]]
            for column, style in LINE_STYLES.items():
                known = [(row["offered_per_s"], row[column]) for row in found if row[column] is not None]
                label = f"{name}, {column.removesuffix('_ms')}"
                marker = "o" if column == "p99_ms" else None
                colour = COLOURS.get(name, "#555555")
                axes.plot(*zip(*known, strict=True), style, color=colour, marker=marker, markersize=3, label=label)
            axes.plot(
                *_reached(rows, beam_size, name, objective), "*", color=COLOURS.get(name, "#555555"), markersize=12
            )
        axes.axhline(objective.milliseconds, color="black", linewidth=0.8)
        axes.annotate(f"{objective.milliseconds:g} ms", (0, objective.milliseconds), (2, 3), **OFFSET)
        axes.set(title=_search(beam_size), xlabel="offered load, sentences a second", yscale="log", xlim=(0, None))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.grid(alpha=0.3, which="both")
    panels[0][0].set_ylabel("latency since due, ms")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(_systems(rows)), frameon=False)
    figure.savefig(path)
    pyplot.close(figure)


def _loads_table(rows: Sequence[Row], beam_size: int) -> Table:
    names = _systems(rows)
    columns = [f"{top}\n{column}" for name in names for top, column in zip((name, "", "", ""), COLUMNS, strict=True)]
    title = f"{_search(beam_size)}: latency since due in ms, goodput a second"
    table = _table("load\na second", *columns, title=title)
    found = list(_of(rows, "load", beam_size=beam_size))
    for offered in sorted({row["offered_per_s"] for row in found}):
        cells = [f"{offered:.0f}"]
        for name in names:
            at = [row for row in found if row["system"] == name and row["offered_per_s"] == offered]
            cells += _load_cells(at[0]) if at else [""] * 4
        table.add_row(*cells)
    return table


def _load_cells(row: Row) -> list[str]:
    if row["void"]:
        return ["void", "", f"lag {row['lag_p99_ms']:.0f}", ""]
    return [*(_milliseconds(row[name]) for name in ("p50_ms", "p95_ms", "p99_ms")), f"{row['goodput_per_s']:.0f}"]


def _goodput_table(rows: Sequence[Row], objective: Objective) -> Table:
    names = _systems(rows)
    title = f"goodput: highest load a second with p{objective.percentile:g} within {objective.milliseconds:g} ms"
    table = _table("search", *names, "ratio (target 1.5)", title=title)
    for row in _of(rows, "summary"):
        reached = [f"{row['goodput_per_s'][name]:.0f}" for name in names]
        table.add_row(_search(row["beam_size"]), *reached, f"{row['ratio']:.2f}x" if row["ratio"] else "-")
    return table


def _reached(rows: Sequence[Row], beam_size: int, name: str, objective: Objective) -> tuple[list[float], list[float]]:
    """The point of the goodput on the line of the objective; empty if the objective was never met."""
    found = [row["goodput_per_s"][name] for row in _of(rows, "summary", beam_size=beam_size)]
    return [load for load in found if load], [objective.milliseconds for load in found if load]


def _other_measurements_table(rows: Sequence[Row]) -> Table:
    table = _table(
        "measurement", "system", "value", "target", title=f"target of memory: 2 x graphs + caches + {BASE_MB:g} MB"
    )
    for row in _of(rows, "start"):
        table.add_row("start to ready", row["system"], f"{row['median_s']:.2f} s", _target(row, "1.5 s"))
    for row in _of(rows, "one client"):
        found = f"{row['median_ms']:.2f} ms"
        table.add_row(f"single client, {_search(row['beam_size'])}", row["system"], found, "")
        if "overhead_ms" in row:
            table.add_row("  of it outside the engine", row["system"], f"{row['overhead_ms']:.2f} ms", "1 ms")
    for row in _of(rows, "memory"):
        rested = f", after a rest {row['rested_mb']:.0f}" if "rested_mb" in row else ""
        found = f"{row['rss_mb']:.0f} MB{rested}, at most {row['peak_mb']:.0f}"
        bound = f"{row['bound_mb']:.0f} MB" if "bound_mb" in row else ""
        if row.get("caches_mb", 0) is None:
            bound += " + caches"
        table.add_row(f"memory after {_search(row['beam_size'])}", row["system"], found, bound)
    return table


def _table(first: str, *columns: str, title: str) -> Table:
    """A table narrow enough for the README: no lines between columns, numbers aligned to the right."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column(first)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _target(row: Row, target: str) -> str:
    return target if row["system"] == LINGON else ""


def _of(rows: Iterable[Row], kind: str, **columns: Any) -> Iterable[Row]:
    columns["kind"] = kind
    return (row for row in rows if all(row.get(name) == value for name, value in columns.items()))


def _systems(rows: Iterable[Row]) -> list[str]:
    """The names of the systems in the order in which they were measured."""
    return list(dict.fromkeys(row["system"] for row in _of(rows, "load")))


def _search(beam_size: int) -> str:
    return "greedy" if beam_size == 1 else f"beam {beam_size}"


def _milliseconds(value: float | None) -> str:
    """The text for a latency; a failed request has none, so a percentile may have none either."""
    return "never" if value is None else f"{value:.0f}"
