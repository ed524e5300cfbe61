"""Cases are found, chosen by number, run again while only times are wrong, and broken ones do not end the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.case import Case, all_cases, chosen, run
from chaos.checks import Findings, Skip
from chaos.context import Session, World
from chaos.cpu_pinning import Cast
from chaos.pytest_cases import gate, outcome
from lingon.errors import LingonError, SettingsError


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(Path("models/en-de"), tmp_path, True, Cast.choose(), lambda _: None)


def make(body, number: int = 1, alone: bool = False) -> Case:
    return Case(number, "a case", "a bound", body, alone)


def test_every_case_of_this_room_has_a_number_of_its_own():
    numbers = [each.number for each in all_cases()]
    assert {*range(1, 22), 36, 37, 44} <= set(numbers)
    assert len(set(numbers)) == len(numbers)


def test_cases_are_chosen_by_number_and_those_that_run_alone_only_so():
    async def body(world: World, found: Findings) -> None: ...

    cases = [make(body, 1), make(body, 2), make(body, 3, alone=True)]
    assert [each.number for each in chosen(cases, [])] == [1, 2]
    assert [each.number for each in chosen(cases, [3, 1])] == [1, 3]
    with pytest.raises(SettingsError, match="no case has the number 9; there are 1, 2, 3"):
        chosen(cases, [1, 9])


def test_a_case_that_fails_on_times_is_tried_three_times(session):
    tries = []

    async def body(world: World, found: Findings) -> None:
        tries.append(world.scratch)
        found.at_most("time", 5.0 - len(tries), 2.0, timing=True)

    row = run(make(body), session)
    assert (row.verdict, len(set(tries))) == ("pass", 3)
    assert row.figure == "time: 2 (best of 3)"


def test_a_case_that_is_wrong_is_not_tried_again(session):
    tries = []

    async def body(world: World, found: Findings) -> None:
        tries.append(1)
        found.equal("count", 24, 25)

    assert (run(make(body), session).verdict, len(tries)) == ("fail", 1)


def test_a_case_that_breaks_off_fails_and_says_where(session):
    async def body(world: World, found: Findings) -> None:
        found.equal("count", 25, 25)
        raise LingonError("server1 still ran after 5 s")

    row = run(make(body), session)
    assert row.verdict == "fail"
    assert row.figure.startswith("broke off: LingonError: server1 still ran after 5 s (test_case.py:")


def test_a_case_that_cannot_run_here_is_skipped_with_its_reason(session):
    async def body(world: World, found: Findings) -> None:
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
def test_a_backed_case_passes_where_its_tests_do(session, tmp_path, test, verdict):
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_backing.py").write_text(TESTS)

    async def body(world: World, found: Findings) -> None:
        await gate(found, world.scratch, [f"{tmp_path / 'test_backing.py'}::{test}"])

    assert run(make(body), session).verdict == verdict


def test_a_report_that_was_not_written_is_no_pass(tmp_path):
    assert outcome(tmp_path / "missing.xml", 0) == "pytest ended with 0"
