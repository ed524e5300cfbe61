"""Recovery of engines that die or hang: a dead one is restarted, a hung one ends the process."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque

from lingon.serving.engine.engine import Engine
from lingon.serving.models.catalog import Entry
from lingon.serving.models.registry import ServedModel
from lingon.serving.observability.logs import event, fault
from lingon.serving.threads import run_in_thread

MINUTE = 60.0  # seconds; restarts are counted over this time
MAX_RESTARTS = 3  # restarts of a model's engine within MINUTE; one more ends the process
POLL = 0.1  # seconds between two checks of a replaced engine
logger = logging.getLogger(__name__)


class Supervisor:
    """The restarts of engines, counted for each model. An engine that dies of every request ends the server."""

    def __init__(self, hang_seconds: float) -> None:
        """hang_seconds: duration of a step of a worker from which on it hangs."""
        self._hang_seconds = hang_seconds
        self._restarts: dict[str, deque[float]] = {}
        self._endings: set[asyncio.Task[None]] = set()
        self._replaced: set[Engine] = set()  # their surviving workers may still hold jobs

    def needs_restart(self, entry: Entry[ServedModel]) -> bool:
        """Return whether the engine of a model is dead or hangs."""
        engine = entry.model.translator.engine
        return not engine.healthy or engine.step_seconds > self._hang_seconds

    async def recover(self, entry: Entry[ServedModel]) -> bool:
        """Restart the engine of a model unless it was stopped. Returns False if the process has to end instead."""
        async with entry.model.unless_stopped() as running:
            return not running or await self._recover(entry)

    async def _recover(self, entry: Entry[ServedModel]) -> bool:
        engine = entry.model.translator.engine
        cause = "death" if not engine.healthy else "hang"
        entry.model.metrics.restarted(cause)
        if cause == "hang":  # the thread cannot be ended, and may hold resources of a new engine
            event(logger, logging.ERROR, "an engine hangs", model=entry.label, seconds=round(engine.step_seconds, 1))
            engine.fail_all()
            return False
        if not self._may_restart(entry.label):
            return False
        self._replaced.add(engine)
        try:
            async with asyncio.timeout(self._hang_seconds):
                await run_in_thread(entry.model.translator.restart, "restart")
        except Exception as error:
            fault(logger, "an engine does not start again", error, model=entry.label)
            return False
        event(logger, logging.WARNING, "an engine was restarted", model=entry.label)
        ending = asyncio.create_task(self._end(engine))
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)
        return True

    def _may_restart(self, label: str) -> bool:
        """Count a restart and return True, or return False if there were too many within a minute."""
        recent = self._restarts.setdefault(label, deque())
        while recent and recent[0] < time.monotonic() - MINUTE:
            recent.popleft()
        if len(recent) >= MAX_RESTARTS:
            event(logger, logging.ERROR, "an engine died too often", model=label, restarts=len(recent))
            return False
        recent.append(time.monotonic())
        return True

    async def _end(self, engine: Engine) -> None:
        """Let surviving workers finish their jobs, for as long as a step may take, and fail the others."""
        end = time.monotonic() + self._hang_seconds
        while not engine.idle and time.monotonic() < end:  # noqa: ASYNC110
            await asyncio.sleep(POLL)
        engine.fail_all()
        self._replaced.discard(engine)

    def fail_all(self) -> None:
        """Fail all jobs of engines that were or are being replaced."""
        for engine in self._replaced:
            engine.fail_all()
