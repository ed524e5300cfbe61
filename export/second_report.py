"""The report of `lingon calibrate --second` as lines, as a picture and as JSON."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from lingon.export.second_threshold import BEST, BY_CONFIDENCE, CHOSEN, Point, Report
from lingon.training import svg

HEAD = ("sent", "of text", "chrF", "BLEU", "gain chrF", "gain BLEU", "below", "characters")
"""The columns of `rows`: shares of sentences and characters that are sent, scores, shares of the gain, settings."""

# Pixels of the picture.
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 440, 62, 24, 72, 44

KINDS = {CHOSEN: "a", BY_CONFIDENCE: "b", BEST: "best"}
"""The class of the line of each curve."""

STYLE = f"""\
svg {{ {svg.FONT} }}
.ground {{ fill: #ffffff }}
.line {{ fill: none; stroke-width: 1.8; stroke-linejoin: round }}
.name {{ font-size: 12px; font-weight: 600 }}
.a {{ stroke: #3a76b5 }} .fill-a {{ fill: #3a76b5 }}
.b {{ stroke: #c46d14 }} .fill-b {{ fill: #c46d14 }}
.best {{ stroke: #2f855a; stroke-dasharray: 5 3 }} .fill-best {{ fill: #2f855a }}
.bound {{ stroke: #3a76b5; stroke-width: 1.4; fill: none }}
{svg.CHART_STYLE}@media screen and (prefers-color-scheme: dark) {{
.ground {{ fill: #14181d }}
.a {{ stroke: #6ba3dc }} .fill-a {{ fill: #6ba3dc }}
.b {{ stroke: #efa65f }} .fill-b {{ fill: #efa65f }}
.best {{ stroke: #5bb38b }} .fill-best {{ fill: #5bb38b }}
.bound {{ stroke: #6ba3dc }}
{svg.DARK_CHART_STYLE}}}
"""


def rows(report: Report) -> list[tuple[str, ...]]:
    """Return the cells of a table below HEAD: none, the thresholds by the share that they send, and all."""
    return [_row(point) for point in (report.nothing, *report.curves[CHOSEN], report.all)]


def _row(point: Point) -> tuple[str, ...]:
    gains = (_percent(gain) for gain in (point.gain_chrf, point.gain_bleu))
    threshold = ("", "") if point.threshold is None else (f"{point.threshold.below:g}", str(point.threshold.characters))
    return (
        _percent(point.sent),
        _percent(point.characters),
        f"{point.chrf:.2f}",
        f"{point.bleu:.2f}",
        *gains,
        *threshold,
    )


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.1f} %"


def advice(report: Report) -> list[str]:
    """Return what to set, what that costs and what it is worth, in lines for a person."""
    point, nothing, every = report.chosen, report.nothing, report.all
    if not every.chrf > nothing.chrf:
        return [
            f"the second translator is no better: chrF {nothing.chrf:.2f} without it, {every.chrf:.2f} with all of "
            f"{report.sentences:,} sentences sent; no threshold is recommended"
        ]
    assert point.threshold is not None
    low, high = (_percent(bound) for bound in report.bounds)
    return [
        f"recommended: --second-below {point.threshold.below:g} --second-characters {point.threshold.characters}",
        f"cost: {1000 * point.sent:.0f} of 1,000 sentences are sent, {_percent(point.characters)} of the characters",
        f"worth: chrF {nothing.chrf:.2f} to {point.chrf:.2f}, BLEU {nothing.bleu:.2f} to {point.bleu:.2f}; all sent: "
        f"{every.chrf:.2f} and {every.bleu:.2f}",
        f"that is {_percent(point.gain_chrf)} of the gain in chrF (about {low} to {high} on other text of this kind), "
        f"measured on {report.sentences:,} sentences, each with a threshold that was not chosen on it",
    ]


def as_json(report: Report) -> dict[str, Any]:
    """Return the report as a JSON object. A number that is none is null."""
    found: dict[str, Any] = _without_nan(asdict(report))
    return found


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        fields = getattr(value, "_asdict", None)
        return _without_nan(fields()) if fields else [_without_nan(each) for each in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def picture(report: Report, title: str) -> str:
    """Return the share of the gain in chrF against the share of the sentences that is sent, as SVG.

    title: such as the names of the models. The report must have a gain.
    """
    across = svg.Scale(0, 1, LEFT, WIDTH - RIGHT)
    down = svg.Scale(0, 1, HEIGHT - BOTTOM, TOP)
    held = f"{report.sentences:,} sentences, chrF {report.nothing.chrf:.1f} to {report.all.chrf:.1f}"
    parts = [svg.text(LEFT, 22, title, "title"), svg.text(LEFT, 40, held), *_grid(across, down)]
    parts.append(svg.segment(across(0), down(0), across(1), down(1), "mark"))
    parts.append(svg.text(across(0.72), down(0.66), "at random", anchor="start"))
    for position, (name, points) in enumerate(report.curves.items()):
        parts += _curve(KINDS[name], points, across, down)
        parts.append(_name(KINDS[name], name, down(0.28) + 18 * position))
    parts += _chosen(report, across, down)
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size}>\n<title>{html.escape(title)}</title>\n'
        f"<style>\n{STYLE}</style>\n"
        f'<rect class="ground" width="{WIDTH}" height="{HEIGHT}"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _grid(across: svg.Scale, down: svg.Scale) -> list[str]:
    """Return lines, numbers and names of both axes."""
    parts = []
    for tick in (0, 0.2, 0.4, 0.6, 0.8, 1):
        parts += [svg.segment(across(0), down(tick), across(1), down(tick), "grid")]
        parts += [svg.text(across(0) - 6, down(tick) + 4, f"{100 * tick:.0f} %", anchor="end")]
        parts += [svg.text(across(tick), down(0) + 16, f"{100 * tick:.0f} %", anchor="middle")]
    parts.append(svg.segment(across(0), down(0), across(1), down(0), "axis"))
    parts.append(svg.text(across(0.5), down(0) + 34, "sentences that are sent on", anchor="middle"))
    parts.append(svg.text(LEFT - 40, TOP - 12, "share of the gain of sending all"))
    return parts


def _curve(kind: str, points: Sequence[Point], across: svg.Scale, down: svg.Scale) -> list[str]:
    """Return a line from no sentence to all, with a dot for each point."""
    found = [(across(point.sent), down(point.gain_chrf)) for point in points]
    line = svg.polyline([(across(0), down(0)), *found, (across(1), down(1))], f"line {kind}")
    dots = [f'<circle class="fill-{kind}" cx="{x:.1f}" cy="{y:.1f}" r="2.6"/>' for x, y in found]
    return [line, *dots]


def _name(kind: str, name: str, y: float) -> str:
    """Return the name of a curve in its colour, with a piece of its line."""
    x = WIDTH - RIGHT - 190
    return svg.segment(x, y - 4, x + 24, y - 4, f"line {kind}") + svg.text(x + 32, y, name, f"name fill-{kind}")


def _chosen(report: Report, across: svg.Scale, down: svg.Scale) -> list[str]:
    """Return a ring around the recommended point, and a line between the bounds of its share.

    Another ring is below the names of the curves, with the settings.
    """
    point, (low, high) = report.chosen, report.bounds
    x, y = across(point.sent), down(point.gain_chrf)
    named_x, named_y = WIDTH - RIGHT - 190, down(0.28) + 18 * len(report.curves)
    rings = [
        f'<circle class="bound" cx="{a:.1f}" cy="{b:.1f}" r="6"/>' for a, b in ((x, y), (named_x + 12, named_y - 4))
    ]
    assert point.threshold is not None
    settings = f"below {point.threshold.below:g}, {point.threshold.characters} characters"
    return [svg.segment(x, down(low), x, down(high), "bound"), *rings, svg.text(named_x + 32, named_y, settings)]
