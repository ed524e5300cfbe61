"""The requests in flight in each model, and the gate that admits new ones while the server serves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from lingon.errors import Draining

ROUND = 0.005  # seconds between two checks for late requests
QUIET_ROUNDS = 10  # rounds without a late request until none is expected
_UNLOADED = "unloaded"


class Awaited:
    """Objects that have to end, such as calls, and the wait for their end. Belongs to the event loop."""

    def __init__(self) -> None:
        self.all: set[Any] = set()
        self._empty = asyncio.Event()

    def discard(self, each: object) -> bool:
        """Remove an object and return whether it was present."""
        known = each in self.all
        self.all.discard(each)
        if not self.all:
            self._empty.set()
        return known

    async def wait_until_empty(self, seconds: float) -> bool:
        """Wait until nothing is left, for at most so many seconds, and return whether nothing is left."""
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
        return len(self._tasks.all)

    def __enter__(self) -> None:
        """Count the current task as a request in flight until the end of the block."""
        task = asyncio.current_task()
        assert task is not None, "every request has a task"
        self._tasks.all.add(task)

    def __exit__(self, *_: object) -> None:
        self._tasks.discard(asyncio.current_task())

    async def wait_until_idle(self, seconds: float) -> bool:
        """Wait until no request is in flight, for at most so many seconds, and return whether none is."""
        return await self._tasks.wait_until_empty(seconds)

    def cancel_all(self) -> None:
        """Cancel all requests in flight. `was_unloaded` recognises the error in them."""
        for task in self._tasks.all:
            task.cancel(_UNLOADED)


def was_unloaded(error: asyncio.CancelledError) -> bool:
    """Return whether `InFlight.cancel_all` cancelled a request, and not its caller."""
    return error.args == (_UNLOADED,)


class Arrived:
    """A call that has arrived, for the gate and the reader of its request.

    It has no reference to the call itself, because the context of a task holds it, and gRPC holds the context of a
    task.

    release: frees the slot of the call from its start until its request is read; None without a slot
    """

    release: Callable[[], None] | None = None

    def leave_slot(self) -> None:
        """Free the slot for another call. A second call has no effect."""
        release, self.release = self.release, None
        if release is not None:
            release()


arrived: ContextVar[Arrived | None] = ContextVar("arrived", default=None)
"""The call that this task serves; None if it was not admitted on arrival."""


class AdmissionGate:
    """A gate that refuses requests until the server is ready, and again when it drains."""

    def __init__(self) -> None:
        self._closed: str | None = "the server is starting"
        self._refused = 0
        self._admitted = Awaited()
        self._on_close: set[Callable[[], None]] = set()

    def enter(self, call: Arrived) -> None:
        """Admit a call until it `leave`s, even if the gate closes meanwhile. Call this after `check`."""
        self._admitted.all.add(call)

    def leave(self, call: Arrived) -> None:
        """Exclude a call from the wait of a drain, because it has ended or its request arrives slowly."""
        self._admitted.discard(call)

    def check(self) -> None:
        """Raise Draining while the gate is closed, unless it has admitted the call of this task."""
        if self._closed is not None and arrived.get() not in self._admitted.all:
            self._refused += 1
            raise Draining(f"{self._closed}; try again")

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Admit a call for the block, so that a drain waits for its end. Raises Draining while the gate is closed.

        For calls that are not admitted on arrival.
        """
        self.check()
        call = Arrived()
        self.enter(call)
        try:
            yield
        finally:
            self.leave(call)

    @contextmanager
    def on_close(self, callback: Callable[[], None]) -> Iterator[None]:
        """Call a function when the gate closes during the block, so that a call without an end of its own ends."""
        self._on_close.add(callback)
        try:
            yield
        finally:
            self._on_close.discard(callback)

    def open(self) -> None:
        self._closed = None

    def close(self) -> None:
        """Refuse all later requests."""
        self._closed = "the server is shutting down"
        for callback in tuple(self._on_close):
            callback()

    async def wait_until_left(self, seconds: float) -> bool:
        """Wait until every call that the open gate has admitted has ended, for at most so many seconds.

        Calls whose requests are not read by then are refused. Returns whether all have ended.
        """
        ended = await self._admitted.wait_until_empty(seconds)
        self._admitted.all.clear()
        return ended

    async def wait_until_quiet(self, seconds: float) -> None:
        """Wait until no request arrives at the closed gate any more, for at most so many seconds.

        gRPC passes on one call at a time. Calls of a burst that it has not passed on when it is stopped would end with
        CANCELLED, which no client retries. Rounds are counted instead of time, because a busy machine makes them
        longer.
        """
        end, rounds = time.monotonic() + seconds, 0
        while rounds < QUIET_ROUNDS and time.monotonic() < end:
            before = self._refused
            await asyncio.sleep(ROUND)
            rounds = rounds + 1 if self._refused == before else 0
