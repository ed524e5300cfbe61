from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.errors import QueueFull, SettingsError
from serving.job import DecodeJob, Options
from serving.scheduler import EngineLimits, Queue, encoder_batches, rows_of, width_for


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


@pytest.mark.parametrize(("length", "width"), [(1, 16), (16, 16), (17, 32), (64, 64), (65, 128)])
def test_the_memory_bucket_is_the_next_power_of_two(length: int, width: int) -> None:
    assert width_for(length) == width


def test_the_queue_is_bounded_in_texts_exactly() -> None:
    queue = Queue(EngineLimits(max_queue_texts=3))
    queue.check([job(), job(), job()])
    queue.add([job(), job()])
    with pytest.raises(QueueFull, match="2 texts wait, 2 more would exceed the limit of 3"):
        queue.check([job(), job()])
    queue.check([job()])


def test_the_queue_is_bounded_in_source_tokens_exactly() -> None:
    queue = Queue(EngineLimits(max_queue_tokens=10))
    queue.add([job(6)])
    queue.check([job(4)])
    with pytest.raises(QueueFull, match="6 source tokens wait, 5 more would exceed the limit of 10"):
        queue.check([job(5)])


@given(st.lists(st.integers(1, 8), max_size=20), st.integers(0, 12))
def test_admission_keeps_the_order_and_never_exceeds_the_rows(beams: list[int], running: int) -> None:
    queue, jobs = Queue(EngineLimits(max_rows=12)), [job(beam_size=beam) for beam in beams]
    queue.add(jobs)
    admitted = queue.admit(running)
    assert admitted == jobs[: len(admitted)]
    assert not admitted or running + sum(map(rows_of, admitted)) <= 12
    assert len(queue) == len(jobs) - len(admitted)
    assert queue.tokens == 3 * len(queue)


def test_a_job_wider_than_the_batch_runs_alone() -> None:
    queue, wide = Queue(EngineLimits(max_rows=4)), job(beam_size=8)
    queue.add([wide, job()])
    assert queue.admit(1) == []
    assert queue.admit(0) == [wide]


def test_expired_jobs_leave_the_queue_and_no_others() -> None:
    queue, late, early = Queue(EngineLimits()), job(deadline=5.0), job(deadline=7.0)
    queue.add([early, late, job()])
    assert queue.expired(5.0) == [late]
    assert len(queue) == 2


def test_limits_name_setting_bound_and_value() -> None:
    with pytest.raises(SettingsError, match="max_rows must be at least 1, got 0"):
        EngineLimits(max_rows=0)
