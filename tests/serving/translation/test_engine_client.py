"""Values that engine threads post arrive on the event loop in order, even if a callback raises."""

from __future__ import annotations

import asyncio
from typing import Any

from lingon.serving.translation.engine_client import LoopCallbacks


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
