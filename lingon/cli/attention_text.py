"""A picture of attention in a terminal: coloured cells, or shades of grey where there is no colour.

Labels may have wide and combining characters, be written from right to left, or be too long.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from lingon.cli.attention import AXES, Panel, Picture

LEFT_TO_RIGHT = "\N{LEFT-TO-RIGHT MARK}"
"""After a word from right to left, so that a terminal that reorders text leaves what follows where it is."""


def is_right_to_left(text: str) -> bool:
    """Return whether a text has letters of a script that is written from right to left."""
    return any(unicodedata.bidirectional(character) in ("R", "AL") for character in text)


def clusters(text: str) -> list[str]:
    """Return the characters of a text, each with the combining marks after it."""
    found: list[str] = []
    for character in text:
        if found and unicodedata.category(character) in ("Mn", "Me", "Cf"):
            found[-1] += character
        else:
            found.append(character)
    return found


def shortened(text: str, most: int) -> str:
    """Return a text of at most so many cells, which ends in an ellipsis if it is cut."""
    if cell_len(text) <= most:
        return text
    kept = ""
    for each in clusters(text):
        if cell_len(kept + each) > most - 1:
            break
        kept += each
    return f"{kept}…"


def right_aligned(text: str, cells: int) -> str:
    """Return a text with spaces before it, so that it takes so many cells."""
    cut = shortened(text, cells)
    mark = LEFT_TO_RIGHT if is_right_to_left(cut) else ""
    return f"{' ' * (cells - cell_len(cut))}{cut}{mark}"


def centred(text: str, cells: int) -> str:
    """Return a character with spaces around it, so that it takes so many cells."""
    missing = cells - cell_len(text)
    return f"{' ' * (missing // 2)}{text}{' ' * (missing - missing // 2)}"


def upright(labels: list[str], cells: int, most: int) -> Iterator[str]:
    """Yield the lines of a head in which each label runs from top to bottom, over a column of so many cells.

    most: lines. A label with more characters is cut
    """
    columns = [_cut_clusters(label, most) for label in labels]
    height = max(map(len, columns), default=0)
    for line in range(height):
        shown = [column[line - height + len(column)] if line >= height - len(column) else " " for column in columns]
        yield "".join(centred(each, cells) for each in shown).rstrip()


def _cut_clusters(text: str, most: int) -> list[str]:
    found = clusters(text)
    return found if len(found) <= most else [*found[: most - 1], "…"]


SHADES = "·░▒▓█"  # of weights up to 1/8, 3/8, 5/8, 7/8 and 1
COLOURS = ("#440154", "#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#a0da39", "#fde725")
"""Viridis, which is as bright as a weight is large, whatever the background of the terminal is."""

LIGHT = 0.6  # weight; a number on a larger one is black, on a smaller one white
SHOWN = 0.095  # weight; the smallest that is shown as a number, in percent
MOST_LABEL = 24  # cells of the label of a row
MOST_HEAD = 14  # lines of the labels of columns
GAP = 3  # cells between two panels of a grid
CELLS = (3, 2, 1)  # of one weight; the first that fits


@dataclass(frozen=True, slots=True)
class Screen:
    """What a terminal shows.

    width: cells of a line
    coloured: whether it shows colours
    """

    width: int
    coloured: bool


def draw(picture: Picture, screen: Screen) -> Iterator[Text]:
    """Yield the lines of a picture."""
    if len(picture.panels) == 1:
        yield from _draw_one(picture, screen)
    else:
        yield from _draw_grid(picture, screen)


def _draw_one(picture: Picture, screen: Screen) -> Iterator[Text]:
    """Yield one matrix with labels; its columns in several blocks if a line is too short for all of them."""
    label = min(max(map(cell_len, picture.rows)), MOST_LABEL, max(screen.width // 3, 1))
    widest = max(cell_len(character) for column in picture.columns for character in column or " ")
    room = screen.width - label - 1
    cells = next((each for each in CELLS if each * len(picture.columns) <= room), max(widest, 2))
    cells = max(cells, widest)
    block = max(room // cells, 1)
    yield from _heading(screen, picture.title, picture.subtitle)
    for begin in range(0, len(picture.columns), block):
        part = slice(begin, begin + block)
        yield Text()
        for line in upright(list(picture.columns[part]), cells, MOST_HEAD):
            yield Text(f"{' ' * (label + 1)}{line}")
        for name, weights in zip(picture.rows, picture.panels[0].weights, strict=True):
            yield Text.assemble(f"{right_aligned(name, label)} ", *_cells(weights[part], cells, screen))
    yield Text()
    yield _legend(picture, screen)


def _heading(screen: Screen, title: str, *others: str) -> Iterator[Text]:
    yield Text(shortened(title, screen.width), "bold" if screen.coloured else "")
    yield from (Text(shortened(each, screen.width)) for each in others)


def _cells(weights: Sequence[float], cells: int, screen: Screen) -> Iterator[tuple[str, str]]:
    for weight in weights:
        if not screen.coloured:
            shade = _shade(weight)
            yield (shade if shade == SHADES[0] else shade * max(cells - 1, 1)).rjust(cells), ""
            continue
        number = f"{min(round(100 * weight), 99)}" if cells > 2 and weight >= SHOWN else ""
        yield number.rjust(cells - 1).ljust(cells), f"{'#000000' if weight > LIGHT else '#ffffff'} on {_colour(weight)}"


def _shade(weight: float) -> str:
    return SHADES[min(max(int(weight * 4 + 0.5), 0), 4)]


def _colour(weight: float) -> str:
    """Return the colour of a weight, between the two nearest of COLOURS."""
    position = min(max(weight, 0.0), 1.0) * (len(COLOURS) - 1)
    low = min(int(position), len(COLOURS) - 2)
    parts = (_channels(COLOURS[each]) for each in (low, low + 1))
    mixed = [round(first + (position - low) * (second - first)) for first, second in zip(*parts, strict=True)]
    return "#{:02x}{:02x}{:02x}".format(*mixed)


def _channels(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour[1:]))


def _legend(picture: Picture, screen: Screen) -> Text:
    """Return what rows and columns are, and the scale."""
    down, across = AXES[picture.kind]
    steps = [(f"{_shade(each / 4)}{_shade(each / 4)}", "") for each in range(5)]
    if screen.coloured:
        steps = [("  ", f"on {_colour(each / 8)}") for each in range(9)]
    return Text.assemble(f"rows: {down}, columns: {across}; weight 0 ", *steps, " 1")


def _draw_grid(picture: Picture, screen: Screen) -> Iterator[Text]:
    """Yield all matrices, small and without labels: a line for each layer, which is continued if it is too short."""
    width = max(len(picture.columns), max(len(panel.caption) for panel in picture.panels))
    fitting = max((screen.width + GAP) // (width + GAP), 1)
    yield from _heading(screen, picture.title)
    for _, layer in itertools.groupby(picture.panels, key=lambda panel: panel.layer):
        panels = list(layer)
        for begin in range(0, len(panels), fitting):
            yield Text()
            yield from _side_by_side(panels[begin : begin + fitting], width, screen)
    yield Text()
    yield _legend(picture, screen)


def _side_by_side(panels: Sequence[Panel], width: int, screen: Screen) -> Iterator[Text]:
    yield Text((" " * GAP).join(panel.caption.ljust(width) for panel in panels).rstrip())
    drawn = [list(_small(panel, screen)) for panel in panels]
    for lines in zip(*drawn, strict=True):
        found = Text()
        for position, line in enumerate(lines):
            found.append_text(line)
            if position < len(lines) - 1:
                found.append(" " * (width - line.cell_len + GAP))
        yield found


def _small(panel: Panel, screen: Screen) -> Iterator[Text]:
    """Yield a matrix with a cell for each weight. With colours a character has the weights of two rows."""
    if not screen.coloured:
        yield from (Text("".join(_shade(weight) for weight in row)) for row in panel.weights)
        return
    for position in range(0, len(panel.weights), 2):
        upper, *lower = panel.weights[position : position + 2]
        if lower:
            pairs = zip(upper, lower[0], strict=True)
            yield Text.assemble(*(("▀", f"{_colour(high)} on {_colour(low)}") for high, low in pairs))
        else:
            yield Text.assemble(*(("▀", _colour(weight)) for weight in upper))
