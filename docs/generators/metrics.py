"""The metrics of a server, from their declarations."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from docs.generators.markdown import code, plain, table
from lingon.bulk.watching import Metrics
from lingon.gateway.metrics import GatewayMetrics
from lingon.serving.observability.metrics import families

SUFFIXES = {"histogram": ("_bucket", "_sum", "_count", "")}


def metrics() -> str:
    """The table of all metrics: name, type, labels, meaning."""
    rows = [
        (code(family.exported_name), family.type_name, ", ".join(map(code, labels)), plain(family.help))
        for family, labels in families()
    ]
    return table(("metric", "type", "labels", "meaning"), sorted(rows))


def metric_names() -> set[str]:
    """The names of all series, with the suffixes of histograms; those of the HTTP APIs and of bulk runs too."""
    declared = [(family.exported_name, family.type_name) for family, _ in families()]
    registry = CollectorRegistry()
    GatewayMetrics(registry)
    Metrics(registry)
    for family in registry.collect():
        declared.append((f"{family.name}_total" if family.type == "counter" else family.name, family.type))
    return {f"{name}{suffix}" for name, kind in declared for suffix in SUFFIXES.get(kind, ("",))}
