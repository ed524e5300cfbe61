"""Running servers are compared."""

from __future__ import annotations

import os

import pytest

from lingon.bench.tools.servers.compare_servers import one_round, target
from tests.support.echo_engine import EchoRunner, running


@pytest.mark.parametrize("stream", [False, True])
async def test_running_servers_are_compared_by_latency_and_cpu_time(stream: bool) -> None:
    async with running(EchoRunner()) as server:
        here = target(f"here={os.getpid()}@127.0.0.1:{server.server.port}")
        row = await one_round(here, ["Tom", "sea"], 2, 0.3, stream=stream)
    assert row["requests_per_s"] > 0
    assert row["p50_ms"] <= row["p99_ms"]
    assert row["cpu_ms_per_request"] > 0
    assert (row["cpu_us_per_delta"] > 0) is stream
