"""`lingon bench serve --engine null`: every request is answered, and CPU time is counted for the right process."""

from __future__ import annotations

import os
import time
from pathlib import Path

from lingon.bench.serve.overhead import measure_overhead, overhead_table
from lingon.bench.serve.plan import CpuPlan
from lingon.bench.worker_process import cpu_seconds
from tests.support import echo_engine


def test_both_servers_answer_every_request_and_cost_cpu_time(tmp_path: Path) -> None:
    bundle = echo_engine.bundle(tmp_path)
    rows = measure_overhead(
        bundle.folder, ["Tom", "sea"], CpuPlan.choose(None, None), seconds=0.3, rounds=1, write=lambda _: None
    )
    assert sorted((row["kind"], row["clients"]) for row in rows) == [
        ("echo", 1), ("echo", 64), ("lingon", 1), ("lingon", 64),
    ]  # fmt: skip
    assert all(row["requests"] >= 5 and row["cpu_ms"] > 0 for row in rows)
    assert overhead_table(rows).row_count == 4


def test_cpu_time_is_that_of_the_process() -> None:
    before, end = cpu_seconds(os.getpid()), time.process_time() + 0.2
    while time.process_time() < end:
        pass
    assert cpu_seconds(os.getpid()) - before >= 0.1
