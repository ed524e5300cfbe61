"""A picture of attention as PNG or SVG, drawn by matplotlib."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from typing import Any

from matplotlib import font_manager, rc_context
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from lingon.cli.attention import AXES, Panel, Picture
from lingon.cli.attention_text import clusters, is_right_to_left, shortened
from lingon.cli.output import print_message

CELL = 0.34  # inches; of one weight in a picture of one matrix
SMALL = 0.09  # inches; of one weight in a grid
LEAST = 1.3  # inches; of a small matrix
MOST_LABEL = 30  # characters; longer labels are cut
SHOWN = 0.095  # weight; the smallest that is shown as a number, in percent
COLOURS = ("#ffffff", "#cfe0ee", "#8fb8d8", "#4c86b5", "#1f4e79", "#12304f")
MISSING = "missing from font"  # in matplotlib's warning about a character
FONTS = ("DejaVu Sans", "Noto Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Zen Hei", "Unifont")
"""Fonts for the characters that the first one lacks. Those of this machine alone are used."""


def draw(picture: Picture, kind: str) -> bytes:
    """Return the content of an image file; kind: png or svg. The same picture gives the same bytes."""
    installed = {font.name for font in font_manager.fontManager.ttflist}
    settings: dict[Any, Any] = {
        "font.family": [name for name in FONTS if name in installed],
        "font.size": 9,
        "text.parse_math": False,  # a dollar sign is a word like others
        "svg.fonttype": "none",  # text stays text: a viewer has fonts for more scripts, and puts them in order
        "svg.hashsalt": "lingon",
    }
    colours = LinearSegmentedColormap.from_list("weights", list(COLOURS))
    content = io.BytesIO()
    with rc_context(settings), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        figure = _one(picture, colours, kind) if len(picture.panels) == 1 else _grid(picture, colours)
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(content, format=kind, dpi=200, bbox_inches="tight", pad_inches=0.15, metadata=metadata)
    _report(caught, kind)
    return content.getvalue()


def _report(caught: Sequence[warnings.WarningMessage], kind: str) -> None:
    """Print one line for all characters that no font has, and the other warnings as they are."""
    lacking = [each for each in caught if MISSING in str(each.message)]
    if lacking and kind == "png":
        print_message("warning: the fonts of this machine lack characters of the labels; write an .svg file instead")
    for each in caught:
        if each not in lacking:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


def _one(picture: Picture, colours: Any, kind: str) -> Figure:
    rows, columns = len(picture.rows), len(picture.columns)
    figure = Figure(figsize=(CELL * columns, CELL * rows))
    axes = figure.add_axes((0, 0, 1, 1))
    weights = picture.panels[0].weights
    axes.imshow(weights, cmap=colours, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    axes.set_xticks(range(columns), [_label(name, kind) for name in picture.columns], rotation=90)
    axes.set_yticks(range(rows), [_label(name, kind) for name in picture.rows])
    axes.xaxis.tick_top()
    axes.tick_params(length=0, pad=4)
    _rule(axes, rows, columns)
    for row, values in enumerate(weights):
        for column, weight in enumerate(values):
            if weight >= SHOWN:
                colour = "white" if weight > 0.45 else "#1f2933"
                text = f"{min(round(100 * weight), 100)}"
                axes.text(column, row, text, ha="center", va="center", color=colour, fontsize=7)
    down, across = AXES[picture.kind]
    axes.set_ylabel(down, color="#616e7c")
    axes.set_xlabel(across, color="#616e7c")
    axes.xaxis.set_label_position("bottom")
    title = f"{picture.title}\n{picture.subtitle}"
    axes.annotate(title, (0.5, 0), (0, -26), "axes fraction", textcoords="offset points", va="top", ha="center")
    return figure


def _rule(axes: Any, rows: int, columns: int) -> None:
    """White lines between the cells, and no frame."""
    axes.set_xticks([position - 0.5 for position in range(columns + 1)], minor=True)
    axes.set_yticks([position - 0.5 for position in range(rows + 1)], minor=True)
    axes.grid(which="minor", color="#e4e7eb", linewidth=0.6)
    axes.tick_params(which="minor", length=0)
    axes.spines[:].set_color("#9aa5b1")


def _grid(picture: Picture, colours: Any) -> Figure:
    """Return a small matrix for each head: layers from top to bottom, heads from left to right."""
    layers = sorted({panel.layer for panel in picture.panels})
    across = max(sum(panel.layer == layer for panel in picture.panels) for layer in layers)
    width, height = (max(SMALL * len(names), LEAST) for names in (picture.columns, picture.rows))
    figure = Figure(figsize=(across * (width + 0.2), len(layers) * (height + 0.35)), layout="constrained")
    panels = figure.subplots(len(layers), across, squeeze=False)
    for row, layer in enumerate(layers):
        found = [panel for panel in picture.panels if panel.layer == layer]
        for position, axes in enumerate(panels[row]):
            if position < len(found):
                _draw_small(axes, found[position], colours)
            else:
                axes.set_axis_off()
    down, right = AXES[picture.kind]
    figure.supylabel(down, color="#616e7c", fontsize=9)
    figure.supxlabel(right, color="#616e7c", fontsize=9)
    figure.suptitle(picture.title, fontsize=10)
    return figure


def _draw_small(axes: Any, panel: Panel, colours: Any) -> None:
    axes.imshow(panel.weights, cmap=colours, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.set_title(panel.caption, fontsize=8, pad=3)
    axes.spines[:].set_color("#9aa5b1")


def _label(text: str, kind: str) -> str:
    """Return a label as matplotlib draws it: a PNG has the characters of a text from right to left in the order of
    drawing.
    """
    cut = shortened(text, MOST_LABEL)
    return "".join(reversed(clusters(cut))) if kind == "png" and is_right_to_left(cut) else cut
