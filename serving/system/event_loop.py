"""How late the event loop is: what a call waits before anybody looks at it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

SLICE = 0.005  # seconds that planning keeps the event loop from others

BEAT = 0.05  # seconds between two measurements


class LagMonitor:
    """Of one event loop; whether it still beats can be asked from any thread."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    async def measure(self, observe: Callable[[float], None]) -> None:
        """Tell by how many seconds the loop is late, again and again until cancelled."""
        while True:
            self._last = time.monotonic()
            await asyncio.sleep(BEAT)
            observe(max(time.monotonic() - self._last - BEAT, 0.0))

    def silent(self) -> float:
        """Seconds since the loop was last seen running."""
        return time.monotonic() - self._last


class TimeSlice:
    """Lets the event loop serve others while much is planned."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    async def take(self) -> None:
        """Pause if the last pause was long ago."""
        if time.monotonic() - self._since > SLICE:
            await asyncio.sleep(0)
            self._since = time.monotonic()
