"""The requests in flight in each model, and the gate that admits new ones while the server serves."""

from __future__ import annotations

import asyncio
import time
from contextvars import ContextVar
from typing import Any

from lingon.errors import Draining

ROUND = 0.005  # seconds between two looks whether latecomers still arrive
QUIET_ROUNDS = 10  # rounds without a latecomer after which no more are expected
_UNLOADED = "unloaded"


class Awaited:
    """What has to end, such as calls, and the wait until all of it has. Belongs to the event loop."""

    def __init__(self) -> None:
        self.all: set[Any] = set()
        self._empty = asyncio.Event()

    def discard(self, each: object) -> bool:
        """Wait for it no longer; returns whether it was waited for."""
        known = each in self.all
        self.all.discard(each)
        if not self.all:
            self._empty.set()
        return known

    async def wait_until_empty(self, seconds: float) -> bool:
        """Wait until nothing is left, for so many seconds at most; returns whether nothing is."""
        try:
            async with asyncio.timeout(seconds):
                while self.all:
                    self._empty.clear()
                    await self._empty.wait()
        except TimeoutError:
            return False
        return True


class InFlight:
    """The requests in flight in one model, each an asyncio task. Belongs to the event loop."""

    def __init__(self) -> None:
        self._tasks = Awaited()

    @property
    def count(self) -> int:
        """Requests in flight."""
        return len(self._tasks.all)

    def __enter__(self) -> None:
        """Count the current task as a request in flight until the end of the block."""
        task = asyncio.current_task()
        assert task is not None, "every request has a task"
        self._tasks.all.add(task)

    def __exit__(self, *_: object) -> None:
        self._tasks.discard(asyncio.current_task())

    async def wait_until_idle(self, seconds: float) -> bool:
        """Wait until no request is in flight, for so many seconds at most; returns whether none is."""
        return await self._tasks.wait_until_empty(seconds)

    def cancel_all(self) -> None:
        """Cancel all requests in flight; `was_unloaded` recognises the error that they see."""
        for task in self._tasks.all:
            task.cancel(_UNLOADED)


def was_unloaded(error: asyncio.CancelledError) -> bool:
    """Whether `InFlight.cancel_all` cancelled a request, and not its caller."""
    return error.args == (_UNLOADED,)


class Arrived:
    """A call that arrived while the gate was open, until its request is read; a drain waits for it."""

    def __init__(self, unread: Awaited) -> None:
        self._unread = unread
        unread.all.add(self)

    def end(self) -> bool:
        """Wait for the call no longer; returns whether the gate would still have admitted it."""
        return self._unread.discard(self)


arrived: ContextVar[Arrived | None] = ContextVar("arrived", default=None)
"""The call of the current task; None for one that the gate does not know."""


class AdmissionGate:
    """Refuses requests until the server is ready, and again when it drains."""

    def __init__(self) -> None:
        self._closed: str | None = "the server is starting"
        self._refused = 0
        self._unread = Awaited()

    def arrive(self) -> Arrived:
        """Return a call that `admit` will admit though the gate closes; call it after `check`."""
        return Arrived(self._unread)

    def admit(self) -> None:
        """Admit the call of the current task, whose request is read; raises Draining if it arrived too late."""
        call = arrived.get()
        if call is None or not call.end():
            self.check()

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

    async def wait_until_read(self, seconds: float) -> bool:
        """Wait until every call that arrived at the open gate is read, for so many seconds at most.

        Those that are not read by then are not admitted. Returns whether all are read.
        """
        read = await self._unread.wait_until_empty(seconds)
        self._unread.all.clear()
        return read

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
