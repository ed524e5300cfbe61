"""Readers of the files in deploy/, of the Dockerfile among them."""

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
    """Return the content of a YAML file."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def documents(path: Path) -> list[Any]:
    """Return the contents of a YAML file that may hold several."""
    return [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]


def alerts() -> list[dict[str, Any]]:
    """Return all alert rules."""
    return [rule for group in read(ALERTS)["groups"] for rule in group["rules"]]


def seconds(duration: str | int) -> float:
    """Return the seconds of a duration in the notation of Docker and Prometheus, such as 1m30s."""
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", str(duration))
    assert "".join(amount + unit for amount, unit in parts) == str(duration), f"{duration} is no duration"
    return sum(float(amount) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}[unit] for amount, unit in parts)


def metrics_in(expression: str) -> set[str]:
    """Return the names of the metrics in a PromQL expression."""
    return set(re.findall(r"\b(?:lingon|process)_\w+|\bup\b|\bALERTS\b", expression))


def exported(registry: CollectorRegistry) -> set[str]:
    """Return the names of all time series of a registry, including those without values yet."""
    return {
        family.name + suffix for family in registry.collect() for suffix in SUFFIXES.get(family.type, ("",))
    } | PROMETHEUS_ITSELF


def runbook_queries() -> list[str]:
    """Return the queries in the runbook."""
    spans = re.findall(r"`([^`\n]+)`", RUNBOOK.read_text(encoding="utf-8"))
    return [span for span in spans if re.match(r"(sum|changes|histogram_quantile|up\{|lingon_\w+)", span)]


DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")


def stages() -> dict[str, tuple[str, list[str]]]:
    """Return every stage with its base and its instructions, each on one line."""
    found: dict[str, tuple[str, list[str]]] = {}
    lines = [line for line in DOCKERFILE.splitlines() if line and not line.startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if stage := re.fullmatch(r"FROM (\S+) AS (\S+)", line):
            found[stage[2]] = (stage[1], [])
        else:
            next(reversed(found.values()))[1].append(line)
    return found


def instructions(stage: str) -> list[str]:
    """Return all instructions of a stage and of the stages that it is based on."""
    everything = stages()
    parent, own = everything[stage]
    return [*(instructions(parent) if parent in everything else []), *own]


def environment(stage: str) -> dict[str, str]:
    lines = [line for line in instructions(stage) if line.startswith("ENV ")]
    return {name: value for line in lines for name, value in re.findall(r"(\w+)=(\S+)", line)}
