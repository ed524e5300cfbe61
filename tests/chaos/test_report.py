"""Results of single cases are merged into those of the day, and the table shows them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from chaos.report import read_rows, save, summary, table
from chaos.verdict.checks import Row
from lingon.errors import LingonError

DAY = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


def row(name: str = "slow_readers", verdict: str = "pass") -> Row:
    return Row(name, "some|thing", "bound", verdict)


def test_a_row_replaces_the_row_of_its_case(tmp_path: Path):
    save([row("a", "fail"), row("b")], tmp_path, ["make"], DAY)
    path = save([row("a")], tmp_path, ["pytest", "-k", "a"], DAY)
    content = json.loads(path.read_text())
    assert path.name == "2026-01-02-chaos.json"
    assert [(each["case"], each["verdict"], each["command"]) for each in content["rows"]] == [
        ("a", "pass", "pytest -k a"),
        ("b", "pass", "make"),
    ]
    assert {"date", "machine", "commit", "command"} < content.keys()


def test_a_file_that_holds_no_results_is_not_overwritten(tmp_path: Path):
    (tmp_path / "2026-01-02-chaos.json").write_text("[]")
    with pytest.raises(LingonError, match="not a file of results"):
        save([row()], tmp_path, [], DAY)
    assert (tmp_path / "2026-01-02-chaos.json").read_text() == "[]"


def test_the_table_is_markdown():
    assert table([row()]).splitlines()[-1] == "| slow readers | some\\|thing | bound | pass |"


def test_rows_are_read_as_they_were_saved_and_counted(tmp_path: Path):
    rows = [row("a"), row("b", "skip"), row("c")]
    assert read_rows(save(rows, tmp_path, [])) == rows
    assert summary(rows) == "3 run: 2 pass, 1 skip"
