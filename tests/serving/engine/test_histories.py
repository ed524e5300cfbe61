"""Random histories of the scheduler: callers submit and cancel, workers take turns, and the clock runs.

The test takes the turns of the workers. A worker that would sleep on the condition of the scheduler sleeps in the
history instead, until the scheduler notifies it.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingon.errors import Cancelled, Draining, EngineLost, Expired, NotBegun, QueueFull, RequestError, WontFinish
from lingon.serving.decoding.job import DecodeJob, Job, Options, ScoreJob
from lingon.serving.engine.cost import cost_of
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.engine.policy import LIGHT, MAIN, reserved_rows
from lingon.serving.engine.scheduler import EngineLoad, NullObserver, Scheduler, TimeSlice
from tests.support.repository import scaled

CALLERS = ("a", "b", "flood")
LENGTHS = {"a": 2, "b": 9, "flood": 130}
"""Tokens of the sources of each caller: two jobs make the last one heavy."""

REFUSALS = (QueueFull, WontFinish, NotBegun)
"""Errors with which `submit` refuses a call and changes nothing."""


class WouldSleepError(Exception):
    """A worker has nothing to do."""


class Wakes(threading.Condition):
    """A condition on which no thread sleeps.

    Waiting without a limit raises WouldSleepError; during a wait with a limit the workers do all their work.
    """

    def __init__(self, history: History) -> None:
        super().__init__()
        self._history, self.notified_last = history, True

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is None:
            raise WouldSleepError
        if timeout > 0:
            self._history.work()
            assert self.notified_last, "nobody wakes the thread that waits for the end of all jobs"
        return False

    def notify(self, n: int = 1) -> None:
        for work in [work for work in self._history.workers if work.asleep][:n]:
            work.asleep = False

    def notify_all(self) -> None:
        self.notified_last = True
        self.notify(len(self._history.workers))


@dataclass(eq=False)
class Work:
    """What a worker of the history holds.

    running: admitted jobs; removed: jobs to end with an error, in the turn that it has begun
    last: what the turn before did
    """

    running: dict[int, Job] = field(default_factory=dict)
    removed: list[Job] = field(default_factory=list)
    in_slice: bool = False
    asleep: bool = False
    ended: bool = False
    last: TimeSlice | None = None


class History:
    """A scheduler, and what it must do by the calls that it has received."""

    def __init__(self, workers: int, max_rows: int, spread: int) -> None:
        self.now, self.calls = 1000.0, itertools.count()
        self.limits = EngineLimits(max_rows=max_rows, spread=spread, max_queue_texts=12, max_queue_tokens=600)
        self.workers = [Work() for _ in range(workers)]
        self.jobs: dict[int, Job] = {}  # that were accepted and have not ended
        self.admitted: set[int] = set()
        self.cancelled: set[int] = set()
        self.open = True
        self.changed = Wakes(self)
        self.scheduler = Scheduler(self.limits, workers, NullObserver(), lambda: self.now, self.changed)

    def submit(self, caller: str, rows: Sequence[int], seconds: float | None) -> None:
        """Submit a call. rows: of each job, 0 for a pair to score; seconds: until its deadline."""
        jobs = new_jobs(caller, next(self.calls), rows, None if seconds is None else self.now + seconds)
        before = self.scheduler.load()
        try:
            self.scheduler.submit(jobs)
        except REFUSALS:
            assert self.scheduler.load() == before
        except (Draining, EngineLost):
            assert not self.open
        else:
            assert self.open
            self.jobs |= {job.number: job for job in jobs}

    def cancel(self, which: Sequence[int]) -> None:
        """Cancel jobs, by their places among those that have not ended."""
        numbers = {sorted(self.jobs)[place % len(self.jobs)] for place in which} if self.jobs else set()
        self.scheduler.cancel([self.jobs[number] for number in numbers])
        self.cancelled |= numbers

    def turns(self, workers: Sequence[int], seconds: float, ending: int, steps: int) -> None:
        """Let the clock run; then each of these workers ends its turn, or begins one.

        ending: the most translations that end in a turn, with so many steps of the decoder
        """
        self.now += seconds
        for worker in workers:
            work = self.workers[worker % len(self.workers)]
            if work.in_slice:
                self.end(work, list(work.running)[:ending], steps)
            elif not (work.asleep or work.ended):
                self.begin(worker % len(self.workers))

    def drain(self, worker: int) -> None:
        self.open = False
        assert self.scheduler.stop(60.0)

    def stop_at_once(self, worker: int) -> None:
        self.open = False
        self.cancelled |= set(self.jobs)
        assert self.scheduler.stop(0.0) == (not self.jobs)

    def take_all(self, worker: int) -> None:
        self.open = False
        assert sorted(job.number for job in self.scheduler.take_all()) == sorted(self.jobs)
        self.jobs, self.workers = {}, [Work() for _ in self.workers]

    def fail(self, worker: int) -> None:
        self.open = False
        worker %= len(self.workers)
        work = self.workers[worker]
        others = {n for each in self.workers if each is not work for n in self.held(each)}
        lost = self.scheduler.fail(worker)
        assert sorted(job.number for job in lost) == sorted(self.jobs.keys() - others)
        for job in lost:
            self.close(job)
        self.workers[worker] = Work(ended=True)

    def held(self, work: Work) -> set[int]:
        return work.running.keys() | {job.number for job in work.removed}

    def begin(self, worker: int) -> None:
        """Take the next plan of a worker, and check it."""
        work = self.workers[worker]
        try:
            plan = self.scheduler.next(worker, work.last)
        except WouldSleepError:
            assert not work.running, "a worker with running jobs sleeps"
            work.asleep, work.last = True, None
            return
        if plan is None:
            assert not self.open
            assert not work.running
            work.ended = True
            return
        for job, error in plan.removed:
            self.check_removal(job, error, work)
            work.running.pop(job.number, None)
            work.removed.append(job)
        for each in plan.admitted:
            self.check_admission(each)
            self.admitted.add(each.number)
            work.running[each.number] = each
        lanes = {each.lane for each in work.running.values()}
        assert plan.removed or plan.lane in lanes, "a worker serves a lane in which it has no work"
        work.in_slice, work.last = True, TimeSlice(plan.lane, 0.01)

    def check_removal(self, job: Job, error: RequestError, work: Work) -> None:
        number = job.number
        assert self.jobs.get(number) is job, "a job ends twice"
        assert number not in {job.number for each in self.workers for job in each.removed}, "a job ends twice"
        assert number not in self.admitted or number in work.running, "another worker runs it"
        reasons = {
            Cancelled: number in self.cancelled,
            Expired: job.deadline is not None and job.deadline <= self.now,
            QueueFull: number not in self.admitted,
        }
        assert reasons[type(error)]

    def check_admission(self, job: Job) -> None:
        """Check that the job waited, and that its rows are free, unless it is alone in its lane."""
        lane = job.lane
        assert lane is not None
        assert self.jobs.get(job.number) is job, "a job starts after its end"
        assert job.number not in self.admitted, "a job starts twice"
        assert job.number not in self.cancelled
        rows, most, reserve = self.rows(), self.limits.max_rows, reserved_rows(self.limits.max_rows)
        own, total = rows[lane] + job.rows, sum(rows) + job.rows
        if rows[lane]:
            assert own <= most
            assert total <= most + reserve
            assert lane == LIGHT or total <= most or own <= reserve, "the lane MAIN takes the reserve of LIGHT"

    def rows(self) -> list[int]:
        """Return the running rows of each lane."""
        running = [each for work in self.workers for each in work.running.values()]
        return [sum(each.rows for each in running if each.lane == lane) for lane in (MAIN, LIGHT)]

    def end(self, work: Work, numbers: Sequence[int], steps: int) -> None:
        """End a turn: the removed jobs and these running ones have their outcome."""
        for job in work.removed:
            self.close(job)
        for number in numbers:
            self.close(work.running.pop(number), steps)
        work.removed, work.in_slice = [], False

    def close(self, job: Job, steps: int = 0) -> None:
        del self.jobs[job.number]
        self.changed.notified_last = False
        self.scheduler.close(job, steps)

    def check_load(self) -> None:
        """Check the load against what was accepted and has not ended."""
        load = self.scheduler.load()
        waiting = [job for number, job in self.jobs.items() if number not in self.admitted]
        assert load.queued + load.running == len(self.jobs)
        assert load.queued <= min(len(waiting), self.limits.max_queue_texts)
        assert load.queued_tokens <= min(sum(each.tokens for each in waiting), self.limits.max_queue_tokens)
        assert load.queued_work <= sum(map(cost_of, waiting))
        assert self.scheduler.idle == (not self.jobs)

    def work(self) -> None:
        """Let the workers take turns for as long as all jobs can need."""
        for _ in range(10 * len(self.jobs) + 20):
            self.turns(range(len(self.workers)), seconds=0.0, ending=len(self.jobs), steps=1)

    def finish(self) -> None:
        """Let the workers do all work, and check that every job ends, and that all counts are zero again."""
        self.work()
        assert not self.jobs, "jobs are left, and no worker takes them"
        assert self.scheduler.load() == EngineLoad(0, 0, 0, 0)

    def check_rows_are_free(self) -> None:
        """Check that the scheduler admits as many jobs as a new one does, and remembers no heavy caller."""
        most = min(self.limits.max_rows, self.limits.max_queue_texts)
        self.submit("a", [1] * most, None)
        assert len(self.jobs) == most
        self.turns([each for each, work in enumerate(self.workers) if not work.in_slice], 0.0, 0, 0)
        assert self.rows() == [most, 0]


def new_jobs(caller: str, call: int, rows: Sequence[int], deadline: float | None) -> list[Job]:
    common = {"source_ids": (5,) * LENGTHS[caller], "on_done": print, "caller": caller, "call": call}
    return [
        DecodeJob(options=Options(beam_size=beam_size), deadline=deadline, **common)
        if beam_size
        else ScoreJob(target_ids=(7,), deadline=deadline, **common)
        for beam_size in rows
    ]


PLACES = st.lists(st.integers(0, 11), max_size=2)
SUBMIT = st.fixed_dictionaries(
    {
        "caller": st.sampled_from(CALLERS),
        "rows": st.lists(st.sampled_from([0, 1, 1, 1, 2, 4, 15]), min_size=1, max_size=4),
        "seconds": st.sampled_from([None, None, None, None, -0.1, 0.1, 1.0]),
    }
)
TURNS = st.fixed_dictionaries(
    {
        "workers": st.lists(st.integers(0, 2), min_size=1, max_size=6),
        "seconds": st.sampled_from([0.0, 0.0, 0.01, 0.2, 3.0]),
        "ending": st.integers(0, 5),
        "steps": st.sampled_from([1, 100]),
    }
)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), SUBMIT),
        st.tuples(st.just("turns"), TURNS),
        st.tuples(st.just("cancel"), st.fixed_dictionaries({"which": PLACES})),
    ),
    min_size=15,
    max_size=60,
)
NEW = st.builds(History, workers=st.integers(1, 3), max_rows=st.integers(1, 12), spread=st.integers(1, 6))


def happen(history: History, events: list[tuple[str, dict[str, Any]]]) -> None:
    for name, arguments in events:
        getattr(history, name)(**arguments)
        history.check_load()


@settings(max_examples=scaled(gate=150, full=10_000))
@given(history=NEW, events=EVENTS)
def test_every_job_ends_once_within_the_limits_and_all_rows_are_free_again(history, events):
    happen(history, events)
    history.finish()
    history.check_rows_are_free()


@pytest.mark.parametrize("end", ["drain", "stop_at_once", "fail", "take_all"])
@settings(max_examples=scaled(gate=30, full=2_000))
@given(history=NEW, before=EVENTS, worker=st.integers(0, 2), after=EVENTS)
def test_every_job_ends_once_though_the_engine_stops_or_fails(end, history, before, worker, after):
    happen(history, before)
    getattr(history, end)(worker)
    happen(history, after)
    history.finish()
    assert all(work.ended for work in history.workers), "a worker sleeps for ever"
