"""The metric families of a server."""

from __future__ import annotations

from docs.generators.markdown import code, plain, table
from lingon.serving.observability.metrics import Metrics


def metrics() -> str:
    """The table of all metrics: name, type, labels, meaning."""
    return table(("metric", "type", "labels", "meaning"), sorted(_rows()))


def names() -> set[str]:
    """The names of all series, with the suffixes of counters and histograms."""
    suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count", "")}
    families = _families()
    return {f"{name}{end}" for name, kind, _, _ in families for end in suffixes.get(kind, ("",))}


def _rows() -> list[tuple[str, str, str, str]]:
    return [
        (code(f"{name}_total" if kind == "counter" else name), kind, ", ".join(map(code, labels)), plain(text))
        for name, kind, labels, text in _families()
    ]


def _families() -> list[tuple[str, str, tuple[str, ...], str]]:
    """Name, type, labels and help text of every family of ours."""
    registry = Metrics().registry
    found = {collector for collector in registry._names_to_collectors.values() if hasattr(collector, "_labelnames")}
    return [(each._name, each._type, each._labelnames, each._documentation) for each in found]
