"""The budgets, the circuit breaker and the slots of the second translator."""

from __future__ import annotations

import asyncio
import math

from hypothesis import given
from hypothesis import strategies as st

from lingon.serving.second.bounds import (
    FAILURES,
    HOUR,
    MOST_CALLERS,
    PAUSE,
    REJECTED_PAUSE,
    REJECTIONS,
    UNKNOWN,
    CircuitBreaker,
    HourlyBudget,
    RejectionBreakers,
)
from lingon.serving.second.slots import FairSlots


def test_a_caller_may_send_the_sentences_of_an_hour_at_once_and_regains_them_over_it():
    budget = HourlyBudget(lambda caller: 3)
    for _ in range(3):
        assert budget.wait("a", 0.0) == 0
        budget.take("a", 0.0)
    assert budget.wait("a", 0.0) == HOUR / 3
    assert budget.wait("b", 0.0) == 0
    assert budget.wait("a", HOUR / 3) == 0
    budget.take("a", HOUR / 3)
    assert budget.wait("a", HOUR / 3) > 0


@given(sentences=st.integers(1, 1000), now=st.floats(0, 1e8))
def test_all_sentences_of_an_hour_may_be_sent_at_once_at_any_time(sentences: int, now: float):
    budget = HourlyBudget(lambda caller: sentences)
    for _ in range(sentences):
        assert budget.wait("a", now) == 0
        budget.take("a", now)
    assert budget.wait("a", now) > 0


def test_a_budget_without_a_bound_never_refuses():
    budget = HourlyBudget(lambda caller: None)
    for _ in range(1000):
        budget.take("a", 0.0)
    assert budget.wait("a", 0.0) == 0


def test_each_caller_has_the_bound_that_it_has_when_it_asks():
    bounds: dict[str, int | None] = {"a": 1, "b": 2, "none": 0}
    budget = HourlyBudget(lambda caller: bounds.get(caller))
    for caller in ("a", "b", "other"):
        assert budget.wait(caller, 0.0) == 0
        budget.take(caller, 0.0)
    assert [budget.wait(caller, 0.0) for caller in ("a", "b", "other", "none")] == [HOUR, 0, 0, math.inf]
    bounds["a"] = None
    assert budget.wait("a", 0.0) == 0


def test_a_budget_remembers_a_bounded_number_of_callers():
    budget = HourlyBudget(lambda caller: 1)
    for number in range(MOST_CALLERS + 10):
        budget.take(str(number), 0.0)
    assert budget.wait(str(MOST_CALLERS + 9), 0.0) > 0
    assert budget.wait("0", 0.0) == 0


def test_a_server_that_fails_is_left_alone_and_then_probed_by_one_question():
    breaker = CircuitBreaker()
    for _ in range(FAILURES):
        assert not breaker.refuses(0.0)
        breaker.begun()
        breaker.failed(0.0)
    assert breaker.refuses(PAUSE - 0.1)
    assert not breaker.refuses(PAUSE)
    breaker.begun()
    assert breaker.refuses(PAUSE)  # while the probe is open
    breaker.failed(PAUSE)
    assert breaker.refuses(2 * PAUSE - 0.1)
    breaker.begun()
    breaker.answered(2 * PAUSE)
    assert not breaker.refuses(2 * PAUSE)


def test_a_probe_that_its_caller_cancels_leaves_the_next_question_to_probe():
    breaker = CircuitBreaker()
    for _ in range(FAILURES):
        breaker.failed(0.0)
    breaker.begun()
    breaker.dropped()
    assert not breaker.refuses(PAUSE)


def test_an_answer_between_failures_keeps_the_circuit_closed():
    breaker = CircuitBreaker()
    for _ in range(3):
        for _ in range(FAILURES - 1):
            breaker.failed(0.0)
        breaker.answered(0.0)
    assert not breaker.is_open


def test_each_caller_has_its_own_circuit_of_rejections_and_a_bounded_number_is_remembered():
    breakers = RejectionBreakers()
    for _ in range(REJECTIONS):
        assert not breakers.of("a").refuses(0.0)
        breakers.of("a").failed(0.0)
    assert breakers.of("a").refuses(REJECTED_PAUSE - 0.1)
    assert not breakers.of("b").refuses(0.0)
    assert not breakers.of("a").refuses(REJECTED_PAUSE)
    for number in range(MOST_CALLERS):
        breakers.of(str(number))
    assert not breakers.of("a").is_open


def test_rejections_are_counted_in_a_row_and_a_caller_without_a_good_answer_begins_with_some():
    breakers = RejectionBreakers()
    counted = [breakers.in_a_row("a")]
    for is_good in (False, False, False, True, False, True):
        breakers.of("a").answered(0.0) if is_good else breakers.of("a").failed(0.0)
        counted.append(breakers.in_a_row("a"))
    assert counted == [UNKNOWN, UNKNOWN, 2, 3, 0, 1, 0]
    assert breakers.in_a_row("b") == UNKNOWN


async def test_callers_take_turns_and_a_caller_with_many_questions_waits_for_itself():
    slots, order, release = FairSlots(1), list[str](), asyncio.Event()

    async def hold():
        async with slots.of("first"):
            await release.wait()

    async def question(caller: str):
        async with slots.of(caller):
            order.append(caller)

    holding = asyncio.create_task(hold())
    await asyncio.sleep(0)
    waiting = [asyncio.create_task(question("many")) for _ in range(4)]
    await asyncio.sleep(0)
    waiting.append(asyncio.create_task(question("one")))
    await asyncio.sleep(0)
    release.set()
    await asyncio.gather(holding, *waiting)
    assert order == ["many", "one", "many", "many", "many"]


async def test_a_question_that_is_cancelled_while_it_waits_gives_its_turn_on():
    slots, release = FairSlots(1), asyncio.Event()

    async def hold():
        async with slots.of("a"):
            await release.wait()

    holding = asyncio.create_task(hold())
    await asyncio.sleep(0)
    cancelled = asyncio.create_task(hold())
    next_one = asyncio.create_task(hold())
    await asyncio.sleep(0)
    cancelled.cancel()
    release.set()  # the slot is given on before the cancelled question runs again
    await asyncio.wait_for(asyncio.gather(holding, next_one), 10)
    await asyncio.gather(cancelled, return_exceptions=True)
    async with asyncio.timeout(10), slots.of("b"):
        pass
