"""Who gets what, without threads: the dispatcher is asked in turn for several workers."""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from lingon.errors import Cancelled, Draining, EngineLost, Expired, NotBegun, QueueFull, WontFinish
from lingon.serving.decoding.job import DecodeJob, Job, Options, ScoreJob
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.engine.observer import NullObserver
from lingon.serving.engine.policy import ROUND
from lingon.serving.engine.scheduler import Scheduler, StepPlan

calls = itertools.count()


@dataclass
class Clock:
    """Time that stands still unless a test moves it."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def job(beam_size: int = 1, deadline: float | None = None) -> DecodeJob:
    return DecodeJob(
        source_ids=(5, 2), options=Options(beam_size=beam_size), on_done=print, deadline=deadline, call=next(calls)
    )


def dispatcher(workers: int = 2, clock: Clock | None = None, **limits: int) -> Scheduler:
    return Scheduler(EngineLimits(spread=1, **limits), workers, NullObserver(), clock or time.monotonic)


def ask(asked: Scheduler, worker: int) -> tuple[list[Job], list[tuple[Job, type]]]:
    """Who joins the worker, and who has to leave, with the kind of the error."""
    plan = asked.next(worker)
    assert plan is not None
    return [job for job, _ in plan.admitted], [(job, type(error)) for job, error in plan.removed]


def test_a_worker_that_has_nothing_takes_nothing_while_others_have_all_rows() -> None:
    shared, running, waiting = dispatcher(4, max_rows=8), [job(4), job(4)], [job(4), job(4)]
    shared.submit(running)
    assert [ask(shared, worker)[0] for worker in (0, 1)] == [running[:1], running[1:]]
    shared.submit(waiting)
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(ask, shared, 2)
        try:
            time.sleep(0.05)
            assert not asked.done()
            shared.close(running[0])  # which wakes it
            assert asked.result(timeout=5) == (waiting[:1], [])
        finally:
            shared.fail(2)


def test_a_job_wider_than_all_rows_runs_alone() -> None:
    shared, narrow, wide = dispatcher(max_rows=2), job(), job(beam_size=4)
    shared.submit([narrow])
    assert ask(shared, 0)[0] == [narrow]
    shared.submit([wide])
    assert ask(shared, 0)[0] == []
    shared.close(narrow)
    assert ask(shared, 0)[0] == [wide]


def test_a_job_leaves_by_the_worker_that_has_it() -> None:
    shared, jobs = dispatcher(max_rows=2), [job(), job()]
    shared.submit(jobs)
    assert [ask(shared, worker)[0] for worker in (0, 1)] == [jobs[:1], jobs[1:]]
    shared.cancel(jobs[:1])
    assert ask(shared, 1) == ([], [])
    assert ask(shared, 0) == ([], [(jobs[0], Cancelled)])
    assert ask(shared, 0) == ([], [])


def test_a_job_that_waits_leaves_by_whoever_asks_first_and_only_once() -> None:
    shared, running, waiting = dispatcher(max_rows=2), [job(), job()], job()
    shared.submit([*running, waiting])
    for worker in (0, 1):
        ask(shared, worker)
    shared.cancel([waiting])
    assert ask(shared, 1) == ([], [(waiting, Cancelled)])
    assert ask(shared, 0) == ([], [])
    shared.close(waiting)
    assert shared.load().running == 2


def test_a_deadline_that_passes_is_found_wherever_the_job_is() -> None:
    clock = Clock()
    shared = dispatcher(clock=clock, max_rows=2)
    soon = clock.now + 0.3
    jobs = [job(deadline=soon), job(deadline=soon + 0.2), job(deadline=soon)]
    shared.submit(jobs)
    assert ask(shared, 0) == (jobs[:1], [])
    assert ask(shared, 1) == (jobs[1:2], [])
    clock.now = soon
    assert ask(shared, 1) == ([], [(jobs[2], Expired)])
    assert ask(shared, 0) == ([], [(jobs[0], Expired)])
    shared.close(jobs[0])
    shared.close(jobs[2])
    assert ask(shared, 1) == ([], [])
    clock.now += 0.2
    assert ask(shared, 1) == ([], [(jobs[1], Expired)])


def test_a_cancelled_job_that_ended_meanwhile_is_left_alone() -> None:
    shared, jobs = dispatcher(1), [job(), job()]
    shared.submit(jobs)
    ask(shared, 0)
    shared.cancel(jobs[:1])
    shared.close(jobs[0])
    shared.cancel(jobs[:1])
    assert ask(shared, 0) == ([], [])


def test_a_dead_worker_answers_for_its_own_jobs_and_those_that_wait() -> None:
    shared, jobs = dispatcher(max_rows=2), [job() for _ in range(4)]
    shared.submit(jobs)
    for worker in (0, 1):
        ask(shared, worker)
    assert shared.fail(0) == [jobs[0], *jobs[2:]]
    with pytest.raises(EngineLost):
        shared.submit([job()])
    assert shared.next(1) == StepPlan([], [])
    shared.close(jobs[1])
    assert shared.next(1) is None


def test_a_worker_without_work_goes_home_when_the_doors_are_closed() -> None:
    shared, jobs = dispatcher(), [job()]
    shared.submit(jobs)
    ask(shared, 0)
    assert shared.stop(timeout=0) is False
    with pytest.raises(Draining):
        shared.submit([job()])
    assert shared.next(1) is None
    assert ask(shared, 0) == ([], [(jobs[0], Cancelled)])
    shared.close(jobs[0])
    assert shared.next(0) is None
    assert shared.idle


def test_a_long_queue_makes_nobody_join_alone_while_a_batch_runs() -> None:
    shared, jobs = dispatcher(1, max_rows=32), [job() for _ in range(100)]
    shared.submit(jobs)
    assert len(ask(shared, 0)[0]) == 32
    joined = []
    for done in jobs[: 2 * ROUND]:  # one leaves at every turn
        shared.close(done)
        joined.append(len(ask(shared, 0)[0]))
    assert joined == [*[0] * (ROUND - 1), ROUND] * 2


def test_who_gives_way_in_a_full_queue_is_told_so() -> None:
    shared = dispatcher(1, max_rows=1, max_queue_texts=2)
    running, flood = job(), [job(), job()]
    shared.submit([running])
    assert ask(shared, 0)[0] == [running]
    for call, one in enumerate(flood, 1):
        one.caller, one.call = "flood", call
        shared.submit([one])
    other = job()
    other.caller = "other"
    shared.submit([other])
    assert ask(shared, 0) == ([], [(flood[1], QueueFull)])
    shared.close(flood[1])
    shared.close(running)
    assert ask(shared, 0)[0] == [flood[0]]


def test_what_would_not_be_done_in_time_is_refused_where_others_wait() -> None:
    clock = Clock()
    shared = dispatcher(1, clock, max_rows=1)
    for _ in range(100):
        shared.submit([job()])
    for _ in range(100):  # a hundred a second
        ((one,), _) = ask(shared, 0)
        clock.now += 0.01
        shared.submit([job()])
        shared.close(one)
    with pytest.raises(WontFinish, match=r"the deadline is in 0.30 s, and the work would take about 1.0\d s"):
        shared.submit([job(deadline=clock.now + 0.3)])
    shared.submit([job(deadline=clock.now + 1.1)])


def test_a_deadline_that_has_passed_is_no_want_of_room() -> None:
    clock = Clock()
    shared = dispatcher(clock=clock)
    with pytest.raises(NotBegun) as raised:
        shared.submit([job(), job(deadline=clock.now)])
    assert not isinstance(raised.value, WontFinish)
    assert shared.idle


def test_what_is_left_of_a_translation_is_begun_whatever_its_deadline() -> None:
    clock = Clock()
    shared = dispatcher(1, clock, max_rows=1)
    rest = ScoreJob(source_ids=(5, 2), target_ids=(7,), on_done=print, follow_up=True, deadline=clock.now, call=1)
    shared.submit([rest])
    assert ask(shared, 0) == ([], [(rest, Expired)])  # as work that was done, which is charged


def test_who_is_cut_short_says_nothing_of_how_long_the_others_take() -> None:
    clock = Clock()
    shared = dispatcher(1, clock, max_rows=1)
    shared.submit([job()])
    ((slow,), _) = ask(shared, 0)
    clock.now += 0.2
    shared.close(slow)
    for _ in range(100):
        shared.submit([job()])
        ((cut,), _) = ask(shared, 0)
        shared.cancel([cut])
        assert ask(shared, 0) == ([], [(cut, Cancelled)])
        shared.close(cut)
    shared.submit([job()])
    with pytest.raises(WontFinish):
        shared.submit([job(deadline=clock.now + 0.1)])


def test_what_follows_a_translation_that_is_done_gives_way_to_nobody() -> None:
    def scored(*, follow_up: bool) -> ScoreJob:
        return ScoreJob(
            source_ids=(5, 2), target_ids=(7,), on_done=print, follow_up=follow_up, caller="flood", call=next(calls)
        )

    for follow_up in (False, True):
        shared = dispatcher(1, max_rows=1, max_queue_texts=2)
        shared.submit([job()])
        ask(shared, 0)
        waiting = [scored(follow_up=follow_up) for _ in range(2)]
        for one in waiting:
            shared.submit([one])
        other = job()
        other.caller = "other"
        if follow_up:
            with pytest.raises(QueueFull):
                shared.submit([other])
            assert shared.next(0) == ([], [])
        else:
            shared.submit([other])
            assert ask(shared, 0) == ([], [(waiting[-1], QueueFull)])
