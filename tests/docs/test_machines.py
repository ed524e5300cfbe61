"""The tables of the page on many machines, made of results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from docs.generators.machines import capacity, measured, restarts, slow_server

RUN = {
    "balancing": "fewest calls",
    "ended_by": "SIGTERM",
    "restarts": 10,
    "requests": 4321,
    "p50_ms": 20.4,
    "p99_ms": 300.6,
    "errors_with_retry": 0,
    "errors_without_retry": 1,
    "envoy_retries": 30,
    "share_of_slow_server": 0.205,
}
CAPACITY = {
    "speed": {"1": 100.4, "64": 240.0},
    "one_server": [{"load": 0.5, "p50_ms": 20.0, "p99_ms": 90.0, "simulated_p50_ms": 21.0, "simulated_p99_ms": 71.0}],
    "slow_server": {
        "rows": [
            {"speed": 0.25, "servers": 4, "policy": "fewest calls", "p50_ms": 25.0, "p99_ms": 180.5},
            {"speed": 0.25, "servers": 4, "policy": "in turns", "p50_ms": None, "p99_ms": None},
        ]
    },
    "rows": [
        {"servers": 1024, "policy": "fewest calls", "load": 0.95, "requests_per_s": 1234.5, "cost_per_million": 0.0467},
        {"servers": 1024, "policy": "in turns", "load": 0.9, "requests_per_s": 1000.0, "cost_per_million": 0.05},
    ],
}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    (tmp_path / "2026-01-01-envoy.json").write_text(json.dumps({"rows": []}))
    (tmp_path / "2026-02-01-envoy.json").write_text(json.dumps({"rows": [RUN]}))
    (tmp_path / "2026-02-01-capacity.json").write_text(json.dumps(CAPACITY))
    return tmp_path


def test_the_table_of_restarts_is_that_of_the_newest_results(results: Path) -> None:
    assert "| fewest calls | SIGTERM | 10 | 4,321 | 20 | 301 | 0 | 1 | 30 | 20 % |" in restarts(results)


def test_the_table_of_loads_has_the_rate_and_the_price_of_the_first_policy(results: Path) -> None:
    text = capacity(results)
    assert "| 1,024 | 1,234 | 0.047 | 95 % | 90 % |" in text
    assert "2026-02-01-capacity.svg" in text


def test_the_server_that_was_measured_is_beside_the_simulation(results: Path) -> None:
    text = measured(results)
    assert "| sentences/s | 100 | 240 |" in text
    assert "| 50 % | 20 | 90 | 21 | 71 |" in text


def test_a_queue_that_grows_on_has_no_percentile(results: Path) -> None:
    assert "| 25 % | 4 | 180 ms | no end |" in slow_server(results)
