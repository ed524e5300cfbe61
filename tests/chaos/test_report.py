"""Results of single cases merge into those of the day."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from chaos.report import Row, read, save, summary, table
from lingon.errors import LingonError

DAY = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


def row(number: int, verdict: str = "pass") -> Row:
    return Row(number, f"{number} some|thing", "figure", "bound", verdict)


def test_a_row_takes_the_place_of_the_one_of_its_number(tmp_path):
    save([row(10, "fail"), row(2)], tmp_path, [], DAY)
    path = save([row(10)], tmp_path, ["--only", "10"], DAY)
    content = json.loads(path.read_text())
    assert path.name == "2026-01-02-chaos.json"
    assert [(each["number"], each["verdict"], each["command"]) for each in content["rows"]] == [
        (2, "pass", "python -m chaos"),
        (10, "pass", "python -m chaos --only 10"),
    ]
    assert {"date", "machine", "commit", "command"} < content.keys()


def test_a_file_that_is_none_of_results_is_left_alone(tmp_path):
    (tmp_path / "2026-01-02-chaos.json").write_text("[]")
    with pytest.raises(LingonError, match="not a file of results"):
        save([row(1)], tmp_path, [], DAY)
    assert (tmp_path / "2026-01-02-chaos.json").read_text() == "[]"


def test_the_table_is_markdown():
    assert table([row(1)]).splitlines()[-1] == "| 1 some\\|thing | figure | bound | pass |"


def test_a_long_figure_is_cut_where_a_finding_ends():
    found = replace(row(1), figure="first: 1; second: 2; third: 3")
    assert [table([found], most).splitlines()[-1].split(" | ")[1] for most in (1, 19, 99)] == [
        "first: 1",
        "first: 1; second: 2",
        found.figure,
    ]


def test_rows_are_read_as_they_were_saved_and_counted(tmp_path: Path):
    rows = [row(1), row(2, "skip"), row(3)]
    assert read(save(rows, tmp_path, [])) == rows
    assert summary(rows) == "3 run: 2 pass, 1 skip"
