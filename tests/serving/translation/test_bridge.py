"""What engines post arrives on the event loop, in order, whatever becomes of one of them."""

from __future__ import annotations

import asyncio
from typing import Any

from lingon.serving.translation.engine_client import Bridge


async def test_a_handler_that_fails_keeps_nobody_elses_answer_back() -> None:
    came: list[int] = []

    def take(value: Any) -> None:
        if value == 1:
            raise RuntimeError("planted")
        came.append(value)

    bridge = Bridge(asyncio.get_running_loop())
    for value in range(4):
        bridge.post(take, value)
    await asyncio.sleep(0.05)
    assert came == [0, 2, 3]
