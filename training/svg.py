"""Parts of charts as SVG: scales, ticks, histograms, and lines. Equal numbers give equal bytes."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

FONT = "font-family: system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif"
CHART_STYLE = """\
.grid { stroke: #e3e7ec; stroke-width: 1; fill: none }
.axis { stroke: #9aa5b1; stroke-width: 1; fill: none }
.tick { fill: #5b6875; font-size: 11px }
.title { fill: #1c2630; font-size: 13px; font-weight: 600 }
.bar { fill: #3a76b5 }
.mark { stroke: #7b8794; stroke-width: 1; stroke-dasharray: 3 3; fill: none }
"""
DARK_CHART_STYLE = """\
.grid { stroke: #2b333c }
.axis { stroke: #6b7785 }
.tick { fill: #a7b2be }
.title { fill: #e8ecf0 }
.bar { fill: #6ba3dc }
.mark { stroke: #8d99a6 }
"""
"""Rules that CHART_STYLE has on a dark ground."""

MAGNITUDES = ((1e9, " B"), (1e6, " M"), (1e3, " k"))

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear map from the values between low and high to the pixels between begin and end."""

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the pixel of a value."""
        return self.begin + (value - self.low) / ((self.high - self.low) or 1.0) * (self.end - self.begin)


def ticks(low: float, high: float, most: int) -> list[float]:
    """Return round values between low and high, at most most + 1, in steps of 1, 2 or 5 times a power of 10."""
    if not high > low:
        return [low]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def short_number(value: float) -> str:
    """Return a number of three digits or more: 950, 12.3 k, 193 M, 1.93 B."""
    for size, name in MAGNITUDES:
        if abs(value) >= size * 0.9995:
            return f"{_three_digits(value / size)}{name}"
    return _three_digits(value) if value % 1 else f"{value:.0f}"


def _three_digits(value: float) -> str:
    digits = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    return f"{value:.{digits}f}"


def tick_label(value: float) -> str:
    """Return the number of a tick, without zeros at its end."""
    for size, name in MAGNITUDES:
        if abs(value) >= size:
            return f"{value / size:.6g}{name}"
    return f"{value:.6g}"


def text(x: float, y: float, content: str, kind: str = "tick", anchor: str = "start") -> str:
    """Return a text; y: its baseline; anchor: start, middle or end."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(content)}</text>'


def segment(x: float, y: float, to_x: float, to_y: float, kind: str) -> str:
    """Return a straight line."""
    return f'<path class="{kind}" d="M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}"/>'


def polyline(points: Iterable[Point], kind: str) -> str:
    """Return a line through points in pixels."""
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path class="{kind}" d="M{path}"/>'


def histogram(
    title: str,
    counts: Sequence[float],
    edges: Callable[[int], str],
    label: Callable[[int], str | None],
    *,
    width: int = 340,
    height: int = 190,
    mark: int | None = None,
) -> str:
    """Return a histogram as an <svg> for a page with CHART_STYLE.

    edges: the values that a bar stands for, shown when the pointer is over it
    label: what is written below a bar, if anything
    mark: the bar with a line
    """
    left, top, bottom = 46, 28, 24
    high = max([*counts, 1])
    across = (width - left - 6) / max(len(counts), 1)
    down = Scale(0, high, height - bottom, top)
    parts = [text(left, 14, title, "title")]
    for value in ticks(0, high, 4):
        parts += [segment(left, down(value), width - 6, down(value), "grid")]
        parts += [text(left - 6, down(value) + 4, tick_label(value), anchor="end")]
    total = sum(counts) or 1
    for number, count in enumerate(counts):
        x, y = left + number * across, down(count)
        if count:
            bar = f'x="{x + 0.5:.1f}" y="{y:.1f}" width="{max(across - 1, 0.8):.1f}" height="{down(0) - y:.1f}"'
            shown = html.escape(f"{edges(number)}: {count:,} pairs, {count / total:.2%}")
            parts.append(f'<rect class="bar" {bar}><title>{shown}</title></rect>')
        if (below := label(number)) is not None:
            parts.append(text(x + across / 2, height - 8, below, anchor="middle"))
    if mark is not None:
        x = left + (mark + 0.5) * across
        parts.append(segment(x, top, x, down(0), "mark"))
    parts.append(segment(left, down(0), width - 6, down(0), "axis"))
    name = html.escape(title, quote=True)
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return f'<svg class="chart" role="img" aria-label="{name}" {size}>{"".join(parts)}</svg>'
