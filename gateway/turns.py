"""Turns of work that many connections have to do, so that other work of the event loop is done in between."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

TURN_SECONDS = 0.005  # for all turns of one iteration of the event loop


class Turns:
    """Calls what waits for its turn, in the order of arrival. Belongs to the event loop."""

    def __init__(self) -> None:
        self._waiting = deque[Callable[[], None]]()

    def wait(self, turn: Callable[[], None]) -> None:
        """Call a function when it is its turn, not before the next iteration of the event loop."""
        self._waiting.append(turn)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._take)

    def _take(self) -> None:
        end = time.monotonic() + TURN_SECONDS
        for _ in range(len(self._waiting)):  # those that wait again come in the next iteration
            self._waiting[0]()
            self._waiting.popleft()
            if time.monotonic() > end:
                break
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._take)
