"""Servers as child processes: when they are ready, and their memory."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from lingon.bench.serve.servers.memory import STATE_BYTES, gauge_sum, loaded_mb, memory_bound
from lingon.bench.serve.servers.processes import serving
from lingon.bench.worker_process import Worker
from lingon.errors import LingonError
from lingon.serving.observability.metrics import Metrics
from tests.support import echo_engine

USABLE = frozenset(os.sched_getaffinity(0))


def test_the_memory_bound_counts_graphs_and_reported_caches(tmp_path: Path):
    metrics = Metrics()
    for name, size in (("a", 2_000_000), ("b", 1_000_000)):
        metrics.model(name, 1).states_changed(size)
    text = generate_latest(metrics.registry).decode()
    assert gauge_sum(text, STATE_BYTES) == 3e6
    assert gauge_sum(text, "lingon_missing") is None
    assert memory_bound(graphs_mb=15, caches_mb=3) == 183
    assert loaded_mb(echo_engine.bundle(tmp_path), "fp32") == 0


def test_an_error_in_a_worker_is_raised_by_ask():
    with (
        Worker("lingon.bench.serve.servers.engine_baseline", cores=USABLE) as worker,
        pytest.raises(LingonError, match="gone: no such folder"),
    ):
        worker.ask(model="gone", precision=None, threads=1, texts=["Tom"])


def test_a_server_is_ready_after_its_ready_line_and_its_memory_is_known():
    code = (
        "import time; print('starting'); print('ready: x/1 on 127.0.0.1:7, metrics on 127.0.0.1:8 - more', flush=True)"
    )
    with serving([sys.executable, "-c", f"{code}; time.sleep(60)"], USABLE) as server:
        assert (server.address, server.metrics) == ("127.0.0.1:7", "127.0.0.1:8")
        assert 0 < server.seconds < 10
        assert 0 < server.memory()["rss_mb"] <= server.memory()["peak_mb"]
    with (
        pytest.raises(LingonError, match="no bundle here"),
        serving([sys.executable, "-c", "import sys; sys.exit('no bundle here')"], USABLE),
    ):
        pass
