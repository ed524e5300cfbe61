"""Wait until a condition holds, on the event loop or in a thread; AssertionError when it does not hold in time."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

SECONDS = 10.0  # seconds that a test waits for a condition, if it names no other bound
PAUSE = 0.005  # seconds between two checks of a condition


async def eventually(condition: Callable[[], Any], seconds: float = SECONDS) -> None:
    """Check until the condition holds; the condition may be a coroutine function."""
    end = time.monotonic() + seconds
    while True:
        result = condition()
        if await result if inspect.isawaitable(result) else result:
            return
        assert time.monotonic() < end, f"the condition does not hold after {seconds:g} s"
        await asyncio.sleep(PAUSE)


def eventually_blocking(
    condition: Callable[[], Any],
    seconds: float = SECONDS,
    *,
    pause: float = PAUSE,
    ignoring: tuple[type[Exception], ...] = (),
) -> None:
    """Like `eventually`, for tests without an event loop; a check that raises one of `ignoring` is repeated."""
    end = time.monotonic() + seconds
    while True:
        with suppress(*ignoring):
            if condition():
                return
        assert time.monotonic() < end, f"the condition does not hold after {seconds:g} s"
        time.sleep(pause)
