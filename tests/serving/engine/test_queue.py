"""The queue of an engine: limits, order, fairness, and which call is dropped when it is full."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.errors import QueueFull
from lingon.serving.decoding.job import DecodeJob, Job, Options, ScoreJob
from lingon.serving.engine.cost import cost_of
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.engine.queue import Queue


def job(length: int = 3, beam_size: int = 1, caller: str = "", call: int = 0) -> DecodeJob:
    return DecodeJob(
        source_ids=(5,) * length, options=Options(beam_size=beam_size), on_done=print, caller=caller, call=call
    )


def job_of(caller: str, call: int, length: int = 5) -> DecodeJob:
    return job(length, caller=caller, call=call)


def served(queue: Queue, count: int) -> list[tuple[str, int]]:
    """Return caller and call of the next jobs, admitted one by one."""
    return [(one.caller, one.call) for _ in range(count) for one in queue.admit(0, 1, 1)]


def test_a_flood_of_one_caller_does_not_delay_another_caller() -> None:
    queue = Queue(EngineLimits())
    for call in range(500):
        queue.add([job_of("flood", call)])
    queue.add([job_of("other", 1000)])
    assert ("other", 1000) in served(queue, 2)


def test_a_large_call_does_not_delay_small_calls_of_the_same_caller() -> None:
    queue = Queue(EngineLimits())
    queue.add([job_of("one", 1) for _ in range(300)])
    for call in range(2, 12):
        queue.add([job_of("one", call)])
    assert {call for _, call in served(queue, 12)} >= set(range(2, 12))


def test_equal_calls_of_one_caller_are_served_in_order_of_arrival() -> None:
    queue = Queue(EngineLimits())
    for call in range(20):
        queue.add([job_of("one", call)])
    assert served(queue, 20) == [("one", call) for call in range(20)]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.integers(1, 9)), max_size=40), st.data())
def test_every_job_leaves_the_queue_once_and_the_counts_match(
    specs: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    queue, jobs = Queue(EngineLimits()), [job_of(*one) for one in specs]
    for one in jobs:
        queue.add([one])
    removed = [one for one in jobs if data.draw(st.booleans()) and queue.remove(one.number)]
    admitted = queue.admit(0, 1000, 1000)
    assert sorted(one.number for one in removed + admitted) == [one.number for one in jobs]
    assert (len(queue), queue.tokens, queue.rows) == (0, 0, 0)


def test_a_full_queue_drops_the_latest_call_of_the_caller_with_the_most_work() -> None:
    queue = Queue(EngineLimits(max_queue_texts=10))
    for call in range(5):
        queue.add([job_of("flood", call), job_of("flood", call)])
    new = [job_of("other", 99)]
    dropped = queue.make_room(new)
    assert {one.call for one in dropped} == {4}
    for one in dropped:
        queue.remove(one.number)
    queue.add(new)
    assert len(queue) == 9


def test_a_full_queue_refuses_the_caller_with_the_most_work_and_drops_nothing() -> None:
    queue = Queue(EngineLimits(max_queue_texts=4))
    queue.add([job_of("flood", 1), job_of("flood", 1), job_of("flood", 1), job_of("other", 2)])
    with pytest.raises(QueueFull, match="4 texts are queued, 1 more would exceed the limit of 4"):
        queue.make_room([job_of("flood", 3)])
    with pytest.raises(QueueFull):
        queue.make_room([job_of("other", 3) for _ in range(4)])


def test_a_full_queue_is_detected_from_the_number_of_texts_alone() -> None:
    queue = Queue(EngineLimits(max_queue_texts=4))
    queue.check_texts("flood", 4)
    queue.add([job_of("flood", 1), job_of("flood", 1), job_of("flood", 1), job_of("other", 2)])
    with pytest.raises(QueueFull, match="4 texts are queued, 1 more would exceed the limit of 4"):
        queue.check_texts("flood", 1)
    queue.check_texts("other", 1)  # whether it fits depends on its tokens


def test_a_call_that_has_started_is_not_dropped() -> None:
    queue = Queue(EngineLimits(max_queue_texts=3))
    queue.add([job_of("flood", 1) for _ in range(4)][:3])
    served(queue, 1)
    queue.add([job_of("flood", 1)])
    with pytest.raises(QueueFull):
        queue.make_room([job_of("other", 2)])


def test_follow_up_jobs_leave_half_of_the_queue_to_others() -> None:
    """They are not refused but submitted again, and once queued they are not dropped."""
    queue = Queue(EngineLimits(max_queue_texts=8))
    follow_up = [
        ScoreJob(source_ids=(5, 2), target_ids=(7,), on_done=print, caller="aligned", call=1, follow_up=True)
        for _ in range(6)
    ]
    for each in follow_up[:5]:
        assert queue.make_room([each]) == []
        queue.add([each])
    with pytest.raises(QueueFull):
        queue.make_room(follow_up[5:])
    assert queue.make_room([job_of("other", 2)] * 3) == []


def test_cost_before_follows_the_fair_order() -> None:
    queue = Queue(EngineLimits())
    for call in range(10):
        queue.add([job_of("flood", call)])  # 50 tokens
    assert queue.cost_before([job_of("other", 99, length=4)]) == 8  # its own cost, and as much of the flood
    assert queue.cost_before([job_of("flood", 99, length=4)]) == 44  # its own cost, and as much of each earlier call


def test_cost_before_counts_every_beam() -> None:
    queue, beams = Queue(EngineLimits()), job_of("flood", 1)
    beams.options = Options(beam_size=4)
    queue.add([beams])
    assert queue.cost_before([job_of("other", 99, length=30)]) == 30 + cost_of(beams)
    assert cost_of(beams) == 0.4 * 5 + 0.6 * 5 * 4
    queue.remove(beams.number)
    assert queue.cost_before([job_of("other", 99, length=30)]) == 30


def test_the_limit_of_texts_is_exact() -> None:
    queue = Queue(EngineLimits(max_queue_texts=3))
    queue.make_room([job(), job(), job()])
    queue.add([job(), job()])
    with pytest.raises(QueueFull, match="2 texts are queued, 2 more would exceed the limit of 3"):
        queue.make_room([job(), job()])
    queue.make_room([job()])


def test_the_limit_of_tokens_is_exact() -> None:
    queue = Queue(EngineLimits(max_queue_tokens=10))
    queue.add([job(6)])
    queue.make_room([job(4)])
    with pytest.raises(QueueFull, match="6 tokens are queued, 5 more would exceed the limit of 10"):
        queue.make_room([job(5)])


def pairs_of(caller: str, call: int, target: int, count: int = 1) -> list[Job]:
    return [
        ScoreJob(source_ids=(5, 2), target_ids=(7,) * target, on_done=print, caller=caller, call=call)
        for _ in range(count)
    ]


def test_the_target_tokens_of_a_score_count() -> None:
    queue = Queue(EngineLimits(max_queue_tokens=1000))
    queue.add(pairs_of("one", 1, 255, 3))
    assert queue.tokens == 3 * 257
    with pytest.raises(QueueFull, match="771 tokens are queued, 257 more would exceed the limit of 1000"):
        queue.make_room(pairs_of("one", 2, 255))
    queue.remove(queue.admit(0, 8, 1)[0].number)
    assert queue.tokens == 2 * 257


def test_the_longest_queue_is_that_of_a_caller_who_scores_long_targets_of_short_sources() -> None:
    queue = Queue(EngineLimits(max_queue_tokens=10_000))
    for call in range(38):
        queue.add(pairs_of("scores", call, 255))
    polite = [job(100, caller="translates", call=99) for _ in range(24)]
    assert {one.call for one in queue.make_room(polite)} == set(range(29, 38))  # 9,766 + 2,400 - 9 * 257 tokens fit
    with pytest.raises(QueueFull):
        queue.make_room(pairs_of("scores", 100, 255))


def test_a_caller_who_scores_long_targets_gets_no_more_work_than_one_who_translates() -> None:
    queue = Queue(EngineLimits())
    for call in range(100):
        queue.add(pairs_of("scores", call, 255))
        queue.add([job(26, caller="translates", call=1000 + call)])
    turns = [caller for caller, _ in served(queue, 60)]
    assert turns.count("translates") == pytest.approx(5 * turns.count("scores"), rel=0.2)  # 130 units to 26


def test_work_that_nobody_foresaw_counts_as_service_of_its_caller() -> None:
    queue = Queue(EngineLimits())
    for call in range(20):
        queue.add([job_of("endless", call), job_of("other", 100 + call)])
    (first,) = queue.admit(0, 1, 1)
    queue.charge(first, 50)
    assert {caller for caller, _ in served(queue, 10)} == {"other"}


def test_only_the_callers_that_may_join_are_admitted() -> None:
    queue = Queue(EngineLimits())
    for call in range(4):
        queue.add([job_of("heavy", call)])
    queue.add([job_of("other", 9)])
    assert [one.caller for one in queue.admit(0, 8, 8, joins=lambda party: party != "heavy")] == ["other"]
    assert len(queue) == 4


def test_the_longest_text_of_a_call_is_admitted_first_and_no_call_overtakes_another() -> None:
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
    assert not admitted or running + sum(each.rows for each in admitted) <= 12
    assert len(queue) == len(jobs) - len(admitted)
    assert queue.tokens == 3 * len(queue)
    assert queue.rows == sum(each.rows for each in jobs[len(admitted) :])


def test_a_job_wider_than_the_batch_runs_alone() -> None:
    queue, wide = Queue(EngineLimits()), job(beam_size=8)
    queue.add([wide, job()])
    assert queue.admit(1, most_rows=4, share=9) == []
    assert queue.admit(0, most_rows=4, share=9) == [wide]


def test_a_removed_job_is_no_longer_counted() -> None:
    queue, first, second = Queue(EngineLimits()), job(2), job(5, beam_size=4)
    queue.add([first, second])
    assert queue.remove(first.number) is first
    assert queue.remove(first.number) is None
    assert (len(queue), queue.tokens, queue.rows) == (1, 5, 4)
