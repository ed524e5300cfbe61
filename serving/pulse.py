"""How late the event loop is: what a call waits before anybody looks at it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

BEAT = 0.05  # seconds between two measurements


async def measure_lag(observe: Callable[[float], None]) -> None:
    """Tell by how many seconds the loop is late, again and again until cancelled."""
    while True:
        due = time.monotonic() + BEAT
        await asyncio.sleep(BEAT)
        observe(max(time.monotonic() - due, 0.0))
