"""The rehearsal of what is run on a card."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest

from tests.support.repository import ROOT

SCRIPT = ROOT / "scripts" / "on_card.sh"
GROUPS = ("lingon.verbs", "lingon.translators")
REHEARSAL = ("--device", "cpu", "--quick")


def on_card(
    *arguments: str | Path, cwd: Path = ROOT, check: bool = False, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the script with this Python and these variables."""
    environment = {**os.environ, "PYTHON": sys.executable, **variables}
    command = [SCRIPT, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=check, cwd=cwd, timeout=200)


def test_the_steps_are_measured_in_main_memory_and_the_log_and_the_results_are_kept(tmp_path: Path):
    folder = tmp_path / "new" / "folder"
    done = on_card("steps", folder, *REHEARSAL, cwd=tmp_path, check=True)
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


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["steps"],
        ["other", "folder"],
        ["steps", "folder", "--fast"],
        ["steps", "folder", "--device", "tpu"],
        ["training", "folder", "--config", "missing.toml"],
        ["training", "folder"],
    ],
)
def test_wrong_arguments_print_the_usage_and_make_no_folder(arguments: list[str], tmp_path: Path):
    done = on_card(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert "scripts/on_card.sh STEP FOLDER" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_step_that_is_cut_off_says_so_and_is_not_a_failure_of_its_command(tmp_path: Path):
    done = on_card("gpu", tmp_path, *REHEARSAL, LIMIT="0.3")
    assert done.returncode == 75
    assert "gpu was ended after 0.3 s; call it again to go on" in done.stdout
    assert "call it again" in (tmp_path / "gpu.log").read_text(encoding="utf-8")


def test_a_training_goes_on_from_its_last_checkpoint(tmp_path: Path):
    for steps in ("2", "4"):
        done = on_card("training", tmp_path, *REHEARSAL, check=True, QUICK_STEPS=steps)
        assert f"ended after step {steps}" in done.stdout
    assert "resumes after step 2" in done.stdout
    log = (tmp_path / "training.log").read_text(encoding="utf-8")
    assert log.index("ended after step 2") < log.index("resumes after step 2")


def test_without_a_card_the_reason_is_named(tmp_path: Path):
    done = on_card("steps", tmp_path, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 2
    assert "device cuda: " in done.stdout
    assert "Traceback" not in done.stdout


def test_a_checkout_that_is_not_installed_has_the_commands_of_the_package(tmp_path: Path):
    subprocess.run([sys.executable, ROOT / "scripts" / "metadata.py", tmp_path], check=True)
    (found,) = distributions(path=[str(tmp_path)])
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (found.name, found.version) == ("lingon", declared["version"])
    groups = {name: {entry.name: entry.value for entry in found.entry_points.select(group=name)} for name in GROUPS}
    assert groups == {name: declared["entry-points"][name] for name in GROUPS}


def test_the_comparison_of_systems_is_a_step_with_options_of_its_own(tmp_path: Path):
    done = on_card("systems", tmp_path, *REHEARSAL, OPTIONS="--system marian")
    assert done.returncode == 2
    assert "--system must be one of rnnenc, rnnsearch" in done.stdout


def test_more_options_reach_the_command(tmp_path: Path):
    done = on_card("gpu", tmp_path, *REHEARSAL, OPTIONS="--engine marian")
    assert done.returncode == 2
    assert (
        "--engine must be of lingon, lingon-cuda-graphs, transformers, transformers-static, torch-graph, ctranslate2"
        in done.stdout
    )
