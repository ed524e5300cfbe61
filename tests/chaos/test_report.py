"""Results of single cases merge into those of the day."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from chaos.report import Row, save, table
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
