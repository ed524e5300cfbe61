"""The requests in flight in each model, and the gate that admits new ones while the server serves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
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
    """A call that has arrived, as the gate and the reader of its request know it.

    It has no reference to the call itself: the context of a task holds it, and gRPC holds the context of a task.

    release: gives the place free that the call has from its start until its request is read; None without a place
    """

    release: Callable[[], None] | None = None

    def leave_place(self) -> None:
        """Let another call be read instead of this one; does nothing the second time."""
        release, self.release = self.release, None
        if release is not None:
            release()


arrived: ContextVar[Arrived | None] = ContextVar("arrived", default=None)
"""The call that this task serves; None for one that was not decided on when it arrived."""


class AdmissionGate:
    """Refuses requests until the server is ready, and again when it drains."""

    def __init__(self) -> None:
        self._closed: str | None = "the server is starting"
        self._refused = 0
        self._admitted = Awaited()

    def enter(self, call: Arrived) -> None:
        """Admit a call, until it `leave`s, though the gate closes; call it after `check`."""
        self._admitted.all.add(call)

    def leave(self, call: Arrived) -> None:
        """Have a drain wait for a call no longer: it has ended, or its request arrives slowly."""
        self._admitted.discard(call)

    def check(self) -> None:
        """Raise Draining while the gate is closed, unless it has admitted the call of this task."""
        if self._closed is not None and arrived.get() not in self._admitted.all:
            self._refused += 1
            raise Draining(f"{self._closed}; try again")

    def open(self) -> None:
        """Admit requests."""
        self._closed = None

    def close(self) -> None:
        """Refuse all later requests."""
        self._closed = "the server is shutting down"

    async def wait_until_left(self, seconds: float) -> bool:
        """Wait until every call that the open gate has admitted has ended, for so many seconds at most.

        Those whose requests are not read by then are refused. Returns whether all have ended.
        """
        ended = await self._admitted.wait_until_empty(seconds)
        self._admitted.all.clear()
        return ended

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
