from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lingon.errors import QueueFull, SettingsError
from lingon.serving.decoding.job import DecodeJob, Options
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.engine.policy import ROUND, SMALL, admits, encoder_batches, fair_share, rows_of
from lingon.serving.engine.queue import Queue
from lingon.serving.runtime.runner import width_for


def job(length: int = 3, beam_size: int = 1, deadline: float | None = None) -> DecodeJob:
    return DecodeJob(
        source_ids=(5,) * length, options=Options(beam_size=beam_size), on_done=lambda outcome: None, deadline=deadline
    )


@given(st.lists(st.integers(1, 200), min_size=1, max_size=60), st.integers(1, 400))
def test_encoder_batches_hold_every_source_once_within_the_budget(lengths: list[int], budget: int) -> None:
    batches = encoder_batches(lengths, budget)
    assert sorted(place for batch in batches for place in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[place] for place in batch) <= budget


@pytest.mark.parametrize(("length", "width"), [(1, 32), (32, 32), (33, 64), (64, 64), (65, 128)])
def test_the_memory_bucket_is_the_next_power_of_two(length: int, width: int) -> None:
    assert width_for(length) == width


def test_the_queue_is_bounded_in_texts_exactly() -> None:
    queue = Queue(EngineLimits(max_queue_texts=3))
    queue.make_room([job(), job(), job()])
    queue.add([job(), job()])
    with pytest.raises(QueueFull, match="2 texts are queued, 2 more would exceed the limit of 3"):
        queue.make_room([job(), job()])
    queue.make_room([job()])


def test_the_queue_is_bounded_in_source_tokens_exactly() -> None:
    queue = Queue(EngineLimits(max_queue_tokens=10))
    queue.add([job(6)])
    queue.make_room([job(4)])
    with pytest.raises(QueueFull, match="6 source tokens are queued, 5 more would exceed the limit of 10"):
        queue.make_room([job(5)])


def test_the_longest_of_a_call_goes_first_and_no_call_overtakes_another() -> None:
    queue, first, second = Queue(EngineLimits()), [job(3), job(7), job(5)], [job(9), job(2)]
    queue.add(first)
    queue.add(second)
    assert queue.admit(0, 64, 64) == [first[1], first[2], first[0], *second]


@given(st.lists(st.integers(1, 8), max_size=20), st.integers(0, 12))
def test_admission_keeps_the_order_and_never_exceeds_the_rows(beams: list[int], running: int) -> None:
    queue, jobs = Queue(EngineLimits()), [job(beam_size=beam) for beam in beams]
    queue.add(jobs)
    admitted = queue.admit(running, most_rows=12, share=100)
    assert admitted == jobs[: len(admitted)]
    assert not admitted or running + sum(map(rows_of, admitted)) <= 12
    assert len(queue) == len(jobs) - len(admitted)
    assert queue.tokens == 3 * len(queue)
    assert queue.rows == sum(map(rows_of, jobs[len(admitted) :]))


def test_a_job_wider_than_the_batch_runs_alone() -> None:
    queue, wide = Queue(EngineLimits()), job(beam_size=8)
    queue.add([wide, job()])
    assert queue.admit(1, most_rows=4, share=9) == []
    assert queue.admit(0, most_rows=4, share=9) == [wide]


def test_a_job_that_leaves_the_queue_is_counted_no_more() -> None:
    queue, first, second = Queue(EngineLimits()), job(2), job(5, beam_size=4)
    queue.add([first, second])
    assert queue.remove(first.number) is first
    assert queue.remove(first.number) is None
    assert (len(queue), queue.tokens, queue.rows) == (1, 5, 4)


def deal(running: list[int], waiting: list[int], most_rows: int = 1000) -> list[int]:
    """The rows of each worker once they have asked in turn, until nobody gets any more; who runs has one row."""
    queue, running = Queue(EngineLimits()), list(running)
    queue.add([job(beam_size=rows) for rows in waiting])
    sentences = sum(running) + len(waiting)
    changed = True
    while changed:
        changed = False
        for worker in range(len(running)):
            share = fair_share(worker, running, queue.rows, few=sentences < EngineLimits().spread)
            taken = sum(map(rows_of, queue.admit(running[worker], most_rows, share)))
            running[worker] += taken
            changed |= taken > 0
    assert len(queue) == 0 or most_rows < 1000
    return running


def test_many_texts_that_come_at_once_are_spread_evenly() -> None:
    assert deal([0, 0], [1] * 32) == [16, 16]
    assert deal([0, 0, 0], [1] * 18) == [6, 6, 6]
    assert deal([0, 0], [4] * 16) == [32, 32]


def test_few_texts_stay_together_with_all_cores_for_them() -> None:
    assert deal([0, 0], [1] * 15) == [15, 0]
    assert deal([0, 0], [4] * 8) == [32, 0]
    assert deal([0, 3], [1]) == [0, 4]


def test_a_text_goes_to_who_has_little_to_do_where_many_run() -> None:
    assert deal([16, 0], [1]) == [16, 1]
    assert deal([12, 0, 3], [4]) == [12, 4, 3]


@given(st.lists(st.integers(0, 20), min_size=1, max_size=4), st.lists(st.integers(1, 8), max_size=20))
def test_all_that_waits_is_taken_by_those_below_the_mean(running: list[int], waiting: list[int]) -> None:
    assume(sum(running) + len(waiting) >= EngineLimits().spread)
    after = deal(running, waiting)
    assert sum(after) == sum(running) + sum(waiting)
    mean = sum(after) / len(after)
    assert all(rows < mean + 1 + 8 for rows, before in zip(after, running, strict=True) if rows > before)


@pytest.mark.parametrize("running", range(40))
def test_nobody_is_kept_waiting_for_a_round_longer_than_its_turns(running: int) -> None:
    assert admits(running, 1, ROUND)


def test_a_small_batch_or_one_that_many_wait_for_is_joined_at_once() -> None:
    assert admits(0, 1, 0)
    assert admits(SMALL - 1, 1, 1)
    assert admits(32, 16, 1)
    assert not admits(32, 1, ROUND - 1)


def test_limits_name_setting_bound_and_value() -> None:
    with pytest.raises(SettingsError, match="max_rows must be at least 1, got 0"):
        EngineLimits(max_rows=0)
