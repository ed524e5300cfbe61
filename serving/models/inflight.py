"""How many requests are inside, and whether more are let in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lingon.errors import Draining

ROUND = 0.005  # seconds
QUIET_ROUNDS = 10
_DISMISSED = "dismissed"


class InFlight:
    """The requests that are inside, each a task; on the event loop only."""

    def __init__(self) -> None:
        self._inside: set[asyncio.Task[Any]] = set()
        self._left = asyncio.Event()

    @property
    def inside(self) -> int:
        """How many there are."""
        return len(self._inside)

    @contextmanager
    def passing(self) -> Iterator[None]:
        """A request on its way through."""
        visitor = asyncio.current_task()
        assert visitor is not None, "a request is served by a task of its own"
        self._inside.add(visitor)
        try:
            yield
        finally:
            self._inside.discard(visitor)
            self._left.set()

    async def empty(self, seconds: float) -> bool:
        """Wait until nobody is inside, for so many seconds at most; returns whether nobody is."""
        try:
            async with asyncio.timeout(seconds):
                while self.inside:
                    self._left.clear()
                    await self._left.wait()
        except TimeoutError:
            return False
        return True

    def dismiss(self) -> None:
        """Cancel whoever is inside; see `was_dismissed`."""
        for visitor in self._inside:
            visitor.cancel(_DISMISSED)


def was_dismissed(error: asyncio.CancelledError) -> bool:
    """Whether it was by us, and not by its caller, that a request was cancelled."""
    return error.args == (_DISMISSED,)


class AdmissionGate(InFlight):
    """Closed until the server is ready and again when it goes."""

    def __init__(self) -> None:
        super().__init__()
        self._closed: str | None = "the server is starting"
        self._refused = 0

    @contextmanager
    def passing(self) -> Iterator[None]:
        """A request on its way through; raises Draining where the gate is closed."""
        self.check()
        with super().passing():
            yield

    def check(self) -> None:
        """Raises Draining where the gate is closed."""
        if self._closed is not None:
            self._refused += 1
            raise Draining(f"{self._closed}; try again")

    def open(self) -> None:
        """Let requests in."""
        self._closed = None

    def close(self) -> None:
        """Let no more requests in."""
        self._closed = "the server is shutting down"

    async def quiet(self, seconds: float) -> None:
        """Wait until nobody comes to the closed gate any more, for so many seconds at most.

        gRPC hands over one call at a time. Those of a burst that it has not handed over when it is stopped would end
        with CANCELLED, which nobody tries again. Rounds are counted rather than time: on a busy machine they last.
        """
        end, rounds = time.monotonic() + seconds, 0
        while rounds < QUIET_ROUNDS and time.monotonic() < end:
            before = self._refused
            await asyncio.sleep(ROUND)
            rounds = rounds + 1 if self._refused == before else 0
