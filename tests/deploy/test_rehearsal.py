"""A real Prometheus watches a real server: what the dashboard asks has answers, and alerts fire when it is time."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.support.deploy_files import DASHBOARD, alerts, runbook_queries
from tests.support.watched_server import Watch, lowered, wait_until, watched

pytestmark = pytest.mark.ops
BOARD = json.loads(DASHBOARD.read_text(encoding="utf-8"))
QUERIES = {
    f"{panel['title']} {target['refId']}": target["expr"]
    for panel in BOARD["panels"]
    for target in panel.get("targets", [])
}
SCRAPES = 30  # seconds in which a busy machine does some: one that comes late takes gauges away, and a target
CHOICES = {"$__rate_interval": "15s", "$instance": ".*", "$model": ".*"}


@pytest.fixture(scope="module")
def watch(tmp_path_factory) -> Iterator[Watch]:
    if shutil.which("prometheus") is None:
        pytest.skip("ops: no prometheus command")
    with watched(tmp_path_factory.mktemp("prometheus")) as found:
        yield found


@pytest.mark.parametrize("name", QUERIES)
def test_a_panel_has_something_to_show(watch, name):
    expression = QUERIES[name]
    for variable, value in CHOICES.items():
        expression = expression.replace(variable, value)
    wait_until(lambda: watch.query(expression) != [], SCRAPES)


@pytest.mark.parametrize("query", runbook_queries())
def test_a_query_of_the_runbook_can_be_asked(watch, query):
    watch.query(query)


def test_alerts_are_evaluated_without_an_error(watch):
    found = [rule for group in watch.ask("rules")["groups"] for rule in group["rules"]]
    assert len(found) == 2 * len(alerts())
    assert [(rule["name"], rule["lastError"]) for rule in found if rule["health"] != "ok"] == []


def test_every_alert_has_the_series_that_it_looks_at(watch):
    expressions = {alert["alert"]: lowered(alert["expr"]) for alert in alerts()}
    wait_until(lambda: all(map(watch.query, expressions.values())), SCRAPES)
    with suppress(AssertionError):  # the next line tells which
        wait_until(lambda: watch.firing(rehearsal="lowered") == set(expressions), SCRAPES)
    assert watch.firing(rehearsal="lowered") == set(expressions)


def test_the_words_of_an_alert_have_their_values(watch):
    texts = [text for alert in watch.ask("alerts")["alerts"] for text in alert["annotations"].values()]
    assert texts
    assert [text for text in texts if "{{" in text or "<no value>" in text or "error expanding" in text] == []


def test_on_a_well_server_nothing_fires(watch):
    """But that it runs on a CPU, where there is no card; and that it is slow, where a test machine is busy."""
    expected = {"LingonProviderFallback", "LingonLatencyHigh", "LingonEventLoopLag"}
    for _ in range(3):  # some evaluations apart, so that none flaps
        wait_until(lambda: watch.firing(rehearsal="as they are") <= expected, SCRAPES)
        time.sleep(2.5)


def test_an_engine_that_dies_is_told(watch):
    watch.fail("dies")
    wait_until(lambda: "LingonEngineRestarted" in watch.firing(rehearsal="as they are"), 60)
    wait_until(lambda: [each["value"][1] for each in watch.query("lingon_ready")] == ["1"], SCRAPES)


def test_a_server_whose_engine_hangs_ends_to_be_started_again_and_is_missed(watch):
    """Last, for it ends the server."""
    watch.fail("hangs")
    assert watch.server.process.wait(timeout=60) == 1
    wait_until(lambda: watch.firing(rehearsal="as they are") >= {"LingonUnreachable", "LingonNoneReady"}, 60)
