"""A thread that waits for its own jobs takes the turns of an idle engine, until another thread has work too."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from lingon.errors import EngineLost
from lingon.serving.decoding.job import DecodeJob, Options
from lingon.serving.engine.engine import Engine
from lingon.serving.engine.limits import EngineLimits
from lingon.text import EOS
from tests.support.engine_harness import Recorder, ThreadNotingRunner
from tests.support.timing import eventually_blocking

SOURCE = (7, 8, 9, EOS)


class Calls:
    """An engine with a runner that notes threads, and the outcomes of jobs."""

    def __init__(self, workers: int = 1) -> None:
        self.runner, self.recorder = ThreadNotingRunner(), Recorder()
        self.engine = Engine(self.runner, EngineLimits(), self.recorder, workers=workers)
        self.engine.start()
        self.runner.steps_of.clear()
        self.ended: list[Any] = []

    def job(self) -> DecodeJob:
        return DecodeJob(source_ids=SOURCE, options=Options(max_output_tokens=9), on_done=self.ended.append)

    def drive(self, jobs: int = 1) -> None:
        """Submit jobs as a volunteer, and take turns while there are some."""
        self.engine.scheduler.volunteer()
        try:
            self.engine.submit([self.job() for _ in range(jobs)])
            while self.engine.take_turns():
                pass
        finally:
            self.engine.scheduler.retire()


@pytest.fixture(params=[1, 2])
def calls(request: pytest.FixtureRequest) -> Iterator[Calls]:
    found = Calls(request.param)
    yield found
    found.engine.stop(0)


def texts(outcomes: list[Any]) -> list[tuple[int, ...]]:
    return [outcome[0].tokens for outcome in outcomes]


def test_a_volunteer_decodes_its_jobs_itself(calls: Calls) -> None:
    for _ in range(3):
        calls.drive(2)
    assert texts(calls.ended) == [SOURCE[:-1]] * 6
    assert {thread for thread, _ in calls.runner.steps_of} == {threading.get_ident()}
    assert calls.engine.idle


def test_the_workers_decode_what_others_submit(calls: Calls) -> None:
    calls.engine.submit([calls.job()])
    eventually_blocking(lambda: len(calls.ended) == 1)
    assert threading.get_ident() not in {thread for thread, _ in calls.runner.steps_of}


def test_many_jobs_of_a_volunteer_are_decoded_by_the_workers(calls: Calls) -> None:
    calls.drive(EngineLimits().spread)
    eventually_blocking(lambda: len(calls.ended) == EngineLimits().spread)
    assert threading.get_ident() not in {thread for thread, _ in calls.runner.steps_of}


def test_jobs_that_arrive_during_a_turn_join_its_batch_and_the_workers_continue(calls: Calls) -> None:
    submitted = threading.Event()

    def submit_once() -> None:
        if not submitted.is_set():
            submitted.set()
            other = threading.Thread(target=lambda: calls.engine.submit([calls.job()]))
            other.start()
            other.join()

    calls.runner.during = submit_once
    calls.drive()
    eventually_blocking(lambda: len(calls.ended) == 2)
    assert texts(calls.ended) == [SOURCE[:-1]] * 2
    first, *rest = calls.runner.steps_of
    assert first == (threading.get_ident(), 1)
    assert threading.get_ident() not in {thread for thread, _ in rest}
    assert 2 in {rows for _, rows in rest}


def test_jobs_that_a_volunteer_leaves_are_decoded_by_the_workers(calls: Calls) -> None:
    calls.engine.scheduler.volunteer()
    calls.engine.submit([calls.job()])
    assert not calls.ended
    calls.engine.scheduler.retire()
    eventually_blocking(lambda: len(calls.ended) == 1)


def test_an_exception_of_a_signal_handler_is_raised_and_ends_the_engine(calls: Calls) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    calls.runner.during = interrupt
    with pytest.raises(KeyboardInterrupt):
        calls.drive()
    assert [type(each) for each in calls.ended] == [EngineLost]
    assert (calls.engine.interrupted, calls.engine.healthy) == (True, False)
    calls.runner.during = lambda: None
    calls.engine = calls.engine.restarted()
    calls.drive()
    assert texts(calls.ended[1:]) == [SOURCE[:-1]]


def test_an_error_in_a_turn_ends_the_jobs_as_in_a_worker(calls: Calls) -> None:
    calls.runner.dies_at = calls.runner.steps + 2
    calls.drive()
    assert [type(each) for each in calls.ended] == [EngineLost]
    eventually_blocking(lambda: not calls.engine.healthy)
    assert not calls.engine.interrupted


def test_stopping_ends_the_jobs_of_a_driver_and_waits_for_its_step(calls: Calls) -> None:
    stopped = list[bool]()
    stopping = threading.Thread(target=lambda: stopped.append(calls.engine.stop(0)))

    def stop_once() -> None:
        if not stopping.ident:
            stopping.start()
            eventually_blocking(lambda: calls.engine.scheduler._stopping)
            assert not stopped

    calls.runner.during = stop_once
    calls.drive()
    stopping.join(10)
    assert (len(calls.ended), stopped) == (1, [False])


def test_memory_that_a_driver_used_is_freed_when_the_engine_is_idle(calls: Calls) -> None:
    calls.drive()
    assert calls.recorder.state_bytes > 0
    eventually_blocking(lambda: calls.recorder.state_bytes == 0)
    calls.drive()  # the threads of the workers now wait without a limit
    assert calls.recorder.state_bytes > 0
    eventually_blocking(lambda: calls.recorder.state_bytes == 0)
