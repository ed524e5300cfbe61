"""A real Prometheus watches a real server: dashboard queries return data, and alerts fire when they should."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from lingon.serving.runtime.device import expects_cuda
from tests.support.deploy_files import DASHBOARD, alerts, runbook_queries
from tests.support.prometheus import PrometheusWatch, lowered, wait_until, watched

pytestmark = pytest.mark.ops
BOARD = json.loads(DASHBOARD.read_text(encoding="utf-8"))
QUERIES = {
    f"{panel['title']} {target['refId']}": target["expr"]
    for panel in BOARD["panels"]
    for target in panel.get("targets", [])
}
OF_CARDS = {name: query for name, query in QUERIES.items() if "DCGM_" in query}
"""Queries of metrics that only dcgm-exporter has, on a machine with a card."""

SCRAPES = 30  # seconds for several scrapes on a busy machine: after a late one gauges and targets are missing
CHOICES = {"$__rate_interval": "15s", "$instance": ".*", "$model": ".*"}


@pytest.fixture(scope="module")
def watch(tmp_path_factory) -> Iterator[PrometheusWatch]:
    if shutil.which("prometheus") is None:
        pytest.skip("ops: no prometheus command")
    with watched(tmp_path_factory.mktemp("prometheus")) as found:
        yield found


@pytest.mark.parametrize("name", [name for name in QUERIES if name not in OF_CARDS])
def test_a_panel_shows_data(watch, name):
    expression = QUERIES[name]
    for variable, value in CHOICES.items():
        expression = expression.replace(variable, value)
    wait_until(lambda: watch.query(expression) != [], SCRAPES)


@pytest.mark.parametrize("query", OF_CARDS.values())
def test_a_query_of_a_card_is_valid(watch, query):
    watch.query(query)


@pytest.mark.parametrize("query", runbook_queries())
def test_a_query_of_the_runbook_is_valid(watch, query):
    watch.query(query)


def test_alerts_are_evaluated_without_an_error(watch):
    found = [rule for group in watch.ask("rules")["groups"] for rule in group["rules"]]
    assert len(found) == 2 * len(alerts())
    assert [(rule["name"], rule["lastError"]) for rule in found if rule["health"] != "ok"] == []


def test_the_series_of_every_alert_exist(watch):
    expressions = {alert["alert"]: lowered(alert["expr"]) for alert in alerts()}
    wait_until(lambda: all(map(watch.query, expressions.values())), SCRAPES)
    with suppress(AssertionError):  # the assertion below shows the missing alerts
        wait_until(lambda: watch.firing(rehearsal="lowered") == set(expressions), SCRAPES)
    assert watch.firing(rehearsal="lowered") == set(expressions)


def test_the_texts_of_alerts_contain_their_values(watch):
    texts = [text for alert in watch.ask("alerts")["alerts"] for text in alert["annotations"].values()]
    assert texts
    assert [text for text in texts if "{{" in text or "<no value>" in text or "error expanding" in text] == []


def test_no_alert_fires_for_a_healthy_server(watch):
    """The exceptions are latency alerts, because the test machine may be busy, and a fallback on one with a GPU."""
    expected = {"LingonLatencyHigh", "LingonEventLoopLag", *(["LingonProviderFallback"] if expects_cuda() else [])}
    for _ in range(3):  # several evaluations apart, so that a flapping alert is found
        wait_until(lambda: watch.firing(rehearsal="as they are") <= expected, SCRAPES)
        time.sleep(2.5)


def test_an_engine_that_dies_fires_an_alert(watch):
    watch.fail("dies")
    wait_until(lambda: "LingonEngineRestarted" in watch.firing(rehearsal="as they are"), 60)
    wait_until(lambda: [each["value"][1] for each in watch.query("lingon_ready")] == ["1"], SCRAPES)


def test_a_server_with_a_hung_engine_exits_and_fires_an_alert(watch):
    """This test is the last one, because it ends the server."""
    watch.fail("hangs")
    assert watch.server.process.wait(timeout=60) == 1
    wait_until(lambda: watch.firing(rehearsal="as they are") >= {"LingonUnreachable", "LingonNoneReady"}, 60)
