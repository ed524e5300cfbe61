"""Values that engine threads post arrive on the event loop in order, and end the jobs of a request."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any, cast

from lingon.errors import Cancelled
from lingon.serving.decoding.job import Job, Options
from lingon.serving.engine.engine import Engine
from lingon.serving.translation.engine_client import EngineClient, LoopCallbacks
from lingon.serving.translation.valid_utf8 import ValidUtf8
from tests.support.echo_engine import vocabulary


async def test_a_callback_that_raises_does_not_stop_the_others() -> None:
    received: list[int] = []

    def receive(value: Any) -> None:
        if value == 1:
            raise RuntimeError("injected")
        received.append(value)

    callbacks = LoopCallbacks(asyncio.get_running_loop())
    for value in range(4):
        callbacks.post(receive, value)
    await asyncio.sleep(0.05)
    assert received == [0, 2, 3]


async def test_all_requests_of_an_event_loop_share_its_callbacks() -> None:
    loop = asyncio.get_running_loop()
    assert LoopCallbacks.of(loop) is LoopCallbacks.of(loop)
    other = asyncio.new_event_loop()
    assert LoopCallbacks.of(other) is not LoopCallbacks.of(loop)
    other.close()


class HeldEngine:
    """Takes jobs, and ends those that are cancelled."""

    def submit(self, jobs: Sequence[Job]) -> None:
        """Keep none: they end when they are cancelled."""

    def cancel(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            job.on_done(Cancelled("cancelled"))


async def _calls_to_cancel(jobs: int) -> int:
    """How many functions are called while a request with so many jobs is cancelled."""
    client = EngineClient(cast(Engine, HeldEngine()), ValidUtf8(vocabulary()), None)
    pending = [client.decode((5, 2), Options(beam_size=1, max_output_tokens=9)) for _ in range(jobs)]
    client.submit(pending)
    calls = 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        client.cancel_all()
        await asyncio.sleep(0)
    finally:
        sys.setprofile(None)
    assert all(isinstance(each.outcome.result(), Cancelled) for each in pending)
    return calls


async def test_the_work_to_cancel_a_request_grows_with_its_jobs_and_not_with_their_square() -> None:
    """Otherwise the event loop stands still for seconds when a request with thousands of sentences is cancelled."""
    assert await _calls_to_cancel(400) < 6 * await _calls_to_cancel(100)
