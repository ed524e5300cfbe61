"""Cases are collected, chosen by number and run again while only times are wrong; an error does not end the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.case import Case, run
from chaos.context import CaseContext, Session
from chaos.cpu_pinning import CpuPinning
from chaos.pytest_cases import result_of, run_pytest_cases
from chaos.selection import all_cases, chosen
from chaos.verdict.checks import Checks, Skip
from lingon.errors import LingonError, SettingsError


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(Path("models/en-de"), tmp_path, True, CpuPinning.choose(), lambda _: None)


def make(body, number: int = 1, alone: bool = False) -> Case:
    return Case(number, "a case", "a bound", body, alone=alone)


def test_every_case_has_its_own_number():
    numbers = [each.number for each in all_cases()]
    assert {*range(1, 22), 36, 37, *range(44, 56)} <= set(numbers)
    assert len(set(numbers)) == len(numbers)


def test_a_case_that_runs_alone_is_only_chosen_by_its_number():
    async def body(context: CaseContext, checks: Checks) -> None: ...

    cases = [make(body, 1), make(body, 2), make(body, 3, alone=True)]
    assert [each.number for each in chosen(cases, [])] == [1, 2]
    assert [each.number for each in chosen(cases, [3, 1])] == [1, 3]
    with pytest.raises(SettingsError, match="no case has the number 9; there are 1, 2, 3"):
        chosen(cases, [1, 9])


def test_a_case_that_misses_its_times_is_tried_three_times(session):
    tries = []

    async def body(context: CaseContext, checks: Checks) -> None:
        tries.append(context.scratch)
        checks.at_most("time", 5.0 - len(tries), 2.0, timing=True)

    row = run(make(body), session)
    assert (row.verdict, len(set(tries))) == ("pass", 3)
    assert row.figure == "time: 2 (best of 3)"


def test_a_session_may_run_each_case_once(session):
    tries = []

    async def body(context: CaseContext, checks: Checks) -> None:
        tries.append(1)
        checks.at_most("time", 5.0, 2.0, timing=True)

    session.tries = 1
    assert (run(make(body), session).verdict, len(tries)) == ("fail", 1)


def test_a_case_with_a_wrong_value_is_not_tried_again(session):
    tries = []

    async def body(context: CaseContext, checks: Checks) -> None:
        tries.append(1)
        checks.equal("count", 24, 25)

    assert (run(make(body), session).verdict, len(tries)) == ("fail", 1)


def test_a_case_that_raises_an_error_fails_and_shows_where(session):
    async def body(context: CaseContext, checks: Checks) -> None:
        checks.equal("count", 25, 25)
        raise LingonError("server1 still ran after 5 s")

    row = run(make(body), session)
    assert row.verdict == "fail"
    assert row.figure.startswith("ended by LingonError: server1 still ran after 5 s (test_case.py:")


def test_a_case_that_cannot_run_here_is_skipped_with_its_reason(session):
    async def body(context: CaseContext, checks: Checks) -> None:
        raise Skip("nginx is not installed")

    row = run(make(body), session)
    assert (row.verdict, row.figure) == ("skip", "not run: nginx is not installed")


TESTS = """
import pytest
def test_good(): pass
def test_bad(): assert False
@pytest.mark.skip
def test_skipped(): pass
"""


@pytest.mark.parametrize(
    ("test", "verdict"),
    [("test_good", "pass"), ("test_bad", "fail"), ("test_skipped", "fail"), ("test_missing", "fail")],
)
def test_a_backed_case_passes_only_if_its_tests_pass(session, tmp_path, test, verdict):
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_backing.py").write_text(TESTS)

    async def body(context: CaseContext, checks: Checks) -> None:
        await run_pytest_cases(checks, context.scratch, [f"{tmp_path / 'test_backing.py'}::{test}"])

    assert run(make(body), session).verdict == verdict


def test_a_missing_report_is_no_pass(tmp_path):
    assert result_of(tmp_path / "missing.xml", 0) == "pytest ended with 0"
