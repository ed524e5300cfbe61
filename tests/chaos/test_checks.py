"""The verdict of a case follows from its checks alone."""

from __future__ import annotations

import math

import pytest

from chaos.verdict.checks import Checks, best


def checked(*values: float, timing: bool = False, lag: float = 0.0) -> Checks:
    """Checks with an upper bound of 1."""
    checks = Checks(lag=lag)
    for value in values:
        checks.at_most("value", value, 1.0, timing=timing)
    return checks


def test_a_case_passes_if_all_checks_pass():
    assert checked(0.5, 1.0).verdict == "pass"


@pytest.mark.parametrize("values", [(2.0,), (0.5, 1.1), (math.nan,), (math.inf,), ()])
def test_a_case_fails_if_one_check_fails_or_there_is_none(values):
    assert checked(*values).verdict == "fail"


def test_lower_bounds_exact_values_and_violations_are_checked():
    checks = Checks()
    checks.at_least("floor", math.nan, 1.0)
    checks.at_least("floor", 0.9, 1.0)
    checks.equal("exact", 24, 25)
    checks.clean("list", ["a-1 never ended"])
    assert [check.passed for check in checks.done] == [False] * 4
    assert "FAILED list: a-1 never ended, bound none wrong" in checks.figure()


def test_a_part_that_was_not_run_makes_a_pass_partial_and_is_named():
    checks = checked(0.5)
    checks.not_run("the second half")
    assert checks.verdict == "partial"
    assert "not run: the second half" in checks.figure()


def test_times_of_a_late_load_generator_do_not_count():
    late = checked(5.0, timing=True, lag=30.0)
    late.equal("exact", 1, 1)
    assert (late.verdict, late.worth_another_try) == ("partial", True)
    assert "the generator lagged 30 ms" in late.figure()
    late.equal("exact", 1, 2)
    assert (late.verdict, late.worth_another_try) == ("fail", False)


def test_a_lag_does_not_matter_to_a_case_without_times():
    assert (checked(0.5, lag=30.0).verdict, checked(0.5, lag=30.0).worth_another_try) == ("pass", False)


def test_a_case_is_tried_again_if_times_alone_are_wrong():
    assert checked(5.0, timing=True).worth_another_try
    assert not checked(0.5, timing=True).worth_another_try
    mixed = checked(5.0, timing=True)
    mixed.equal("exact", 1, 2)
    assert not mixed.worth_another_try


def test_the_best_try_counts():
    tries = [checked(5.0, 5.0, timing=True), checked(0.5, timing=True), checked(5.0, timing=True)]
    assert best(tries) is tries[1]
    assert best([tries[0], tries[2]]) is tries[2]


def test_a_try_with_a_wrong_value_counts():
    wrong = checked(0.5, timing=True, lag=30.0)
    wrong.equal("exact", 1, 2)
    tries = [checked(0.5, timing=True, lag=30.0), wrong, checked(0.5, timing=True)]
    assert best(tries) is wrong


def test_a_measured_value_has_no_bound_and_never_fails():
    checks = Checks()
    checks.measured("load", math.inf, "s")
    assert (checks.verdict, checks.done[0].bound, checks.done[0].value) == ("pass", "measured", "inf s")
