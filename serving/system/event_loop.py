"""The lag of the event loop, which delays every call, and pauses in long work on the loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

MAX_SLICE = 0.005  # seconds that one task may work on the event loop before it yields
BEAT_INTERVAL = 0.05  # seconds between two measurements of the lag


class LagMonitor:
    """Measures the lag of one event loop; `seconds_since_beat` may be called from any thread."""

    def __init__(self) -> None:
        self._last_beat = time.monotonic()

    async def measure(self, observe: Callable[[float], None]) -> None:
        """Call `observe` with the lag of the loop in seconds, every BEAT_INTERVAL, until cancelled."""
        while True:
            self._last_beat = time.monotonic()
            await asyncio.sleep(BEAT_INTERVAL)
            observe(max(time.monotonic() - self._last_beat - BEAT_INTERVAL, 0.0))

    def seconds_since_beat(self) -> float:
        """Seconds since the loop last ran `measure`."""
        return time.monotonic() - self._last_beat


class TimeSlice:
    """Divides long work on the event loop into short slices, so that other tasks can run between them."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    async def yield_if_due(self) -> None:
        """Let other tasks run if the current slice is longer than MAX_SLICE."""
        if time.monotonic() - self._start > MAX_SLICE:
            await asyncio.sleep(0)
            self._start = time.monotonic()
