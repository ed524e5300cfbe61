"""When a scheduler expects work to be done, and what it refuses for that."""

from __future__ import annotations

import pytest

from lingon.errors import Cancelled, WontFinish
from lingon.serving.engine.scheduler import AT_ONCE, NEVER, Scheduler
from tests.support.engine_harness import ManualClock, job, make_scheduler, next_step, of_caller


def test_a_job_that_would_miss_its_deadline_is_refused_while_others_are_queued() -> None:
    clock = ManualClock()
    scheduler = make_scheduler(1, clock, max_rows=1)
    serve_a_hundred_a_second(scheduler, clock, waiting=100)
    with pytest.raises(WontFinish, match=r"the deadline is in 0.30 s, and the work would take about 1.0\d s"):
        scheduler.submit([job(deadline=clock.now + 0.3)])
    scheduler.submit([job(deadline=clock.now + 1.1)])


def serve_a_hundred_a_second(scheduler: Scheduler, clock: ManualClock, waiting: int) -> None:
    """Let so many jobs wait while 100 others are done in a second, so that the scheduler knows its throughput."""
    for _ in range(waiting):
        scheduler.submit([job()])
    for _ in range(100):
        ((one,), _) = next_step(scheduler, 0)
        clock.now += 0.01
        scheduler.submit([job()])
        scheduler.close(one)


def test_the_forecast_for_a_caller_is_that_of_a_call_like_those_before() -> None:
    clock = ManualClock()
    scheduler = make_scheduler(1, clock, max_rows=1)
    assert scheduler.forecast("") == AT_ONCE
    serve_a_hundred_a_second(scheduler, clock, waiting=100)
    assert scheduler.forecast("").done == pytest.approx(1.0, abs=0.1)


def test_the_forecast_for_a_caller_knows_nothing_of_the_large_calls_of_another() -> None:
    clock = ManualClock()
    scheduler = make_scheduler(1, clock, max_rows=1)
    scheduler.submit([of_caller("small")])
    ((small,), _) = next_step(scheduler, 0)
    scheduler.close(small)
    serve_a_hundred_a_second(scheduler, clock, waiting=10)
    scheduler.submit([of_caller("large", 500)])
    assert scheduler.forecast("large").done > 1.0
    assert scheduler.forecast("small").done < 0.1
    assert scheduler.forecast("unknown").done < 0.1


def test_the_own_work_of_a_call_does_not_count_as_waiting() -> None:
    clock = ManualClock()
    scheduler = make_scheduler(1, clock, max_rows=1)
    scheduler.submit([of_caller("large", 500)])
    ((large,), _) = next_step(scheduler, 0)
    scheduler.close(large)
    serve_a_hundred_a_second(scheduler, clock, waiting=10)
    forecast = scheduler.forecast("large")
    assert forecast.begun == pytest.approx(0.1, abs=0.05)
    assert forecast.done > 1.0


def test_the_forecast_for_a_caller_that_fills_the_queue_is_infinite() -> None:
    scheduler = make_scheduler(1, max_rows=1, max_queue_texts=2)
    scheduler.submit([of_caller("flood"), of_caller("flood")])
    assert scheduler.forecast("flood") == NEVER
    assert scheduler.forecast("other") == AT_ONCE  # it gets the place of the other one
    scheduler.stop(0)
    assert scheduler.forecast("flood") == AT_ONCE  # `submit` says why not


def test_cancelled_jobs_do_not_affect_the_estimate() -> None:
    clock = ManualClock()
    scheduler = make_scheduler(1, clock, max_rows=1)
    scheduler.submit([job()])
    ((slow,), _) = next_step(scheduler, 0)
    clock.now += 0.2
    scheduler.close(slow)
    for _ in range(100):
        scheduler.submit([job()])
        ((cancelled,), _) = next_step(scheduler, 0)
        scheduler.cancel([cancelled])
        assert next_step(scheduler, 0) == ([], [(cancelled, Cancelled)])
        scheduler.close(cancelled)
    scheduler.submit([job()])
    with pytest.raises(WontFinish):
        scheduler.submit([job(deadline=clock.now + 0.1)])
