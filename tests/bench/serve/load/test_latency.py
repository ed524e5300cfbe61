"""The figures of load points."""

from __future__ import annotations

import math

from lingon.bench.serve.load.latency import Objective, best, saturated, summarise
from tests.support.load_points import answers, point


def test_a_failed_request_counts_as_infinite_latency():
    found = answers([10] * 97) + answers([1] * 3, code="RESOURCE_EXHAUSTED")
    point = summarise(found, offered=10, seconds=10, objective=Objective())
    assert (point.achieved, point.goodput, point.p99, point.within) == (9.7, 9.7, math.inf, False)
    assert point.errors == {"RESOURCE_EXHAUSTED": 3}
    assert point.row()["p99_ms"] is None


def test_late_answers_count_as_achieved_but_not_as_goodput():
    point = summarise(answers([10] * 90 + [800] * 10), offered=10, seconds=10, objective=Objective())
    assert (point.achieved, point.goodput, point.within) == (10, 9, False)


def test_a_point_is_void_if_the_generator_was_late():
    assert not summarise(answers([10] * 100, lag=19), 10, 10, Objective()).void
    assert summarise(answers([10] * 100, lag=21), 10, 10, Objective()).void
    assert summarise([], 10, 10, Objective()).void


def test_goodput_is_the_highest_valid_load_that_met_the_objective():
    points = [point(10, 20), point(20, 600), point(30, 499), point(40, 501), point(50, 10, lag=30)]
    chosen = best(points)
    assert chosen is not None
    assert chosen.offered == 30
    assert best([point(10, 501)]) is None


def test_a_system_is_saturated_after_two_misses_in_a_row():
    assert not saturated([point(10, 600), point(20, 20), point(30, 600)])
    assert not saturated([point(10, 600), point(20, 600, lag=30)])
    assert saturated([point(10, 20), point(20, 600), point(30, 10, lag=30), point(40, 700)])
