"""Alerts, dashboard and runbook use metrics that the server exports, and agree with each other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from lingon.gateway.metrics import GatewayMetrics
from lingon.serving.models.registry import ABORT_SECONDS
from lingon.serving.observability.metrics import Metrics, families, reasons
from lingon.serving.observability.opentelemetry import EXPORTER_SHUTDOWN, FLUSH
from lingon.serving.server import LATE_CALL_SECONDS
from tests.support.deploy_files import (
    ALERTS,
    DASHBOARD,
    DEPLOY,
    RUNBOOK,
    alerts,
    exported,
    metrics_in,
    read,
    runbook_queries,
    seconds,
)

TEXT = RUNBOOK.read_text(encoding="utf-8")
BOARD = json.loads(DASHBOARD.read_text(encoding="utf-8"))
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
BOUNDS = {family.exported_name: family.buckets for family, _ in families() if family.type_name == "histogram"}


@pytest.fixture(scope="module")
def known() -> set[str]:
    metrics = Metrics()
    metrics.model("en-de", 1)
    GatewayMetrics(metrics.registry)
    return exported(metrics.registry)


def expressions() -> Iterator[str]:
    """All expressions of the dashboard."""
    yield from (target["expr"] for panel in PANELS for target in panel["targets"])
    yield from (annotation["expr"] for annotation in BOARD["annotations"]["list"])
    yield from (variable["definition"] for variable in BOARD["templating"]["list"] if "definition" in variable)


def places(panel: dict[str, Any]) -> set[tuple[int, int]]:
    """The grid cells that a panel covers."""
    at = panel["gridPos"]
    return {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}


def test_alerts_use_metrics_that_exist(known):
    asked = {alert["alert"]: metrics_in(alert["expr"]) for alert in alerts()}
    assert all(asked.values())
    assert {name: names - known for name, names in asked.items() if names - known} == {}


def test_thresholds_of_quantiles_are_bounds_of_buckets():
    asked = [
        (name, float(threshold))
        for alert in alerts()
        for name, threshold in re.findall(
            r"histogram_quantile.*?(lingon_\w+)_bucket.*?\) > ([\d.]+)", alert["expr"], re.DOTALL
        )
    ]
    assert len(asked) == sum(alert["expr"].count("histogram_quantile") for alert in alerts()) > 1
    assert [(name, bound) for name, bound in asked if bound not in BOUNDS[name]] == []


def test_the_tests_of_alerts_use_buckets_that_exist():
    text = (DEPLOY / "prometheus" / "alerts_test.yml").read_text(encoding="utf-8")
    asked = re.findall(r'(lingon_\w+)_bucket\{[^}]*le="([\d.]+)"', text)
    assert asked
    assert [(name, bound) for name, bound in asked if float(bound) not in BOUNDS[name]] == []


def test_the_dashboard_uses_metrics_that_exist(known):
    assert {expression for expression in expressions() if metrics_in(expression) - known} == set()


def test_the_runbook_uses_metrics_that_exist(known):
    assert {query for query in runbook_queries() if metrics_in(query) - known} == set()


def test_reasons_in_expressions_are_reasons_of_errors():
    asked = {
        reason
        for text in [ALERTS.read_text(encoding="utf-8"), *expressions()]
        for group in re.findall(r'reason=~"([^"]+)"', text)
        for reason in group.split("|")
    }
    assert asked <= set(reasons())
    assert "QUEUE_FULL" in asked


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_an_alert_has_a_severity_a_summary_a_description_and_a_runbook_link(alert):
    assert alert["labels"]["severity"] in ("critical", "warning")
    notes = alert["annotations"]
    assert set(notes) == {"summary", "description", "runbook_url"}
    assert notes["runbook_url"] == f"deploy/RUNBOOK.md#{alert['alert'].lower()}"
    assert all(seconds(alert[key]) >= 0 for key in ("for",) if key in alert)


def test_alerts_and_sections_of_the_runbook_match():
    section = TEXT.split("\n## Alerts\n")[1].split("\n## ")[0]
    assert re.findall(r"^### (.+)$", section, re.MULTILINE) == [alert["alert"] for alert in alerts()]
    bodies = re.split(r"^### .+$", section, flags=re.MULTILINE)[1:]
    assert all(part in body for body in bodies for part in ("\n- Check: ", "\n- Do: "))


def test_every_alert_has_a_test():
    text = (DEPLOY / "prometheus" / "alerts_test.yml").read_text(encoding="utf-8")
    assert [alert["alert"] for alert in alerts() if f'alertname="{alert["alert"]}"' not in text] == []
    assert read(DEPLOY / "prometheus" / "alerts_test.yml")["rule_files"] == [ALERTS.name]


def test_prometheus_finds_a_file_of_alertmanagers_which_names_none():
    """Without a file Prometheus logs an error at its start."""
    (found,) = read(DEPLOY / "prometheus" / "prometheus.yml")["alerting"]["alertmanagers"][0]["file_sd_configs"]
    (pattern,) = found["files"]
    assert read(DEPLOY / "prometheus" / "alertmanagers" / "none.yml") == []
    assert DEPLOY / "prometheus" / "alertmanagers" / "none.yml" in (DEPLOY / "prometheus").glob(pattern)


def test_links_of_the_runbook_are_valid():
    titles = re.findall(r"^#+ (.+)$", TEXT, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}
    for target in re.findall(r"\]\(([^)]+)\)", TEXT + (DEPLOY / "README.md").read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        assert (DEPLOY / path).exists(), target
        assert not anchor or anchor in anchors, target


def test_panels_named_in_the_runbook_are_on_the_dashboard():
    titles = [panel["title"] for panel in BOARD["panels"]]
    named = re.findall(r"(?<![*\w])\*([A-Z][^*\n]+)\*(?![*\w])", TEXT)
    assert named
    assert [name for name in named if not any(title.startswith(name) for title in titles)] == []


def test_panels_have_unique_ids_and_do_not_overlap():
    numbers = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(numbers)) == len(numbers)
    covered: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        cells = places(panel)
        assert not covered & cells, panel["title"]
        assert all(0 <= x < 24 for x, _ in cells), panel["title"]
        covered |= cells


def test_every_panel_queries_the_chosen_data_source():
    for panel in PANELS:
        assert panel["targets"], panel["title"]
        assert all(target["expr"].strip() for target in panel["targets"]), panel["title"]
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_used_variables_are_declared():
    declared = {variable["name"] for variable in BOARD["templating"]["list"]}
    used = {name for expression in expressions() for name in re.findall(r"\$(\w+)", expression)}
    assert used - {"__rate_interval"} == {"instance", "model"}
    assert declared == {"datasource", "instance", "model"}


def test_every_metric_of_the_server_is_on_the_dashboard(known):
    shown = {name for expression in expressions() for name in metrics_in(expression)}
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in known if name.startswith("lingon_")}
    assert families - {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown} == set()


def test_the_runbook_has_the_longest_time_of_an_exit_after_the_drain():
    section = TEXT.split("\n### Draining\n")[1].split("\n### ")[0]
    assert f"at most {2 * ABORT_SECONDS + LATE_CALL_SECONDS:g} s after the drain" in section
    assert f"the calls that still arrive take {LATE_CALL_SECONDS:g} s" in section
    assert f"add {FLUSH + EXPORTER_SHUTDOWN:g} s" in section
