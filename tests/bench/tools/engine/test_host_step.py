"""The time of the host for a step."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def test_the_time_of_the_host_is_measured_for_greedy_and_beam_search(tmp_path: Path):
    command = [sys.executable, "-m", "lingon.bench.tools.engine.host_step", "--quick", "--results", tmp_path]
    subprocess.run(command, capture_output=True, check=True, timeout=200)
    (path,) = tmp_path.glob("*-host-step.json")
    found = {
        (row["sentences"], row["beam_size"]): row["host_us"]
        for row in json.loads(path.read_text(encoding="utf-8"))["rows"]
    }
    assert found.keys() == {(1, 1), (1, 4), (8, 1), (8, 4)}
    assert all(microseconds > 0 for microseconds in found.values())
