"""The metrics of a server, from their declarations."""

from __future__ import annotations

from docs.generators.markdown import code, plain, table
from lingon.serving.observability.metrics import families

SUFFIXES = {"histogram": ("_bucket", "_sum", "_count", "")}


def metrics() -> str:
    """The table of all metrics: name, type, labels, meaning."""
    rows = [
        (code(family.exported_name), family.type_name, ", ".join(map(code, labels)), plain(family.help))
        for family, labels in families()
    ]
    return table(("metric", "type", "labels", "meaning"), sorted(rows))


def names() -> set[str]:
    """The names of all series, with the suffixes of histograms."""
    return {
        f"{family.exported_name}{suffix}"
        for family, _ in families()
        for suffix in SUFFIXES.get(family.type_name, ("",))
    }
