"""The requests in flight in each model, and the gate that admits new ones while the server serves."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from lingon.errors import Draining

ROUND = 0.005  # seconds between two looks whether latecomers still arrive
QUIET_ROUNDS = 10  # rounds without a latecomer after which no more are expected
_UNLOADED = "unloaded"


class InFlight:
    """The requests in flight in one model, each an asyncio task. Belongs to the event loop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._changed = asyncio.Event()

    @property
    def count(self) -> int:
        """Requests in flight."""
        return len(self._tasks)

    def __enter__(self) -> None:
        """Count the current task as a request in flight until the end of the block."""
        task = asyncio.current_task()
        assert task is not None, "every request has a task"
        self._tasks.add(task)

    def __exit__(self, *_: object) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.discard(task)
        if not self._tasks:
            self._changed.set()

    async def wait_until_idle(self, seconds: float) -> bool:
        """Wait until no request is in flight, for so many seconds at most; returns whether none is."""
        try:
            async with asyncio.timeout(seconds):
                while self._tasks:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def cancel_all(self) -> None:
        """Cancel all requests in flight; `was_unloaded` recognises the error that they see."""
        for task in self._tasks:
            task.cancel(_UNLOADED)


def was_unloaded(error: asyncio.CancelledError) -> bool:
    """Whether `InFlight.cancel_all` cancelled a request, and not its caller."""
    return error.args == (_UNLOADED,)


class AdmissionGate:
    """Refuses requests until the server is ready, and again when it drains."""

    def __init__(self) -> None:
        self._closed: str | None = "the server is starting"
        self._refused = 0

    def check(self) -> None:
        """Raise Draining while the gate is closed."""
        if self._closed is not None:
            self._refused += 1
            raise Draining(f"{self._closed}; try again")

    def open(self) -> None:
        """Admit requests."""
        self._closed = None

    def close(self) -> None:
        """Refuse all later requests."""
        self._closed = "the server is shutting down"

    async def wait_until_quiet(self, seconds: float) -> None:
        """Wait until no request arrives at the closed gate any more, for so many seconds at most.

        gRPC hands over one call at a time. The calls of a burst that it has not handed over when it is stopped would
        end with CANCELLED, which no client retries. Rounds are counted instead of time, because a busy machine makes
        them longer.
        """
        end, rounds = time.monotonic() + seconds, 0
        while rounds < QUIET_ROUNDS and time.monotonic() < end:
            before = self._refused
            await asyncio.sleep(ROUND)
            rounds = rounds + 1 if self._refused == before else 0
