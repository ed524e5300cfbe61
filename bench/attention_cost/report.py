"""The costs of the layers for the reader: tables of time and memory and a chart; a picture of the positions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from lingon.bench.attention_cost.layers import FLOAT, LAYERS, FullyConnected
from lingon.bench.attention_cost.measure import Row
from lingon.bench.charts import load_pyplot
from lingon.training.models.layers import sinusoids

KIB = 1024  # bytes

WIDTH = 120
"""Characters of the widest table."""

_STYLES = dict(
    zip(
        (kind.name for kind in LAYERS),
        (
            ("#b3541e", "o"),
            ("#e5a877", "v"),
            ("#1f4e79", "D"),
            ("#3f9b8f", "^"),
            ("#555555", "s"),
            ("#8e5ea2", "o"),
            ("#c9a200", "P"),
        ),
        strict=True,
    )
)
"""Colour and marker by layer."""


@dataclass(frozen=True, slots=True)
class Cost:
    """One of the two costs. formula is drawn as it is, or scaled to the last measured value."""

    name: str
    unit: str
    measured: str  # column of the rows
    formula: str  # column of the rows
    divisor: float
    scaled: bool


TIME = Cost("time", "ms", "median_ms", "multiply_adds", 1.0, True)
MEMORY = Cost("memory", "KiB", "kept_bytes", "formula_bytes", KIB, False)


def tables(rows: Sequence[Row], growths: Sequence[Row]) -> list[Group]:
    """A table of times and one of memory; each with the exponents of the growth in its last columns."""
    return [_table(cost, rows, growths) for cost in (TIME, MEMORY)]


def left_out_lines(rows: Sequence[Row]) -> list[str]:
    """For each layer that was not measured at all lengths: the lengths and the reason."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row["reason"] is not None:
            found.setdefault((row["layer"], row["reason"]), []).append(str(row["length"]))
    return [f"not measured: {layer} at {', '.join(lengths)} ({reason})" for (layer, reason), lengths in found.items()]


def _table(cost: Cost, rows: Sequence[Row], growths: Sequence[Row]) -> Group:
    """Rows: layers; columns: order, lengths, and exponents measured, of the formula and of the order."""
    shown = Table(box=None, padding=(0, 1, 0, 0))
    shown.add_column("layer", no_wrap=True)
    shown.add_column("order", no_wrap=True)
    lengths = sorted({row["length"] for row in rows})
    for head in (*map(str, lengths), "growth", "formula", "order"):
        shown.add_column(head, justify="right")
    for growth in growths:
        own = {row["length"]: row for row in rows if row["layer"] == growth["layer"]}
        cells = [_cell(own[length][cost.measured], cost.divisor) for length in lengths]
        exponents = [_cell(growth[f"{cost.name}_{name}"], 1) for name in ("measured", "formula")]
        order = growth[f"{cost.name}_order"], str(growth[f"{cost.name}_order_exponent"])
        shown.add_row(growth["layer"], order[0], *cells, *exponents, order[1])
    what = "median time" if cost.scaled else "kept for the gradients, without weights"
    title = f"{what} in {cost.unit}; exponents of the length T: measured, of the formula, of the order"
    return Group(Text(title, "bold"), shown)


def _cell(value: float | None, divisor: float) -> str:
    if value is None:
        return "-"
    shown = value / divisor
    return f"{shown:.2f}" if shown < 10 else f"{shown:.1f}" if shown < 100 else f"{shown:,.0f}"


def draw(rows: Sequence[Row], output: Path) -> None:
    """Write the chart of time and memory against the length; the suffix of output selects SVG, PNG or PDF."""
    pyplot = load_pyplot()
    figure, panels = pyplot.subplots(1, 2, figsize=(11, 5.4), layout="constrained")
    for panel, cost in zip(panels, (TIME, MEMORY), strict=True):
        _draw_cost(panel, cost, rows)
    _draw_weights(panels[1], rows)
    panels[0].set(title="time of the forward pass", ylabel="milliseconds")
    panels[1].set(title="memory kept for the gradients", ylabel="KiB")
    known = [panel.get_legend_handles_labels() for panel in panels]
    # The handles of the first panel have lines; those of the second add the weights.
    legend = {
        label: handle for handles, labels in reversed(known) for handle, label in zip(handles, labels, strict=True)
    }
    figure.legend(legend.values(), legend.keys(), loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(output)
    pyplot.close(figure)


def _draw_cost(panel: Any, cost: Cost, rows: Sequence[Row]) -> None:
    """Markers are measured; dashed lines follow the formula over all lengths."""
    for kind in LAYERS:
        own = [row for row in rows if row["layer"] == kind.name]
        measured = [row for row in own if row["reason"] is None]
        if not measured:
            continue
        scale = measured[-1][cost.measured] / measured[-1][cost.formula] if cost.scaled else 1.0
        lengths, values = [row["length"] for row in measured], [row[cost.measured] / cost.divisor for row in measured]
        panel.plot(lengths, values, label=f"{kind.name}: {_shown(kind.time.formula)}", **_style(kind.name, cost))
        formula = [scale * row[cost.formula] / cost.divisor for row in own]
        panel.plot([row["length"] for row in own], formula, "--", color=_STYLES[kind.name][0], linewidth=1)
    panel.plot([], [], "--", color="black", linewidth=1, label="formula")
    _scale_axes(panel, sorted({row["length"] for row in rows}))


def _style(layer: str, cost: Cost) -> dict[str, Any]:
    """Lines join the times alone: measured memory is on the line of the formula, which they would cover.

    The marker of the fully connected layer is hollow, because the convolution keeps as much.
    """
    colour, marker = _STYLES[layer]
    hollow = layer == FullyConnected.name
    size: dict[str, Any] = {"markersize": 8, "fillstyle": "none"} if hollow else {"markersize": 4}
    return {"color": colour, "marker": marker, "linewidth": 1.6, "linestyle": "-" if cost.scaled else "none", **size}


def _shown(formula: str) -> str:
    return f"O({formula.replace('^2', '²')})"


def _draw_weights(panel: Any, rows: Sequence[Row]) -> None:
    """The weights of the fully connected layer, the only ones that grow with the length."""
    own = [row for row in rows if row["layer"] == FullyConnected.name]
    weights = [FLOAT * row["weights"] / KIB for row in own]
    colour, _ = _STYLES[FullyConnected.name]
    panel.plot(
        [row["length"] for row in own],
        weights,
        color=colour,
        linestyle=":",
        linewidth=1.4,
        label="weights of fully connected",
    )


def _scale_axes(panel: Any, lengths: Sequence[int]) -> None:
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xticks(lengths, [str(length) for length in lengths])
    panel.set_xlabel("length T")
    panel.grid(alpha=0.3)
    panel.spines[["top", "right"]].set_visible(False)


def draw_positions(output: Path, positions: int = 128, dim: int = 128) -> None:
    """Write a picture of the sinusoidal positional encoding; the suffix of output selects SVG, PNG or PDF.

    Left: the whole table (positions, dim). Right: three of its sines against the position.
    """
    pyplot, table = load_pyplot(), sinusoids(positions, dim).numpy()
    figure, (heat, curves) = pyplot.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    image = heat.imshow(table, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto", origin="upper", interpolation="nearest")
    heat.set(xlabel="dimension (even: sine, odd: cosine)", ylabel="position", title="sinusoidal positional encoding")
    figure.colorbar(image, ax=heat, fraction=0.05)
    for dimension, colour in _dimensions(dim).items():
        wavelength = f"{2 * math.pi * 10000 ** (dimension / dim):.1f}"
        curves.plot(table[:, dimension], color=colour, label=f"dimension {dimension}, wavelength {wavelength}")
    curves.set(xlabel="position", xlim=(0, positions - 1), ylim=(-1.1, 1.1), title="three of its sines")
    curves.grid(alpha=0.3)
    curves.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(output)
    pyplot.close(figure)


def _dimensions(dim: int) -> Mapping[int, str]:
    """Three even dimensions, of short, medium and long wavelength, with their colours."""
    places = (dim // 8 // 2 * 2, dim // 4 // 2 * 2, 3 * dim // 8 // 2 * 2)
    return dict(zip(places, ("#b3541e", "#1f4e79", "#3f9b8f"), strict=True))
