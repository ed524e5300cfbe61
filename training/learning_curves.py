"""The learning curves of a run as a picture, drawn again from its log while the run goes.

They are drawn by `lingon.training.svg`: matplotlib takes a second to load and half a second to draw, the picture here
some hundredths, and it follows the reader's choice of light or dark.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from lingon.training.svg import (
    CHART_STYLE,
    DARK_CHART_STYLE,
    FONT,
    Point,
    Scale,
    polyline,
    segment,
    short_number,
    text,
    tick_label,
    ticks,
)

CURVES = "curves.svg"
MOST_POINTS = 800  # of a line; of more, those that follow each other become their mean
FIRST_PART = 0.05  # of a training loss, whose fall would leave no room for the rest

# Pixels of the picture.
WIDTH, LEFT, RIGHT = 900, 62, 24
TOP, TITLE, GAP, BOTTOM = 66, 22, 16, 40
TALL, LOW = 210, 90

STYLE = f"""\
svg {{ {FONT} }}
.ground {{ fill: #ffffff }}
.line {{ fill: none; stroke-width: 1.6; stroke-linejoin: round }}
.name {{ font-size: 11px; font-weight: 600 }}
.a {{ stroke: #3a76b5 }} .fill-a {{ fill: #3a76b5 }}
.b {{ stroke: #c46d14 }} .fill-b {{ fill: #c46d14 }}
.best {{ stroke: #2f855a; stroke-width: 1.2; stroke-dasharray: 5 3; fill: none }} .fill-best {{ fill: #2f855a }}
{CHART_STYLE}@media screen and (prefers-color-scheme: dark) {{
.ground {{ fill: #14181d }}
.a {{ stroke: #6ba3dc }} .fill-a {{ fill: #6ba3dc }}
.b {{ stroke: #efa65f }} .fill-b {{ fill: #efa65f }}
.best {{ stroke: #5bb38b }} .fill-best {{ fill: #5bb38b }}
{DARK_CHART_STYLE}}}
"""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a panel; dots: whether each point is shown."""

    name: str
    points: list[Point]
    dots: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines with one vertical axis; from_zero: whether it begins at 0."""

    title: str
    lines: list[Line]
    height: int
    from_zero: bool = False


Record = Mapping[str, Any]


def read_log(path: Path) -> list[Record]:
    """Return the lines of the log of a run, without those of updates that a resumed run has repeated."""
    found: dict[str, list[Record]] = {}
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            try:
                record = json.loads(line)
                of_kind, step = found.setdefault(record["kind"], []), record["step"]
            except (ValueError, KeyError, TypeError):
                continue  # a line that a kill has cut, which the next run removes
            while of_kind and of_kind[-1]["step"] >= step:
                of_kind.pop()
            of_kind.append(record)
    return [record for of_kind in found.values() for record in of_kind]


def learning_curves(name: str, log: Sequence[Record], best: int = 0, stages: Sequence[int] = ()) -> str:
    """Return the picture; name: of the run; best: step of the best checkpoint, if any; stages: their last updates."""
    panels = [panel for panel in _panels(log) if any(line.points for line in panel.lines)]
    last = max((record["step"] for record in log), default=0)
    across = Scale(0, max(last, 1), LEFT, WIDTH - RIGHT)
    height = TOP + sum(TITLE + panel.height + GAP for panel in panels) + BOTTOM
    parts = [text(LEFT, 24, name, "title"), text(WIDTH - RIGHT, 24, _place(log, last), anchor="end")]
    tops = [TOP + TITLE + sum(TITLE + each.height + GAP for each in panels[:number]) for number in range(len(panels))]
    bands = [(top, top + panel.height) for top, panel in zip(tops, panels, strict=True)]
    if bands:
        parts += _steps(across, last, bands)
        parts += _hours(log, across)
        for panel, (top, _) in zip(panels, bands, strict=True):
            parts += _drawn(panel, across, top)
        parts += _marks(across, last, best, stages, bands)
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size}>\n<title>{html.escape(name)}</title>\n'
        f"<style>\n{STYLE}</style>\n"
        f'<rect class="ground" width="{WIDTH}" height="{height}"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _panels(log: Sequence[Record]) -> list[Panel]:
    losses = [Line("training, with label smoothing", _series(log, "train", "loss")), _valid(log, "validation", "loss")]
    scores = [_valid(log, "BLEU", "bleu"), _valid(log, "chrF", "chrf")]
    return [
        Panel("Loss of a token", losses, TALL),
        Panel("Scores of the validation text", scores, TALL),
        Panel("Learning rate", [Line("", _series(log, "train", "learning_rate"))], LOW, from_zero=True),
        Panel("Target tokens a second", [Line("", _series(log, "train", "tokens_per_second"))], LOW, from_zero=True),
    ]


def _valid(log: Sequence[Record], name: str, key: str) -> Line:
    return Line(name, _series(log, "valid", key), dots=True)


def _series(log: Sequence[Record], kind: str, key: str) -> list[Point]:
    """Return a curve: step and value. Values that are missing or not finite are left out."""
    return [(record["step"], record[key]) for record in log if record["kind"] == kind and _is_number(record.get(key))]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and bool(np.isfinite(value))


def thinned(points: Sequence[Point], most: int = MOST_POINTS) -> list[Point]:
    """Return at most `most` points: the first, the last, and means of those between."""
    if len(points) <= most:
        return list(points)
    parts = np.array_split(np.array(points[1:-1], np.float64), most - 2)
    return [points[0], *((float(x), float(y)) for x, y in (part.mean(axis=0) for part in parts)), points[-1]]


def _range(panel: Panel) -> tuple[float, float]:
    """Return the least and the greatest value of the axis of a panel."""
    shown = [value for line in panel.lines for _, value in _later(line)]
    low, high = min(shown), max(shown)
    if panel.from_zero:
        return 0.0, high * 1.05 or 1.0
    spare = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    return max(low - spare, 0.0) if low >= 0 else low - spare, high + spare


def _later(line: Line) -> Sequence[Point]:
    """Return the points that the axis is made for: of a long training loss without the fall at its beginning."""
    return line.points if line.dots or line.name == "" else line.points[int(len(line.points) * FIRST_PART) :]


def _drawn(panel: Panel, across: Scale, top: float) -> Iterator[str]:
    low, high = _range(panel)
    bottom = top + panel.height
    down = Scale(low, high, bottom, top)
    yield text(LEFT, top - 8, panel.title, "title")
    for value in ticks(low, high, 5 if panel.height > LOW else 3):
        yield segment(LEFT, down(value), WIDTH - RIGHT, down(value), "grid")
        yield text(LEFT - 8, down(value) + 4, tick_label(value), anchor="end")
    begin = float(WIDTH - RIGHT)
    for line, colour in reversed(list(zip(panel.lines, "ab", strict=False))):
        if line.points:
            shown = f"{line.name} {_value(line.points[-1][1])}".strip()
            yield text(begin, top - 8, shown, f"name fill-{colour}", anchor="end")
            begin -= 7.2 * len(shown) + 12
    for line, colour in zip(panel.lines, "ab", strict=False):
        yield from _curve(line, colour, across, down, top)


def _curve(line: Line, colour: str, across: Scale, down: Scale, top: float) -> Iterator[str]:
    """Yield the elements of a line. Its beginning above the panel is left out; later values there are on the edge."""
    points = [(across(step), down(value)) for step, value in thinned(line.points)]
    begin = next((number for number, (_, y) in enumerate(points) if y >= top), 0)
    points = [(x, max(y, top)) for x, y in points[begin:]]
    if len(points) > 1:
        yield polyline(points, f"line {colour}")
    if len(points) == 1 or (line.dots and len(points) <= 60):
        for x, y in points:
            yield f'<circle class="fill-{colour}" cx="{x:.1f}" cy="{y:.1f}" r="2.6"/>'


def _value(value: float) -> str:
    """Return the last value of a line."""
    if abs(value) >= 1000:
        return short_number(value)
    return f"{value:.2f}" if abs(value) >= 0.1 or value == 0 else f"{value:.3g}"


def _place(log: Sequence[Record], last: int) -> str:
    """Return how far the run is."""
    tokens = [record["target_tokens"] for record in log if _is_number(record.get("target_tokens"))]
    return f"{last:,} updates{f', {short_number(tokens[-1])} target tokens' if tokens else ''}"


def _steps(across: Scale, last: int, bands: Sequence[tuple[float, float]]) -> Iterator[str]:
    """Yield the axis of the updates below the last panel, and their lines in all panels."""
    bottom = bands[-1][1]
    for step in ticks(0, max(last, 1), 10):
        x = across(step)
        for top, end in bands:
            yield segment(x, top, x, end, "grid")
        yield text(x, bottom + 16, tick_label(step), anchor="middle")
    for _, end in bands:
        yield segment(LEFT, end, WIDTH - RIGHT, end, "axis")
    yield text((LEFT + WIDTH - RIGHT) / 2, bottom + 33, "updates", anchor="middle")


def _hours(log: Sequence[Record], across: Scale) -> Iterator[str]:
    """Yield the axis of the time spent in updates, above the first panel."""
    known = [(0, 0.0)] + [
        (each["step"], each["seconds"] / 3600) for each in log if each["kind"] == "train" and "seconds" in each
    ]
    if len(known) < 2 or any(after[1] <= before[1] for before, after in pairwise(known)):
        return
    steps, hours = zip(*known, strict=True)
    unit, factor = ("hours", 1.0) if hours[-1] >= 0.5 else ("minutes", 60.0) if hours[-1] > 1 / 60 else ("s", 3600.0)
    y = TOP - 8.0
    yield segment(LEFT, y, across(steps[-1]), y, "axis")
    for value in ticks(0, hours[-1] * factor, 8):
        x = across(float(np.interp(value / factor, hours, steps)))
        yield segment(x, y, x, y - 4, "axis")
        yield text(x, y - 8, f"{value:g}{f' {unit}' if value == 0 else ''}", anchor="middle" if value else "start")


def _marks(
    across: Scale, last: int, best: int, stages: Sequence[int], bands: Sequence[tuple[float, float]]
) -> Iterator[str]:
    """Yield a line in each panel at the end of each stage, and one at the best checkpoint."""
    top = bands[0][0]
    for number, until in enumerate(stages, start=2):
        if until < last:
            yield from _mark(across(until), bands, "mark")
            yield text(across(until) + 4, top + 11, f"stage {number}")
    if best:
        x = across(best)
        yield from _mark(x, bands, "best")
        left = x > (LEFT + WIDTH) / 2
        yield text(x - 5 if left else x + 5, top + 25, f"best: {best:,}", "name fill-best", "end" if left else "start")


def _mark(x: float, bands: Sequence[tuple[float, float]], kind: str) -> Iterator[str]:
    for top, bottom in bands:
        yield segment(x, top, x, bottom, kind)
