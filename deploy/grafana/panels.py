"""The JSON that Grafana needs around a query: one function for each kind of panel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
HERE = 'instance=~"$instance"'
GREEN, ORANGE, RED = "green", "orange", "red"

Json = dict[str, Any]
Query = tuple[str, str]
"""A PromQL expression and its legend."""
Steps = Sequence[tuple[float | None, str]]
"""Thresholds: the lowest value and the colour of each; None is the lowest of all."""


def rate(metric: str, where: str = HERE) -> str:
    """The increase of a counter per second."""
    return f"rate({metric}{{{where}}}[$__rate_interval])"


def quantile(q: float, metric: str, where: str = HERE, by: str = "le") -> str:
    """A quantile of a histogram, over all selected servers unless `by` groups them."""
    return f"histogram_quantile({q}, sum by ({by}) ({rate(f'{metric}_bucket', where)}))"


def quantiles(metric: str, where: str = HERE) -> list[Query]:
    """The quantiles 0.5, 0.95 and 0.99 of a histogram."""
    return [(quantile(q, metric, where), f"p{q * 100:g}") for q in (0.5, 0.95, 0.99)]


def share(part: str, whole: str) -> str:
    """A ratio that is 0, not empty, if the whole is 0."""
    return f"({part}) / ({whole} > 0) or vector(0)"


def target(query: Query, number: int, kind: str) -> Json:
    """A query of a panel; tables show the current values only."""
    return {
        "refId": chr(ord("A") + number),
        "datasource": SOURCE,
        "expr": query[0],
        "legendFormat": query[1],
        "format": kind if kind in ("table", "heatmap") else "time_series",
        "instant": kind == "table",
        "range": kind != "table",
    }


def panel(
    kind: str,
    title: str,
    size: tuple[int, int],
    queries: Sequence[Query],
    options: Json,
    defaults: Json,
    about: str = "",
) -> Json:
    """A panel; size: columns and rows; defaults: of its fields; about: its description."""
    return {
        "type": kind,
        "title": title,
        "description": about,
        "datasource": SOURCE,
        "gridPos": {"w": size[0], "h": size[1]},
        "targets": [target(query, number, kind) for number, query in enumerate(queries)],
        "options": options,
        "fieldConfig": {"defaults": defaults, "overrides": []},
    }


def stat(title: str, expression: str, unit: str = "short", steps: Steps = ((None, GREEN),), about: str = "") -> Json:
    """One current value with its history in the background."""
    calculation = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    options = {"reduceOptions": calculation, "colorMode": "value", "graphMode": "area", "textMode": "value"}
    thresholds = {"mode": "absolute", "steps": [{"value": value, "color": color} for value, color in steps]}
    return panel("stat", title, (3, 4), [(expression, "")], options, {"unit": unit, "thresholds": thresholds}, about)


def graph(
    title: str,
    *queries: Query,
    unit: str = "short",
    maximum: float | None = None,
    stacked: bool = False,
    about: str = "",
) -> Json:
    """Lines over time; maximum: upper end of the axis."""
    custom: Json = {"lineWidth": 1, "fillOpacity": 30 if stacked else 8, "showPoints": "never", "spanNulls": False}
    if stacked:
        custom["stacking"] = {"mode": "normal", "group": "A"}
    defaults = {"unit": unit, "min": 0, "custom": custom, **({"max": maximum} if maximum is not None else {})}
    options = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return panel("timeseries", title, (8, 8), queries, options, defaults, about)


def heatmap(title: str, metric: str, where: str, unit: str = "short") -> Json:
    """The distribution of a histogram over time."""
    expression = f"sum by (le) (increase({metric}_bucket{{{where}}}[$__rate_interval]))"
    options = {
        "calculate": False,
        "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64, "exponent": 0.5},
        "yAxis": {"unit": unit},
        "cellGap": 1,
        "tooltip": {"mode": "single", "yHistogram": True},
        "legend": {"show": True},
    }
    return panel("heatmap", title, (8, 8), [(expression, "{{le}}")], options, {"unit": unit})


def table(title: str, width: int, expression: str) -> Json:
    """A table of the labels of series."""
    hidden = dict.fromkeys(("Time", "Value", "__name__", "job"), True)
    return {
        **panel("table", title, (width, 7), [(expression, "")], {}, {}),
        "transformations": [{"id": "organize", "options": {"excludeByName": hidden}}],
    }
