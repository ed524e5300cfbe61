"""Cases are chosen by name and run again while only times are wrong; an error does not end the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.case import Case, run
from chaos.context import CaseContext, Session
from chaos.cpu_pinning import CpuPinning
from chaos.selection import chosen
from chaos.verdict.checks import Checks, Skip
from lingon.errors import LingonError, SettingsError


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(Path("models/en-de"), tmp_path, True, CpuPinning.choose(), lambda _: None)


def make(body, name: str = "a case", alone: bool = False) -> Case:
    return Case(name, "a bound", body, alone=alone)


def test_a_case_that_runs_alone_is_only_chosen_by_its_name():
    async def body(context: CaseContext, checks: Checks) -> None: ...

    cases = [make(body, "a"), make(body, "b"), make(body, "c", alone=True)]
    assert [each.name for each in chosen(cases, [])] == ["a", "b"]
    assert [each.name for each in chosen(cases, ["c", "a"])] == ["a", "c"]
    with pytest.raises(SettingsError, match="no case is named d; there are a, b, c"):
        chosen(cases, ["a", "d"])


def test_a_case_that_misses_its_times_is_tried_three_times(session):
    tries = []

    async def body(context: CaseContext, checks: Checks) -> None:
        tries.append(context.scratch)
        checks.at_most("time", 5.0 - len(tries), 2.0, timing=True)

    row = run(make(body), session)
    assert (row.verdict, len(set(tries))) == ("pass", 3)
    assert row.found == "1 check passed (best of 3)"


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
    assert row.found.startswith("ended by LingonError: server1 still ran after 5 s (test_case.py:")


def test_a_case_that_cannot_run_here_is_skipped_with_its_reason(session):
    async def body(context: CaseContext, checks: Checks) -> None:
        raise Skip("nginx is not installed")

    row = run(make(body), session)
    assert (row.verdict, row.found) == ("skip", "not run: nginx is not installed")
