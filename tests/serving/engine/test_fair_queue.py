"""Who is next, who gives way, and who is not kept waiting for nothing: policy without threads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.errors import QueueFull
from lingon.serving.decoding.job import DecodeJob, Options
from lingon.serving.engine.fair_queue import FairQueue
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.engine.policy import WINDOW, ThroughputEstimator
from lingon.serving.engine.queue import Queue


def job(caller: str, call: int, length: int = 5) -> DecodeJob:
    return DecodeJob(source_ids=(5,) * length, options=Options(), on_done=print, caller=caller, call=call)


def served(queue: Queue, count: int) -> list[tuple[str, int]]:
    """Caller and call of the next so many jobs, let in one by one."""
    return [(one.caller, one.call) for _ in range(count) for one in queue.admit(0, 1, 1)]


@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(20, 200))
def test_who_always_wants_more_gets_as_much_as_anybody(costs: list[int], rounds: int) -> None:
    turns: FairQueue[int] = FairQueue()
    for key in range(len(costs)):
        turns.join(key)
    had = [0] * len(costs)
    for _ in range(rounds):
        key = turns.next()
        had[key] += costs[key]
        turns.charge(key, costs[key])
    assert max(had) - min(had) <= 2 * max(costs)


def test_who_comes_late_is_next_and_has_no_claim_to_what_he_missed() -> None:
    turns: FairQueue[str] = FairQueue()
    turns.join("early")
    for _ in range(100):
        turns.charge(turns.next(), 1)
    turns.join("late")
    order = []
    for _ in range(6):
        order.append(turns.next())
        turns.charge(order[-1], 1)
    assert order.count("late") == 3


def test_who_had_something_is_not_kept_waiting_by_newcomers_without_end() -> None:
    turns: FairQueue[int] = FairQueue()
    turns.join(-1)
    turns.charge(-1, 100)
    for newcomer in range(2000):  # two come for each that is served
        turns.join(2 * newcomer)
        turns.join(2 * newcomer + 1)
        if (key := turns.next()) == -1:
            break
        turns.charge(key, 10)
        turns.leave(key)
    assert key == -1


def test_turns_forget_who_left() -> None:
    turns: FairQueue[int] = FairQueue()
    for key in range(1000):
        turns.join(key)
        turns.charge(key, 1)
        turns.leave(key)
    assert len(turns) == 0
    assert not turns._heap


def test_a_flood_of_one_caller_does_not_keep_another_waiting() -> None:
    queue = Queue(EngineLimits())
    for call in range(500):
        queue.add([job("flood", call)])
    queue.add([job("other", 1000)])
    assert ("other", 1000) in served(queue, 2)


def test_a_giant_call_does_not_keep_small_ones_of_the_same_caller_waiting() -> None:
    queue = Queue(EngineLimits())
    queue.add([job("one", 1) for _ in range(300)])
    for call in range(2, 12):
        queue.add([job("one", call)])
    assert {call for _, call in served(queue, 12)} >= set(range(2, 12))


def test_calls_of_one_caller_go_in_the_order_they_came() -> None:
    queue = Queue(EngineLimits())
    for call in range(20):
        queue.add([job("one", call)])
    assert served(queue, 20) == [("one", call) for call in range(20)]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.integers(1, 9)), max_size=40), st.data())
def test_every_job_leaves_the_queue_once_and_counts_stay_true(
    wanted: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    queue, jobs = Queue(EngineLimits()), [job(*one) for one in wanted]
    for one in jobs:
        queue.add([one])
    gone = [one for one in jobs if data.draw(st.booleans()) and queue.remove(one.number)]
    let_in = queue.admit(0, 1000, 1000)
    assert sorted(one.number for one in gone + let_in) == [one.number for one in jobs]
    assert (len(queue), queue.tokens, queue.rows) == (0, 0, 0)


def test_in_a_full_queue_who_has_the_most_gives_way_by_his_latest_call() -> None:
    queue = Queue(EngineLimits(max_queue_texts=10))
    for call in range(5):
        queue.add([job("flood", call), job("flood", call)])
    newcomer = [job("other", 99)]
    displaced = queue.make_room(newcomer)
    assert {one.call for one in displaced} == {4}
    for one in displaced:
        queue.remove(one.number)
    queue.add(newcomer)
    assert len(queue) == 9


def test_who_has_the_most_himself_is_refused_and_displaces_nobody() -> None:
    queue = Queue(EngineLimits(max_queue_texts=4))
    queue.add([job("flood", 1), job("flood", 1), job("flood", 1), job("other", 2)])
    with pytest.raises(QueueFull, match="4 texts are queued, 1 more would exceed the limit of 4"):
        queue.make_room([job("flood", 3)])
    with pytest.raises(QueueFull):
        queue.make_room([job("other", 3) for _ in range(4)])


def test_a_full_queue_is_known_before_the_texts_are() -> None:
    queue = Queue(EngineLimits(max_queue_texts=4))
    queue.check_texts("flood", 4)
    queue.add([job("flood", 1), job("flood", 1), job("flood", 1), job("other", 2)])
    with pytest.raises(QueueFull, match="4 texts are queued, 1 more would exceed the limit of 4"):
        queue.check_texts("flood", 1)
    queue.check_texts("other", 1)  # it may yet find room


def test_a_call_that_has_begun_is_not_displaced() -> None:
    queue = Queue(EngineLimits(max_queue_texts=3))
    queue.add([job("flood", 1) for _ in range(4)][:3])
    served(queue, 1)
    queue.add([job("flood", 1)])
    with pytest.raises(QueueFull):
        queue.make_room([job("other", 2)])


def test_what_comes_first_is_counted_as_turns_will_have_it() -> None:
    queue = Queue(EngineLimits())
    for call in range(10):
        queue.add([job("flood", call)])  # 50 tokens
    assert queue.cost_before([job("other", 99, length=4)]) == 8  # as much of the flood as its own
    assert queue.cost_before([job("flood", 99, length=4)]) == 44  # of each of its calls as much


def test_what_comes_first_is_counted_with_its_beams() -> None:
    queue, beams = Queue(EngineLimits()), job("flood", 1)
    beams.options = Options(beam_size=4)
    queue.add([beams])
    assert queue.cost_before([job("other", 99, length=30)]) == 30 + 5 * 4
    queue.remove(beams.number)
    assert queue.cost_before([job("other", 99, length=30)]) == 30


def test_a_pace_is_learned_only_while_there_is_enough_to_do() -> None:
    pace, now = ThroughputEstimator(), 0.0
    assert pace.estimate(1000, 10) == 0
    for _ in range(20):  # one by one, slowly, for want of work
        pace.record_start(10, now, more=False)
        now += 1
    assert pace.estimate(1000, 10) == 0
    for _ in range(200):  # 100 each tenth of a window
        pace.record_start(100, now, more=True)
        now += WINDOW / 10
    assert pace.estimate(1000, 10) == pytest.approx(WINDOW, rel=0.15)
    for _ in range(500):
        pace.record_end(10, 0.5)
    assert pace.estimate(0, 20) == pytest.approx(1.0, rel=0.01)
