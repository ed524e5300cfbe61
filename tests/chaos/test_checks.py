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
    assert "FAILED list: a-1 never ended, bound none wrong" in checks.found()


def test_a_part_that_was_not_run_makes_a_pass_partial_and_is_named():
    checks = checked(0.5)
    checks.not_run("the second half")
    assert checks.verdict == "partial"
    assert "not run: the second half" in checks.found()


def test_times_of_a_late_load_generator_do_not_count():
    late = checked(5.0, timing=True, lag=30.0)
    late.equal("exact", 1, 1)
    assert (late.verdict, late.worth_another_try) == ("partial", True)
    assert "the generator lagged 30 ms" in late.found()
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


def test_a_result_shows_the_figures_and_counts_the_other_checks():
    checks = Checks()
    checks.at_least("goodput at 5x (29/s)", 99.0, 90.0, "%")
    checks.equal("codes", {"OK"}, {"OK"})
    assert checks.found(["goodput at 5x"]) == "goodput at 5x (29/s): 99 %; 1 other check passed"
    assert checks.found() == "2 checks passed"


def test_a_failed_check_comes_first_with_its_bound():
    checks = checked(0.5)
    checks.equal("codes", {"OK"}, {"INTERNAL"})
    assert checks.found(["value"]) == "FAILED codes: OK, bound = INTERNAL; value: 0.5"


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (0.0213, "s", "21.3 ms"),
        (2.0, "s", "2 s"),
        (1.66, "x", "1.66 x"),
        (123.4, "MB", "123 MB"),
        (math.nan, "s", "unknown"),
    ],
)
def test_a_number_is_written_as_a_person_writes_it(value: float, unit: str, shown: str):
    checks = Checks()
    checks.measured("value", value, unit)
    assert checks.done[0].value == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"NOT_SERVING"}, "NOT_SERVING"),
        (["1", "2"], "1, 2"),
        (set(), "none"),
        (None, "none"),
        (True, "yes"),
        (40.0, "40"),
    ],
)
def test_a_value_is_written_without_the_notation_of_python(value: object, shown: str):
    checks = Checks()
    checks.equal("value", value, value)
    assert (checks.done[0].value, checks.done[0].bound) == (shown, f"= {shown}")
