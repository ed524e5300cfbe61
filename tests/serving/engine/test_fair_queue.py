"""Start-time fair queuing: equal service for all keys, no starvation."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lingon.serving.engine.fair_queue import FairQueue


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
