"""Refusals are put off while the event loop is busy: the latest are sent first, and late ones are only counted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any

import pytest

from lingon.errors import QueueFull, RequestError
from lingon.serving.auth.callers import OWN_GATEWAY
from lingon.serving.rpc.arrival.later import LEAST, MOST, Arrival, LaterRefusals, LoopShare
from tests.support.eventually import eventually


@dataclass
class Call:
    """The context of a call with so many seconds left."""

    left: float | None = None
    sender: str = "ipv4:127.0.0.1:5000"

    def time_remaining(self) -> float | None:
        return self.left

    def peer(self) -> str:
        return self.sender


@dataclass
class Endings:
    ended: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)

    def caller(self, path: str, context: Any) -> str | None:
        raise NotImplementedError

    def of_load(self, path: str, context: Any, caller: str, wait: float = 0.0) -> RequestError | None:
        raise NotImplementedError

    def ending(self, arrival: Arrival, error: RequestError) -> Awaitable[None]:
        async def end() -> None:
            raise RuntimeError("as gRPC does")

        self.ended.append(arrival.path)
        return end()

    def count(self, arrival: Arrival, error: RequestError) -> None:
        raise NotImplementedError

    def forget(self, arrival: Arrival) -> None:
        self.forgotten.append(arrival.path)


class Loop:
    """Refusals of an event loop whose load the test sets."""

    def __init__(self, share: float, most: int = 1000) -> None:
        self.share, self.refusals = share, Endings()
        self.later = LaterRefusals(self.refusals, most, lambda: self.share)

    def put_off(self, path: str, left: float | None = None, **more: str) -> bool:
        context: Any = Call(left, **more)
        start: Any = None
        return self.later.put_off(Arrival(path, context, "a", start, 0.0), QueueFull("full"))


async def test_an_idle_event_loop_puts_nothing_off():
    assert not Loop(share=0.1).put_off("1")


async def test_a_busy_event_loop_sends_a_few_refusals_in_each_round_the_latest_first():
    loop = Loop(share=1.0)
    assert all(loop.put_off(str(number)) for number in range(2 * LEAST))
    assert not loop.refusals.ended
    await eventually(lambda: loop.refusals.ended)
    assert loop.refusals.ended == [str(number) for number in reversed(range(LEAST, 2 * LEAST))]
    await eventually(lambda: len(loop.refusals.ended) == 2 * LEAST)


async def test_more_are_sent_when_the_event_loop_has_time():
    loop = Loop(share=1.0)
    for number in range(MOST):
        loop.put_off(str(number))
    loop.share = 0.0
    await eventually(lambda: loop.refusals.ended)
    assert len(loop.refusals.ended) == MOST


async def test_calls_whose_deadline_has_passed_are_only_counted():
    loop = Loop(share=1.0)
    loop.put_off("late", left=0.0)
    for number in range(3 * LEAST):
        loop.put_off(str(number), left=9.0)
    await eventually(lambda: loop.refusals.ended)
    assert (loop.refusals.forgotten, len(loop.refusals.ended)) == (["late"], LEAST)


async def test_a_late_call_among_the_latest_is_only_counted():
    loop = Loop(share=1.0)
    loop.put_off("in time", left=9.0)
    loop.put_off("late", left=0.0)
    await eventually(lambda: loop.refusals.ended)
    assert (loop.refusals.forgotten, loop.refusals.ended) == (["late"], ["in time"])


async def test_beyond_the_most_refusals_are_sent_at_once():
    loop = Loop(share=1.0, most=2)
    assert [loop.put_off(str(number)) for number in range(3)] == [True, True, False]


async def test_the_share_of_a_loop_is_what_its_thread_computes(monkeypatch: pytest.MonkeyPatch):
    wall, cpu = [0.0], [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: wall[0])
    monkeypatch.setattr(time, "thread_time", lambda: cpu[0])
    share = LoopShare()
    wall[0], cpu[0] = 1.0, 0.25
    assert share() == 0.25
    wall[0], cpu[0] = 1.001, 0.251
    assert share() == 0.25  # too soon to measure again
    wall[0], cpu[0] = 2.0, 1.25
    assert share() == pytest.approx(1.0, abs=0.01)
    await asyncio.sleep(0)


async def test_the_refusal_of_a_call_of_http_is_never_put_off():
    assert not Loop(share=1.0).put_off("http", sender=OWN_GATEWAY)
