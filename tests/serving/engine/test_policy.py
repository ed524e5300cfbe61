"""Row shares, admission rounds, encoder batches and estimates, on plain numbers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lingon.serving.decoding.job import DecodeJob, Options
from lingon.serving.engine.cost import WINDOW, ThroughputEstimator, cost_of
from lingon.serving.engine.limits import EngineLimits, encoder_batches
from lingon.serving.engine.policy import NOTHING, ROUND, SMALL, FairQueue, Intake, intake, key_to_evict
from lingon.serving.engine.queue import Queue
from lingon.serving.engine.scheduler import NullObserver, Scheduler
from tests.support.engine_harness import make_scheduler, next_step, of_caller


def job(length: int = 3, beam_size: int = 1) -> DecodeJob:
    return DecodeJob(source_ids=(5,) * length, options=Options(beam_size=beam_size), on_done=print)


@given(st.lists(st.integers(1, 200), min_size=1, max_size=60), st.integers(1, 400))
def test_encoder_batches_contain_every_source_once_within_the_budget(lengths: list[int], budget: int) -> None:
    batches = encoder_batches(lengths, budget)
    assert sorted(place for batch in batches for place in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[place] for place in batch) <= budget
    encoded = [lengths[place] for batch in batches for place in batch]
    assert encoded == sorted(lengths, reverse=True), "the longest opens the running batch that the others join"


def admit_in_turn(running: list[int], waiting: list[int], most_rows: int = 1000) -> list[int]:
    """Return the rows of each worker after they admitted jobs in turn until none is admitted.

    running: rows of each worker before, all of beam size 1; waiting: the beam sizes of queued jobs
    """
    queue, running = Queue(EngineLimits()), list(running)
    queue.add([job(beam_size=rows) for rows in waiting])
    sentences = sum(running) + len(waiting)
    changed = True
    while changed:
        changed = False
        for worker in range(len(running)):
            share = intake(
                worker,
                running,
                [0] * len(running),
                queued=queue.rows,
                queued_work=0,
                free=1000,
                few=sentences < EngineLimits().spread,
                contended=True,
            )
            taken = sum(each.rows for each in queue.admit(running[worker], most_rows, share.rows))
            running[worker] += taken
            changed |= taken > 0
    assert len(queue) == 0 or most_rows < 1000
    return running


def test_many_texts_that_arrive_together_are_spread_evenly() -> None:
    assert admit_in_turn([0, 0], [1] * 32) == [16, 16]
    assert admit_in_turn([0, 0, 0], [1] * 18) == [6, 6, 6]
    assert admit_in_turn([0, 0], [4] * 16) == [32, 32]


def test_few_texts_share_one_batch_with_all_cores() -> None:
    assert admit_in_turn([0, 0], [1] * 15) == [15, 0]
    assert admit_in_turn([0, 0], [4] * 8) == [32, 0]
    assert admit_in_turn([0, 3], [1]) == [0, 4]


def test_with_many_running_texts_a_new_one_joins_a_worker_with_few() -> None:
    assert admit_in_turn([16, 0], [1]) == [16, 1]
    assert admit_in_turn([12, 0, 3], [4]) == [12, 4, 3]


@pytest.mark.parametrize("longest", [20, 40])
def test_workers_get_as_much_work_of_a_call_that_they_start_whole(longest: int) -> None:
    scheduler = make_scheduler(2, max_rows=100)
    jobs = [of_caller("", length) for length in range(1, longest + 1)]
    scheduler.submit(jobs)
    admitted = [next_step(scheduler, worker)[0] for worker in (0, 1)]
    first, second = (sum(map(cost_of, each)) for each in admitted)
    assert len(admitted[0]) + len(admitted[1]) == len(jobs)
    assert abs(first - second) <= max(map(cost_of, jobs))


def test_what_is_queued_behind_a_full_engine_is_left_to_the_rows_that_become_free() -> None:
    scheduler, jobs = make_scheduler(2, max_rows=16), [of_caller("", length) for length in range(1, 41)]
    scheduler.submit(jobs)
    assert [len(next_step(scheduler, worker)[0]) for worker in (0, 1)] == [8, 8]


@pytest.mark.parametrize(("rows", "beam_size", "expected"), [(15, 1, 15), (16, 1, 8), (60, 4, 15), (64, 4, 8)])
def test_texts_are_few_if_few_run_together_however_many_wait(rows: int, beam_size: int, expected: int) -> None:
    scheduler = Scheduler(EngineLimits(max_rows=rows), 2, NullObserver())
    scheduler.submit([job(beam_size=beam_size) for _ in range(40)])
    assert len(next_step(scheduler, 0)[0]) == expected


@given(st.lists(st.integers(0, 20), min_size=1, max_size=4), st.lists(st.integers(1, 8), max_size=20))
def test_all_queued_texts_are_taken_by_workers_below_the_mean(running: list[int], waiting: list[int]) -> None:
    assume(sum(running) + len(waiting) >= EngineLimits().spread)
    after = admit_in_turn(running, waiting)
    assert sum(after) == sum(running) + sum(waiting)
    mean = sum(after) / len(after)
    assert all(rows < mean + 1 + 8 for rows, before in zip(after, running, strict=True) if rows > before)


def taken(running: int, queued: int, steps: int) -> Intake:
    """Return what a batch takes that is alone, of a queue with little work."""
    return intake(0, [running], [1000], queued=queued, queued_work=1, free=1000, steps=steps)


@pytest.mark.parametrize("running", range(40))
def test_a_queued_job_waits_for_at_most_one_round(running: int) -> None:
    assert taken(running, 1, ROUND) == Intake(running + 1)


def test_a_small_batch_admits_at_once_and_so_does_one_that_many_rows_wait_for() -> None:
    assert taken(0, 1, 0) == Intake(1)
    assert taken(SMALL - 1, 1, 1) == Intake(SMALL)
    assert taken(32, 16, 1) == Intake(48)
    assert taken(32, 1, ROUND - 1) is NOTHING


@pytest.mark.parametrize(
    ("worker", "given", "expected"),
    [
        (0, {"few": True}, NOTHING),
        (1, {"few": True}, Intake(22)),
        (0, {"contended": True}, Intake(13)),
        (0, {"free": 8}, Intake(12)),
        (0, {"queued_work": 149}, Intake(13)),
        (0, {}, Intake(104, 200.0)),
        (1, {}, Intake(112, 0.0)),
    ],
)
def test_a_batch_takes_all_or_its_share_of_the_rows_or_of_the_work(
    worker: int, given: dict[str, Any], expected: Intake
) -> None:
    assert intake(worker, [4, 12], [50, 250], **{"queued": 10, "queued_work": 200, "free": 100, **given}) == expected


def test_the_key_that_holds_the_most_gives_way_if_that_is_more_than_the_newcomer_would_hold() -> None:
    held = {"few": 1, "many": 5}
    assert key_to_evict(held, held.__getitem__, 4) == "many"
    assert key_to_evict(held, held.__getitem__, 5) is None, "the newcomer is refused"
    assert key_to_evict({}, held.__getitem__, 0) is None


def test_the_throughput_is_measured_only_while_the_queue_is_not_empty() -> None:
    estimator, now = ThroughputEstimator(), 0.0
    assert estimator.estimate(1000, 10) == 0
    for _ in range(20):  # slowly, one by one, because the queue is empty
        estimator.record_start(10, now, more=False)
        now += 1
    assert estimator.estimate(1000, 10) == 0
    for _ in range(200):  # a cost of 100 in each tenth of a window
        estimator.record_start(100, now, more=True)
        now += WINDOW / 10
    assert estimator.estimate(1000, 10) == pytest.approx(WINDOW, rel=0.15)
    for _ in range(500):
        estimator.record_end(10, 0.5)
    assert estimator.estimate(0, 20) == pytest.approx(1.0, rel=0.01)


def test_the_time_after_a_queue_was_cancelled_does_not_count_as_work() -> None:
    now = [1000.0]
    scheduler = Scheduler(EngineLimits(max_rows=2, spread=1), 1, NullObserver(), lambda: now[0])
    jobs = [job(30) for _ in range(4)]
    scheduler.submit(jobs)
    assert scheduler.next(0) is not None
    scheduler.cancel(jobs)
    assert scheduler.next(0) is not None
    for each in jobs:
        scheduler.close(each)
    now[0] += 3600
    scheduler.submit([job(30) for _ in range(4)])
    assert scheduler.next(0) is not None
    in_time = DecodeJob(source_ids=(5,), options=Options(), on_done=print, deadline=now[0] + 60)
    scheduler.submit([in_time])  # nothing is known of the throughput, so nothing is refused


@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(20, 200))
def test_keys_that_always_have_work_receive_equal_service(costs: list[int], rounds: int) -> None:
    queue: FairQueue[int] = FairQueue()
    for key in range(len(costs)):
        queue.join(key)
    received = [0] * len(costs)
    for _ in range(rounds):
        key = queue.next()
        received[key] += costs[key]
        queue.charge(key, costs[key])
    assert max(received) - min(received) <= 2 * max(costs)


def test_a_new_key_is_served_next_without_credit_for_the_past() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.join("early")
    for _ in range(100):
        queue.charge(queue.next(), 1)
    queue.join("late")
    order = []
    for _ in range(6):
        order.append(queue.next())
        queue.charge(order[-1], 1)
    assert order.count("late") == 3


def test_an_endless_stream_of_new_keys_does_not_starve_an_older_key() -> None:
    queue: FairQueue[int] = FairQueue()
    queue.join(-1)
    queue.charge(-1, 100)
    for newcomer in range(2000):  # two keys arrive for each key that is served
        queue.join(2 * newcomer)
        queue.join(2 * newcomer + 1)
        if (key := queue.next()) == -1:
            break
        queue.charge(key, 10)
        queue.leave(key)
    assert key == -1


def test_keys_that_are_chosen_among_eligible_ones_leave_nothing_behind() -> None:
    queue: FairQueue[int] = FairQueue()
    for key in range(3):
        queue.join(key)
    for _ in range(1000):
        queue.charge(queue.next(lambda key: True), 1)
    assert len(queue._heap) < 100
    received = [0, 0, 0]
    for _ in range(30):  # the order is as before
        key = queue.next()
        received[key] += 1
        queue.charge(key, 1)
    assert max(received) - min(received) <= 2


def test_a_key_that_leaves_is_forgotten() -> None:
    queue: FairQueue[int] = FairQueue()
    for key in range(1000):
        queue.join(key)
        queue.charge(key, 1)
        queue.leave(key)
    assert len(queue) == 0
    assert not queue._heap
