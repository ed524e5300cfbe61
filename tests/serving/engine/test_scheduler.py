"""The scheduler without worker threads: the tests take the steps of its workers."""

from __future__ import annotations

import itertools
import threading
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import Any

import pytest

from lingon.errors import Cancelled, Draining, EngineLost, Expired, NotBegun, QueueFull, WontFinish
from lingon.serving.decoding.job import DecodeJob, Job, Options, ScoreJob
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.engine.policy import LIGHT, MAIN, ROUND, SHORT_SAVED, Lanes
from lingon.serving.engine.scheduler import CONTENTION_SECONDS, NullObserver, Scheduler, StepPlan, TimeSlice
from tests.support.engine_harness import ManualClock, calls, job, make_scheduler, next_step, of_caller
from tests.support.timing import eventually_blocking


def test_an_idle_worker_admits_nothing_while_others_use_all_rows() -> None:
    scheduler, running, waiting = make_scheduler(4, max_rows=8), [job(4), job(4)], [job() for _ in range(4)]
    scheduler.submit(running)
    assert [next_step(scheduler, worker)[0] for worker in (0, 1)] == [running[:1], running[1:]]
    scheduler.submit(waiting)
    with ThreadPoolExecutor(1) as thread:
        admitted = thread.submit(next_step, scheduler, 2)
        try:
            time.sleep(0.05)
            assert not admitted.done()
            scheduler.close(running[0])
            time.sleep(0.05)
            assert not admitted.done()  # the worker of the job that ended goes first
            assert next_step(scheduler, 0) == (waiting[:2], [])  # and leaves what is the share of the others
            assert admitted.result(timeout=5) == (waiting[2:], [])
        finally:
            scheduler.fail(2)


class Sleepers(threading.Condition):
    """A condition that counts the threads that wait on it."""

    asleep = waits = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.asleep, self.waits = self.asleep + 1, self.waits + 1
        try:
            return super().wait(timeout)
        finally:
            self.asleep -= 1


def test_a_job_wakes_one_worker_of_several_and_its_end_wakes_none() -> None:
    changed = Sleepers()
    scheduler, only = Scheduler(EngineLimits(), 2, NullObserver(), changed=changed), job()
    with ThreadPoolExecutor(2) as threads:
        plans = [threads.submit(scheduler.next, worker, patience=30) for worker in (0, 1)]
        try:
            eventually_blocking(lambda: changed.asleep == 2)
            scheduler.submit([only])
            done, waiting = wait(plans, return_when=FIRST_COMPLETED)
            assert [each for plan in done for each in plan.result().admitted] == [only]
            scheduler.close(only)
            time.sleep(0.05)
            assert (changed.asleep, changed.waits) == (1, 2)
        finally:
            scheduler.stop(0)
    assert [plan.result() for plan in waiting] == [None]


def test_a_job_with_more_rows_than_the_limit_runs_alone() -> None:
    scheduler, narrow, wide = make_scheduler(max_rows=2), job(), job(beam_size=4)
    scheduler.submit([narrow])
    assert next_step(scheduler, 0)[0] == [narrow]
    scheduler.submit([wide])
    assert next_step(scheduler, 0)[0] == []
    scheduler.close(narrow)
    assert next_step(scheduler, 0)[0] == [wide]


def test_a_cancelled_job_is_removed_by_the_worker_that_runs_it() -> None:
    scheduler, jobs = make_scheduler(max_rows=2), [job(), job()]
    scheduler.submit(jobs)
    assert [next_step(scheduler, worker)[0] for worker in (0, 1)] == [jobs[:1], jobs[1:]]
    scheduler.cancel(jobs[:1])
    assert next_step(scheduler, 1) == ([], [])
    assert next_step(scheduler, 0) == ([], [(jobs[0], Cancelled)])
    assert next_step(scheduler, 0) == ([], [])


def test_a_cancelled_queued_job_is_removed_once_by_the_first_worker_that_steps() -> None:
    scheduler, running, waiting = make_scheduler(max_rows=2), [job(), job()], job()
    scheduler.submit([*running, waiting])
    for worker in (0, 1):
        next_step(scheduler, worker)
    scheduler.cancel([waiting])
    assert next_step(scheduler, 1) == ([], [(waiting, Cancelled)])
    assert next_step(scheduler, 0) == ([], [])
    scheduler.close(waiting)
    assert scheduler.load().running == 2


def test_queued_and_running_jobs_expire_at_their_deadline() -> None:
    clock = ManualClock()
    scheduler = make_scheduler(clock=clock, max_rows=2)
    soon = clock.now + 0.3
    jobs = [job(deadline=soon), job(deadline=soon + 0.2), job(deadline=soon)]
    scheduler.submit(jobs)
    assert next_step(scheduler, 0) == (jobs[:1], [])
    assert next_step(scheduler, 1) == (jobs[1:2], [])
    clock.now = soon
    assert next_step(scheduler, 1) == ([], [(jobs[2], Expired)])
    assert next_step(scheduler, 0) == ([], [(jobs[0], Expired)])
    scheduler.close(jobs[0])
    scheduler.close(jobs[2])
    assert next_step(scheduler, 1) == ([], [])
    clock.now += 0.2
    assert next_step(scheduler, 1) == ([], [(jobs[1], Expired)])


def test_cancelling_a_job_that_ended_has_no_effect() -> None:
    scheduler, jobs = make_scheduler(1), [job(), job()]
    scheduler.submit(jobs)
    next_step(scheduler, 0)
    scheduler.cancel(jobs[:1])
    scheduler.close(jobs[0])
    scheduler.cancel(jobs[:1])
    assert next_step(scheduler, 0) == ([], [])


def test_a_failed_worker_returns_its_own_jobs_and_the_queued_ones() -> None:
    scheduler, jobs = make_scheduler(max_rows=2), [job() for _ in range(4)]
    scheduler.submit(jobs)
    for worker in (0, 1):
        next_step(scheduler, worker)
    assert scheduler.fail(0) == [jobs[0], *jobs[2:]]
    with pytest.raises(EngineLost):
        scheduler.submit([job()])
    assert scheduler.next(1) == StepPlan([], [])
    scheduler.close(jobs[1])
    assert scheduler.next(1) is None


def test_a_worker_that_is_not_patient_hears_that_there_is_no_work_for_it() -> None:
    scheduler, jobs = make_scheduler(1), [job()]
    assert scheduler.next(0, patience=0.01) == StepPlan([], [], idle=True)
    scheduler.submit(jobs)
    plan = scheduler.next(0, patience=0.01)
    assert plan is not None
    assert (plan.admitted, plan.idle) == (jobs, False)
    scheduler.close(jobs[0])
    assert scheduler.next(0, patience=0.01) == StepPlan([], [], idle=True)


def test_a_worker_without_work_ends_once_the_scheduler_stops() -> None:
    scheduler, jobs = make_scheduler(), [job()]
    scheduler.submit(jobs)
    next_step(scheduler, 0)
    assert scheduler.stop(timeout=0) is False
    with pytest.raises(Draining):
        scheduler.submit([job()])
    assert scheduler.next(1) is None
    assert next_step(scheduler, 0) == ([], [(jobs[0], Cancelled)])
    scheduler.close(jobs[0])
    assert scheduler.next(0) is None
    assert scheduler.idle


def test_a_running_batch_admits_queued_jobs_in_rounds() -> None:
    scheduler, jobs = make_scheduler(1, max_rows=32), [job() for _ in range(100)]
    scheduler.submit(jobs)
    assert len(next_step(scheduler, 0)[0]) == 32
    admitted = []
    for done in jobs[: 2 * ROUND]:  # one job ends at every step
        scheduler.close(done)
        admitted.append(len(next_step(scheduler, 0)[0]))
    assert admitted == [*[0] * (ROUND - 1), ROUND] * 2


def test_a_job_dropped_from_a_full_queue_ends_with_queue_full() -> None:
    scheduler = make_scheduler(1, max_rows=1, max_queue_texts=2)
    running, flood = job(), [of_caller("flood"), of_caller("flood")]
    scheduler.submit([running])
    assert next_step(scheduler, 0)[0] == [running]
    for one in flood:
        scheduler.submit([one])
    scheduler.submit([of_caller("other")])
    assert next_step(scheduler, 0) == ([], [(flood[1], QueueFull)])
    scheduler.close(flood[1])
    scheduler.close(running)
    assert next_step(scheduler, 0)[0] == [flood[0]]


def test_a_job_whose_deadline_has_passed_is_refused_as_not_begun() -> None:
    clock = ManualClock()
    scheduler = make_scheduler(clock=clock)
    with pytest.raises(NotBegun) as raised:
        scheduler.submit([job(), job(deadline=clock.now)])
    assert not isinstance(raised.value, WontFinish)
    assert scheduler.idle


def test_a_follow_up_job_is_accepted_even_after_its_deadline() -> None:
    clock = ManualClock()
    scheduler = make_scheduler(1, clock, max_rows=1)
    rest = ScoreJob(source_ids=(5, 2), target_ids=(7,), on_done=print, follow_up=True, deadline=clock.now, call=1)
    scheduler.submit([rest])
    # Not NotBegun, which refunds the quota: the translation was decoded.
    assert next_step(scheduler, 0) == ([], [(rest, Expired)])


def heavy_jobs(count: int, length: int = 40) -> list[Job]:
    return [of_caller("heavy", length) for _ in range(count)]


def test_a_caller_beside_a_heavy_one_has_a_lane_of_its_own_and_rows_although_all_are_taken() -> None:
    scheduler = make_scheduler(1, max_rows=16)
    scheduler.submit(heavy_jobs(40))
    first = scheduler.next(0)
    assert first is not None
    assert {each.lane for each in first.admitted} == {MAIN}
    assert len(first.admitted) == 16
    light = of_caller("light")
    assert not scheduler.contended
    scheduler.submit([light])
    plan = scheduler.next(0)
    assert plan is not None
    assert [(each, each.lane) for each in plan.admitted] == [(light, LIGHT)]
    assert plan.short
    assert scheduler.contended


def test_a_short_call_beside_long_ones_of_its_caller_is_admitted_although_all_rows_are_taken() -> None:
    scheduler = make_scheduler(1, max_rows=16)
    scheduler.submit(heavy_jobs(40, 90))
    next_step(scheduler, 0)
    short, long = of_caller("heavy", 29), of_caller("heavy", 31)
    scheduler.submit([long])
    assert next_step(scheduler, 0)[0] == []
    scheduler.submit([short])
    plan = scheduler.next(0)
    assert plan is not None
    assert [(each, each.lane) for each in plan.admitted] == [(short, LIGHT)]
    scheduler.submit([of_caller("heavy", 11) for _ in range(3)])
    assert next_step(scheduler, 0)[0] == [], "a call is as long as its texts together"


def test_short_calls_run_apart_from_the_others_for_a_share_of_the_time() -> None:
    clock = ManualClock()
    scheduler = make_scheduler(1, clock, max_rows=16)
    scheduler.submit(heavy_jobs(40, 90))
    next_step(scheduler, 0)

    def lanes_of_short_calls(last: TimeSlice | None) -> list[int]:
        scheduler.submit([of_caller("heavy", 5)])
        plan = scheduler.next(0, last)
        assert plan is not None
        return [each.lane for each in plan.admitted]

    assert lanes_of_short_calls(None) == [LIGHT]
    assert lanes_of_short_calls(TimeSlice(LIGHT, SHORT_SAVED)) == [LIGHT], (
        "the time slice is counted after the call came"
    )
    assert lanes_of_short_calls(None) == []
    clock.now += 1.0
    assert lanes_of_short_calls(TimeSlice(MAIN, 1.0)) == [LIGHT]


def test_a_few_long_sentences_among_many_short_ones_make_a_short_call_short() -> None:
    lanes = Lanes(1)
    assert not lanes.is_short(0, now=0.0), "there is no work"
    for cost in [5] * 100:
        lanes.submit("", cost)
    assert not lanes.is_short(1, now=0.0), "the others are short as well"
    for cost in [120] * 16:
        lanes.submit("", cost)
    assert lanes.is_short(30, now=0.0)
    assert not lanes.is_short(34, now=0.0)
    for cost in [120] * 16:
        lanes.leave(None, "", cost)
    assert not lanes.is_short(1, now=0.0)


def test_the_reserved_rows_are_a_quarter() -> None:
    scheduler = make_scheduler(1, max_rows=16)
    scheduler.submit(heavy_jobs(40))
    assert len(next_step(scheduler, 0)[0]) == 16
    scheduler.submit([of_caller("light") for _ in range(30)])
    assert len(next_step(scheduler, 0)[0]) == 4


def test_a_heavy_caller_gets_rows_although_many_light_callers_want_all_of_them() -> None:
    scheduler = make_scheduler(1, max_rows=8)
    scheduler.submit(heavy_jobs(20))
    light = (of_caller(str(number)) for number in itertools.cycle(range(16)))
    scheduler.submit([job for job, _ in zip(light, range(32), strict=False)])
    admitted, running, most = 0, list[Job](), 0
    for _ in range(20):  # every light job takes one turn, and another one follows it at once
        plan = scheduler.next(0)
        assert plan is not None
        running += plan.admitted
        admitted += sum(each.lane == MAIN for each in plan.admitted)
        most = max(most, len(running))
        for each in [each for each in running if each.lane == LIGHT]:
            running.remove(each)
            scheduler.close(each)
            scheduler.submit([next(light)])
    assert admitted == 2, "the reserve of 8 rows"
    assert most == 10


def test_callers_that_arrive_with_a_heavy_one_do_not_wait_for_its_rows() -> None:
    scheduler, light = make_scheduler(1, max_rows=16), of_caller("light")
    scheduler.submit(heavy_jobs(40))
    scheduler.submit([light])
    assert light in next_step(scheduler, 0)[0]


def test_one_lane_serves_all_while_nobody_is_heavy() -> None:
    scheduler = make_scheduler(1, max_rows=16)
    scheduler.submit([of_caller("a"), of_caller("a")])
    scheduler.submit([of_caller("b")])
    plan = scheduler.next(0)
    assert plan is not None
    assert [each.lane for each in plan.admitted] == [MAIN] * 3
    assert not plan.short


def test_two_lanes_receive_equal_time_whatever_a_turn_takes() -> None:
    scheduler = make_scheduler(1, max_rows=16)
    scheduler.submit(heavy_jobs(16))
    scheduler.submit([of_caller("light")])
    seconds, last = {MAIN: 0.0, LIGHT: 0.0}, None
    for _ in range(1000):
        plan = scheduler.next(0, last)
        assert plan is not None
        last = TimeSlice(plan.lane, 0.030 if plan.lane == MAIN else 0.001)
        seconds[plan.lane] += last.seconds
        assert abs(seconds[MAIN] - seconds[LIGHT]) <= 0.031
    assert seconds[MAIN] > 0.4


def test_a_light_caller_is_served_right_after_the_turn_in_which_it_arrived() -> None:
    scheduler, last = make_scheduler(1, max_rows=16), None
    scheduler.submit(heavy_jobs(16))
    for _ in range(20):
        plan = scheduler.next(0, last)
        assert plan is not None
        assert plan.lane == MAIN
        light = of_caller("light")
        scheduler.submit([light])
        plan = scheduler.next(0, TimeSlice(MAIN, 0.1))
        assert plan is not None
        assert plan.lane == LIGHT
        scheduler.close(light)
        last = TimeSlice(LIGHT, 0.001)


def test_a_lane_receives_time_in_proportion_to_its_callers() -> None:
    scheduler = make_scheduler(1, max_rows=16)
    scheduler.submit(heavy_jobs(16))
    for caller in ("a", "b", "c"):
        scheduler.submit([of_caller(caller)])
    turns, last = {MAIN: 0, LIGHT: 0}, None
    for _ in range(400):
        plan = scheduler.next(0, last)
        assert plan is not None
        turns[plan.lane] += 1
        last = TimeSlice(plan.lane, 0.001)
    assert turns[LIGHT] == pytest.approx(3 * turns[MAIN], rel=0.05)


def test_runs_stay_short_for_a_while_after_another_caller_left() -> None:
    clock = ManualClock()
    scheduler, light = make_scheduler(1, clock, max_rows=16), of_caller("light")
    scheduler.submit(
        [
            *heavy_jobs(8),
        ]
    )
    scheduler.submit([light])
    plans = [scheduler.next(0)]
    scheduler.close(light)
    for seconds in (CONTENTION_SECONDS / 2, CONTENTION_SECONDS):
        clock.now += seconds
        plans.append(scheduler.next(0))
    assert [plan and plan.short for plan in plans] == [True, True, False]


def test_all_rows_and_lanes_are_free_when_all_jobs_have_ended() -> None:
    scheduler = make_scheduler(1, max_rows=16)
    jobs = [*heavy_jobs(20), *(of_caller("light") for _ in range(5))]
    for one in jobs:
        scheduler.submit([one])
    running: list[Job] = []
    while jobs:
        running += next_step(scheduler, 0)[0]
        ended = running.pop(0)
        scheduler.close(ended, steps=90)
        jobs.remove(ended)
    assert scheduler.idle
    scheduler.submit([of_caller(str(number)) for number in range(16)])
    plan = scheduler.next(0)
    assert plan is not None
    assert {each.lane for each in plan.admitted} == {MAIN}
    assert len(plan.admitted) == 16


@pytest.mark.parametrize("decoded", [False, True])
def test_a_follow_up_job_is_never_dropped(*, decoded: bool) -> None:
    def scored(*, follow_up: bool) -> Job:
        fields: Any = {"on_done": print, "follow_up": follow_up, "caller": "flood", "call": next(calls)}
        if decoded:
            return DecodeJob(source_ids=(5, 2), options=Options(), **fields)
        return ScoreJob(source_ids=(5, 2), target_ids=(7,), **fields)

    for follow_up in (False, True):
        scheduler = make_scheduler(1, max_rows=1, max_queue_texts=2)
        scheduler.submit([job()])
        next_step(scheduler, 0)
        waiting = [scored(follow_up=follow_up) for _ in range(2)]
        for one in waiting:
            scheduler.submit([one])
        other = of_caller("other")
        if follow_up:
            with pytest.raises(QueueFull):
                scheduler.submit([other])
            assert next_step(scheduler, 0) == ([], [])
        else:
            scheduler.submit([other])
            assert next_step(scheduler, 0) == ([], [(waiting[-1], QueueFull)])
