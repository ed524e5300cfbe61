"""The rehearsal of what is run on a card."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.repository import ROOT

SCRIPT = ROOT / "scripts" / "on_card.sh"


def test_the_steps_are_measured_in_main_memory_and_the_log_and_the_results_are_kept(tmp_path: Path):
    folder = tmp_path / "new" / "folder"
    command = [SCRIPT, "steps", folder, "--device", "cpu", "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, timeout=200)
    log = (folder / "steps.log").read_text(encoding="utf-8")
    assert "written: " in done.stdout
    assert "written: " in log
    (path,) = folder.glob("*-device-steps.json")
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["device"] == "cpu"
    cells = {(row["sentences"], row["beam_size"]): row for row in found["rows"]}
    assert cells.keys() == {(1, 1), (1, 4), (8, 1), (8, 4)}
    assert all(row["step_ms"] > 0 and row["encoder_ms"] > 0 for row in cells.values())
    assert cells[8, 1]["copied_bytes_per_step"] < 8 * 16


@pytest.mark.parametrize("arguments", [[], ["steps"], ["other", "folder"], ["steps", "folder", "--fast"]])
def test_wrong_arguments_print_the_usage(arguments: list[str], tmp_path: Path):
    done = subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert "scripts/on_card.sh STEP FOLDER" in done.stderr


def test_without_a_card_the_reason_is_named(tmp_path: Path):
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([SCRIPT, "steps", tmp_path], env=hidden, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "device cuda: " in done.stdout
    assert "Traceback" not in done.stdout


def test_the_time_of_the_host_is_measured_for_greedy_and_beam_search(tmp_path: Path):
    command = [sys.executable, "-m", "lingon.bench.tools.host_step", "--quick", "--results", tmp_path]
    subprocess.run(command, capture_output=True, check=True, timeout=200)
    (path,) = tmp_path.glob("*-host-step.json")
    found = {
        (row["sentences"], row["beam_size"]): row["host_us"]
        for row in json.loads(path.read_text(encoding="utf-8"))["rows"]
    }
    assert found.keys() == {(1, 1), (1, 4), (8, 1), (8, 4)}
    assert all(microseconds > 0 for microseconds in found.values())
