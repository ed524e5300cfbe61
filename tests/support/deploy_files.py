"""What is in deploy/, as tests read it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import CollectorRegistry

from tests.support.repository import ROOT

DEPLOY = ROOT / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
RUNBOOK = DEPLOY / "RUNBOOK.md"
DASHBOARD = DEPLOY / "grafana" / "dashboards" / "lingon.json"

PROMETHEUS_ITSELF = {"up", "ALERTS"}
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}


def read(path: Path) -> Any:
    """The content of a YAML file."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def documents(path: Path) -> list[Any]:
    """The contents of a YAML file that may hold several."""
    return [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]


def alerts() -> list[dict[str, Any]]:
    """All alerts."""
    return [rule for group in read(ALERTS)["groups"] for rule in group["rules"]]


def seconds(duration: str | int) -> float:
    """A duration as Docker and Prometheus write it: 1m30s."""
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", str(duration))
    assert "".join(amount + unit for amount, unit in parts) == str(duration), f"{duration} is no duration"
    return sum(float(amount) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}[unit] for amount, unit in parts)


def metrics_in(expression: str) -> set[str]:
    """The metrics that an expression of PromQL names."""
    return set(re.findall(r"\b(?:lingon|process)_\w+|\bup\b|\bALERTS\b", expression))


def exported(registry: CollectorRegistry) -> set[str]:
    """The names of all series that a registry has, or will have."""
    return {
        family.name + suffix for family in registry.collect() for suffix in SUFFIXES.get(family.type, ("",))
    } | PROMETHEUS_ITSELF


def runbook_queries() -> list[str]:
    """What the runbook tells people to ask Prometheus."""
    spans = re.findall(r"`([^`\n]+)`", RUNBOOK.read_text(encoding="utf-8"))
    return [span for span in spans if re.match(r"(sum|changes|histogram_quantile|up\{|lingon_\w+)", span)]
