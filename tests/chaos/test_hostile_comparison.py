"""Hostile figures are kept by side and case; the table shows each before and after, and what is out of bounds."""

from __future__ import annotations

import json
import math

import pytest

from chaos.case import Case
from chaos.cases.hostile.engine import may_need
from chaos.context import CaseContext
from chaos.hostile import comparison
from chaos.selection import all_cases
from chaos.verdict.checks import Checks, Row
from lingon.errors import LingonError

SOURCE = {"date": "2026-01-02", "commit": "abc", "command": "python -m chaos hostile"}


def row(number: int, *values: float) -> Row:
    checks = Checks()
    for place, value in enumerate(values):
        checks.at_most(f"value {place}", value, 1.0, "s")
    checks.measured("load", 4.0)
    return Row(number, f"{number} some", "figure", "bound", checks.verdict, checks.details())


def declared(number: int) -> Case:
    async def body(context: CaseContext, checks: Checks) -> None: ...

    return Case(number, "some", "a|bound", body, ["zero {value 0}", "one {value 1}"], findings=(1, 4))


def test_a_side_of_a_case_is_replaced_and_the_other_side_stays(tmp_path):
    path = tmp_path / "new" / "hostile.json"
    comparison.merge(path, "after", row(46, 0.5), SOURCE)
    comparison.merge(path, "before", row(46, 9.0), SOURCE)
    comparison.merge(path, "before", row(45, 9.0), SOURCE)
    comparison.merge(path, "before", row(46, 8.0), SOURCE)
    content = json.loads(path.read_text())
    assert {side: list(cases) for side, cases in content.items()} == {"before": ["45", "46"], "after": ["46"]}
    assert content["before"]["46"]["checks"][0]["value"] == "8 s"
    assert content["before"]["46"]["commit"] == "abc"


def test_the_table_has_a_line_for_each_figure_and_marks_what_is_out_of_bounds(tmp_path):
    path = tmp_path / "hostile.json"
    comparison.merge(path, "before", row(46, 9.0), SOURCE)
    comparison.merge(path, "after", row(46, 0.5, 0.25), SOURCE)
    assert comparison.figures(path, [declared(45), declared(46)]).splitlines()[2:] == [
        "| 46 | 1, 4 | value 0 | **9 s** | 500 ms | <= 1 s |",
        "| 46 | 1, 4 | value 1 |  | 250 ms | <= 1 s |",
        "| 46 | 1, 4 | load | 4 | 4 | measured |",
    ]


def test_the_short_table_has_a_line_for_each_measured_case_with_the_figures_that_it_names(tmp_path):
    path = tmp_path / "hostile.json"
    comparison.merge(path, "before", row(45, 9.0), SOURCE)
    comparison.merge(path, "before", row(46, 9.0, 9.0), SOURCE)
    comparison.merge(path, "after", row(46, 0.5, 0.25), SOURCE)
    assert comparison.table(path, [declared(44), declared(45), declared(46)]).splitlines()[2:] == [
        r"| 45 some | 1, 4 | zero 9 s |  | a\|bound |  |",
        r"| 46 some | 1, 4 | zero 9 s; one 9 s | zero 500 ms; one 250 ms | a\|bound | pass |",
    ]


@pytest.mark.parametrize("content", ["[]", "{", '{"rows": []}', '{"before": []}'])
def test_a_file_of_something_else_is_not_overwritten(tmp_path, content):
    path = tmp_path / "hostile.json"
    path.write_text(content)
    with pytest.raises(LingonError, match="not a file of hostile figures"):
        comparison.merge(path, "after", row(46, 0.5), SOURCE)
    assert path.read_text() == content


def test_every_hostile_case_names_its_findings():
    found = {case.number: case.findings for case in all_cases() if ".cases.hostile." in case.body.__module__}
    assert len(found) >= 11
    assert all(found.values())


def test_the_origin_of_figures_names_the_commit_of_the_measured_checkout(tmp_path):
    found = comparison.origin(None, ["hostile", "--keep", "logs", "--only", "45"])
    assert found["command"] == "python -m chaos hostile --only 45"
    assert found["commit"] != comparison.origin(tmp_path, [])["commit"] == ""
    assert len(found["load"]) == 3


def test_what_a_server_may_need_is_read_from_its_log():
    assert may_need("...\nen-de/2 may need 1,024 MiB of memory\n") == pytest.approx(1073.741824)
    assert math.isnan(may_need("nothing of the kind"))
