"""From the engine's thread to the event loop: one queue, one wake-up for all that came since the last."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from lingon.serving.observability.logs import fault

logger = logging.getLogger(__name__)


class Bridge:
    """Calls handlers on the loop with values posted from other threads, in the order they were posted.

    Waking the loop costs a system call; at hundreds of tokens a millisecond one for each would be most of the work.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._posted: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._woken = False

    def post(self, handler: Callable[[Any], None], value: Any) -> None:
        """Have handler(value) called on the loop; from any thread. After the loop has closed nobody listens."""
        self._posted.append((handler, value))
        if not self._woken and not self._loop.is_closed():
            self._woken = True
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._woken = False  # before looking: what is posted from here on wakes the loop again
        while self._posted:
            handler, value = self._posted.popleft()
            try:
                handler(value)
            except Exception as error:
                fault(logger, "what an engine posted failed", error)
