"""Verdicts follow from checks, and from nothing else."""

from __future__ import annotations

import math

import pytest

from chaos.checks import Findings, best


def found(*values: float, timing: bool = False, lag: float = 0.0) -> Findings:
    """Checks of values that may be 1 at most."""
    findings = Findings(lag=lag)
    for value in values:
        findings.at_most("value", value, 1.0, timing=timing)
    return findings


def test_a_case_passes_where_all_checks_do():
    assert found(0.5, 1.0).verdict == "pass"


@pytest.mark.parametrize("values", [(2.0,), (0.5, 1.1), (math.nan,), (math.inf,), ()])
def test_a_case_fails_where_one_check_does_or_there_is_none(values):
    assert found(*values).verdict == "fail"


def test_a_floor_and_an_exact_value_are_kept_too():
    findings = Findings()
    findings.at_least("floor", math.nan, 1.0)
    findings.at_least("floor", 0.9, 1.0)
    findings.equal("exact", 24, 25)
    findings.clean("list", ["a-1 never ended"])
    assert [check.passed for check in findings.checks] == [False] * 4
    assert "FAILED list: a-1 never ended, bound none wrong" in findings.figure()


def test_what_was_not_run_makes_a_pass_partial_and_is_named():
    findings = found(0.5)
    findings.not_run("the second half")
    assert findings.verdict == "partial"
    assert "not run: the second half" in findings.figure()


def test_times_of_a_late_generator_count_neither_way():
    late = found(5.0, timing=True, lag=30.0)
    late.equal("exact", 1, 1)
    assert (late.verdict, late.worth_another_try) == ("partial", True)
    assert "the generator lagged 30 ms" in late.figure()
    late.equal("exact", 1, 2)
    assert (late.verdict, late.worth_another_try) == ("fail", False)


def test_a_lag_without_times_voids_nothing():
    assert (found(0.5, lag=30.0).verdict, found(0.5, lag=30.0).worth_another_try) == ("pass", False)


def test_times_alone_are_worth_another_try():
    assert found(5.0, timing=True).worth_another_try
    assert not found(0.5, timing=True).worth_another_try
    mixed = found(5.0, timing=True)
    mixed.equal("exact", 1, 2)
    assert not mixed.worth_another_try


def test_the_best_try_counts():
    tries = [found(5.0, 5.0, timing=True), found(0.5, timing=True), found(5.0, timing=True)]
    assert best(tries) is tries[1]
    assert best([tries[0], tries[2]]) is tries[2]


def test_what_one_try_found_wrong_besides_times_decides():
    wrong = found(0.5, timing=True, lag=30.0)
    wrong.equal("exact", 1, 2)
    tries = [found(0.5, timing=True, lag=30.0), wrong, found(0.5, timing=True)]
    assert best(tries) is wrong
