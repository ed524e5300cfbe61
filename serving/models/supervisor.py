"""Looks after engines: one that died is started anew, one that hangs is given up, and everybody gets an answer."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque

from lingon.serving.engine.engine import Engine
from lingon.serving.models.catalog import Entry
from lingon.serving.models.registry import ServedModel
from lingon.serving.observability.logs import event, fault
from lingon.serving.system.threads import run_in_thread

MINUTE = 60.0
LOOK = 0.1  # seconds between two looks at an engine that ends
logger = logging.getLogger(__name__)


class Supervisor:
    """Remembers how often engines were started anew, so that one that dies of every request ends the server."""

    def __init__(self, hang_seconds: float, max_restarts: int) -> None:
        """hang_seconds: of one turn; max_restarts: of a model's engine within a minute."""
        self._hang_seconds, self._max_restarts = hang_seconds, max_restarts
        self._restarts: dict[str, deque[float]] = {}
        self._farewells: set[asyncio.Task[None]] = set()
        self._replaced: set[Engine] = set()  # whose workers that live may have jobs yet

    def sick(self, entry: Entry[ServedModel]) -> bool:
        """Whether the engine of a model is dead or hangs."""
        engine = entry.model.translator.engine
        return not engine.healthy or engine.turn_seconds > self._hang_seconds

    async def heal(self, entry: Entry[ServedModel]) -> bool:
        """Start a sick engine anew; False where the process has to end instead.

        A thread that hangs in a graph cannot be ended, and may hold what its restarted would need.
        """
        engine = entry.model.translator.engine
        cause = "death" if not engine.healthy else "hang"
        entry.model.metrics.restarted(cause)
        if cause == "hang":
            event(logger, logging.ERROR, "an engine hangs", model=entry.label, seconds=round(engine.turn_seconds, 1))
            engine.abandon()
            return False
        lately = self._restarts.setdefault(entry.label, deque())
        while lately and lately[0] < time.monotonic() - MINUTE:
            lately.popleft()
        if len(lately) >= self._max_restarts:
            event(logger, logging.ERROR, "an engine died too often", model=entry.label, restarts=len(lately))
            return False
        lately.append(time.monotonic())
        self._replaced.add(engine)
        try:
            async with asyncio.timeout(self._hang_seconds):
                await run_in_thread(entry.model.translator.restart, "restart")
        except Exception as error:
            fault(logger, "an engine does not start again", error, model=entry.label)
            return False
        event(logger, logging.WARNING, "an engine was started anew", model=entry.label)
        farewell = asyncio.create_task(self._see_off(engine))
        self._farewells.add(farewell)
        farewell.add_done_callback(self._farewells.discard)
        return True

    async def _see_off(self, engine: Engine) -> None:
        """Of several workers those that live finish what they have, or their callers are told that they will not."""
        end = time.monotonic() + self._hang_seconds
        while not engine.idle and time.monotonic() < end:  # noqa: ASYNC110
            await asyncio.sleep(LOOK)
        engine.abandon()
        self._replaced.discard(engine)

    def give_up(self) -> None:
        """Have everybody answered who is with an engine that was started anew, or was to be."""
        for engine in self._replaced:
            engine.abandon()
