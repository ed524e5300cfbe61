"""Results of single cases are merged into those of the day; the table shows the figures that a bound names."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from chaos.case import Case
from chaos.context import CaseContext
from chaos.report import PLACEHOLDER, for_people, found, read, save, summary, table
from chaos.selection import all_cases
from chaos.verdict.checks import Checks, Row
from lingon.errors import LingonError
from tests.support.repository import ROOT

DAY = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


def row(number: int, verdict: str = "pass") -> Row:
    return Row(number, f"{number} some|thing", "figure", "bound", verdict)


def test_a_row_replaces_the_row_with_its_number(tmp_path):
    save([row(10, "fail"), row(2)], tmp_path, [], DAY)
    path = save([row(10)], tmp_path, ["--only", "10"], DAY)
    content = json.loads(path.read_text())
    assert path.name == "2026-01-02-chaos.json"
    assert [(each["number"], each["verdict"], each["command"]) for each in content["rows"]] == [
        (2, "pass", "python -m chaos"),
        (10, "pass", "python -m chaos --only 10"),
    ]
    assert {"date", "machine", "commit", "command"} < content.keys()


def test_a_file_that_holds_no_results_is_not_overwritten(tmp_path):
    (tmp_path / "2026-01-02-chaos.json").write_text("[]")
    with pytest.raises(LingonError, match="not a result file of chaos"):
        save([row(1)], tmp_path, [], DAY)
    assert (tmp_path / "2026-01-02-chaos.json").read_text() == "[]"


def test_the_table_is_markdown():
    assert table([row(1)]).splitlines()[-1] == "| 1 some\\|thing | figure | bound | pass |"


def check(what: str, value: str, bound: str = "= 1", passed: bool = True) -> dict[str, Any]:
    return {"what": what, "value": value, "bound": bound, "passed": passed, "timing": False}


def test_a_result_shows_the_figures_that_the_bound_names_and_counts_the_others():
    checks = [check("goodput at 1x", "94 %"), check("goodput at 5x (29/s)", "99 %"), check("codes", "none wrong")]
    result = replace(row(1), checks=checks)
    assert found(result, ["5x {goodput at 5x}", "{missing} is left out"]) == "5x 99 %; 2 other checks passed"
    assert found(result, ["{codes} in {@goodput at 5x}"]) == "none in goodput at 5x (29/s); 1 other check passed"
    assert found(result, []) == "3 checks passed"


def test_a_failed_check_comes_first_with_its_bound():
    result = replace(row(1, "fail"), checks=[check("exit", "0"), check("codes", "{'OK'}", "= {'INTERNAL'}", False)])
    assert found(result, ["exit {exit}"]) == "FAILED codes: OK, bound = INTERNAL; exit 0"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("{'NOT_SERVING'}", "NOT_SERVING"),
        ("['1', '2']", "1, 2"),
        ("Counter()", "none"),
        ("set()", "none"),
        ("[]", "none"),
        ("None", "none"),
        ("True", "yes"),
        ("40.0", "40"),
        ("0.0213 s", "21.3 ms"),
        ("1.66 times", "1.66 x"),
        ("UNAVAILABLE", "UNAVAILABLE"),
    ],
)
def test_a_result_shows_values_without_the_notation_of_python(value, shown):
    assert found(replace(row(1), checks=[check("value", value)]), ["{value}"]) == shown


def test_a_result_of_tests_names_their_files_and_what_was_not_run():
    checks = [check("tests/a/test_b.py", "passed"), check("tests/c/test_d.py", "passed")]
    result = replace(row(1, "partial"), checks=checks, figure="...; not run: a scan: no image (best of 2)")
    assert found(result, []) == "2 test files passed; not run: a scan: no image (best of 2)"
    named = found(result, [], ["tests/b.py", "tests/d.py"])
    assert named == "passed: `tests/b.py`, `tests/d.py`; not run: a scan: no image (best of 2)"


def test_rows_get_the_current_names_and_bounds_of_their_cases():
    async def body(context: CaseContext, checks: Checks) -> None: ...

    result = replace(row(1), checks=[check("exit", "0")])
    shown = for_people([result, row(2)], [Case(1, "a case", "a new bound", body, ["exit {exit}"])])
    assert shown == [replace(result, test="1 a case", bound="a new bound", figure="exit 0"), row(2)]


def test_every_figure_of_the_latest_results_is_found():
    """A renamed check would vanish from the table without a word."""
    latest = max((ROOT / "bench" / "results").glob("*-chaos.json"))
    figures = {each.number: each.figures for each in all_cases()}
    missing = [
        (result.number, name)
        for result in read(latest)
        for template in figures[result.number]
        for _, name in PLACEHOLDER.findall(template)
        if result.checks and not any(each["what"].startswith(tuple(name.split("|"))) for each in result.checks)
    ]
    assert missing == []


def test_rows_are_read_as_they_were_saved_and_counted(tmp_path: Path):
    rows = [row(1), row(2, "skip"), row(3)]
    assert read(save(rows, tmp_path, [])) == rows
    assert summary(rows) == "3 run: 2 pass, 1 skip"
