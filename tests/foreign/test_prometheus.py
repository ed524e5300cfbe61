"""A real Prometheus stores what the server counts, value by value, and evaluates the rules as they are shipped."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from lingon import Client
from tests.reliability.checker import Scrape, Series
from tests.support.deploy_files import ALERTS, read
from tests.support.foreign_server import ForeignServer
from tests.support.prometheus import Prometheus, configuration, running_prometheus, wait_until
from tests.support.shipped_model import LINES

pytestmark = pytest.mark.foreign("prometheus")
SCRAPES = 30  # seconds for two scrapes, also on a busy machine


@pytest.fixture(scope="module")
def watching(server: ForeignServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder, target = tmp_path_factory.mktemp("prometheus"), f"127.0.0.1:{server.process.metrics_port}"
    with running_prometheus(folder, configuration(folder, target, str(ALERTS))) as url:
        yield Prometheus(url)


def stored(watching: Prometheus) -> dict[Series, float]:
    """The newest value of every series of Lingon, without the labels that Prometheus adds."""
    found = {}
    for each in watching.query('{__name__=~"lingon_.+"}'):
        own = {name: value for name, value in each["metric"].items() if name not in ("__name__", "instance", "job")}
        found[each["metric"]["__name__"], frozenset(own.items())] = float(each["value"][1])
    return found


def scraped_since(watching: Prometheus, moment: float) -> bool:
    """Whether Prometheus has scraped the server after this time, in seconds since 1970."""
    return float(watching.query('timestamp(up{job="lingon"})')[0]["value"][1]) > moment


def ours(scrape: Scrape) -> dict[Series, float]:
    return {series: value for series, value in scrape.values.items() if series[0].startswith("lingon_")}


def test_prometheus_stores_every_value_of_the_server(server: ForeignServer, watching: Prometheus):
    with Client(server.address) as client:
        client.translate(LINES[:10])
    before = ours(server.scrape())
    now = time.time()
    wait_until(lambda: scraped_since(watching, now), SCRAPES)
    found = stored(watching)
    after = ours(server.scrape())
    assert found.keys() == before.keys() == after.keys()
    still = {series: value for series, value in before.items() if after[series] == value}
    assert len(still) > len(before) / 2
    assert {series: found[series] for series in still} == still


def test_prometheus_knows_type_and_meaning_of_every_metric(server: ForeignServer, watching: Prometheus):
    names = {name for name, _ in ours(server.scrape())}
    wait_until(lambda: scraped_since(watching, 0), SCRAPES)
    known: dict[str, Any] = watching.ask("metadata")
    described = {name: entries[0] for name, entries in known.items() if name.startswith("lingon_")}
    assert {entry["type"] for entry in described.values()} <= {"counter", "gauge", "histogram"}
    assert [name for name, entry in described.items() if not entry["help"]] == []
    suffixes = ("", "_total", "_bucket", "_sum", "_count")  # OpenMetrics describes a counter without _total
    assert names == names & {name + suffix for name in described for suffix in suffixes}


def test_every_rule_is_evaluated_as_it_is_shipped(watching: Prometheus):
    wait_until(lambda: scraped_since(watching, 0), SCRAPES)
    shipped, scraped = [rule for group in read(ALERTS)["groups"] for rule in group["rules"]], time.time()
    found: list[dict[str, Any]] = []

    def evaluated() -> bool:
        found[:] = [rule for group in watching.ask("rules")["groups"] for rule in group["rules"]]
        return all(datetime.fromisoformat(rule["lastEvaluation"]).timestamp() > scraped for rule in found)

    wait_until(evaluated, SCRAPES)
    assert {rule["name"] for rule in found} == {rule.get("alert") or rule["record"] for rule in shipped}
    assert len(found) == len(shipped)
    assert [(rule["name"], rule["lastError"]) for rule in found if rule["health"] != "ok"] == []
