"""The script for a machine with a card, on a machine without one."""

from __future__ import annotations

import shutil
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest

from tests.support.card_script import SCRIPT, on_card
from tests.support.repository import ROOT

GROUPS = ("lingon.verbs", "lingon.translators")


def test_a_command_gets_its_arguments_and_leaves_its_log_and_its_exit_code(tmp_path: Path):
    done = on_card(tmp_path / "new", "inspect", tmp_path / "missing")
    assert done.returncode == 1
    assert "lingon: error: " in done.stdout
    assert "lingon: error: " in (tmp_path / "new" / "inspect.log").read_text(encoding="utf-8")


def test_a_module_can_be_named_in_place_of_a_command(tmp_path: Path):
    assert on_card(tmp_path, "-m", "calendar", "2026").returncode == 0
    assert "2026" in (tmp_path / "m.log").read_text(encoding="utf-8")


@pytest.mark.parametrize("arguments", [[], ["folder"]])
def test_too_few_arguments_print_the_usage(arguments: list[str]):
    done = on_card(*arguments)
    assert done.returncode == 2
    assert "scripts/on_card.sh FOLDER COMMAND" in done.stderr


def test_a_command_that_is_cut_off_says_so_and_is_not_a_failure(tmp_path: Path):
    done = on_card(tmp_path, "-m", "http.server", "0", LIMIT="0.5")
    assert done.returncode == 75
    assert "-m was ended after 0.5 s; call it again to go on" in done.stdout
    assert "call it again" in (tmp_path / "m.log").read_text(encoding="utf-8")


def test_a_checkout_that_is_not_installed_has_the_commands_of_the_package(tmp_path: Path):
    """The Python is one without packages: the metadata are written, and then the command lacks its imports."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPT, tmp_path / "scripts")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys._base_executable} -S "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    folder = tmp_path / "folder"
    assert (
        on_card(folder, "-m", "calendar", script=tmp_path / "scripts" / "on_card.sh", PYTHON=str(python)).returncode
        == 0
    )
    (found,) = distributions(path=[str(folder / "metadata")])
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (found.name, found.version) == ("lingon", declared["version"])
    groups = {name: {entry.name: entry.value for entry in found.entry_points.select(group=name)} for name in GROUPS}
    assert groups == {name: declared["entry-points"][name] for name in GROUPS}
