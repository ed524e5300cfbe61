"""Whether requests are let in, and how many are inside."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from lingon.errors import Draining


class Gate:
    """Closed until the server is ready and again when it goes; on the event loop only."""

    def __init__(self) -> None:
        self._closed: str | None = "the server is starting"
        self._inside = 0
        self._left = asyncio.Event()

    @contextmanager
    def passing(self) -> Iterator[None]:
        """A request on its way through; raises Draining where the gate is closed."""
        if self._closed is not None:
            raise Draining(f"{self._closed}; try again")
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1
            self._left.set()

    def open(self) -> None:
        """Let requests in."""
        self._closed = None

    def close(self) -> None:
        """Let no more requests in."""
        self._closed = "the server is shutting down"

    async def empty(self, seconds: float) -> bool:
        """Wait until nobody is inside, for so many seconds at most; returns whether nobody is."""
        try:
            async with asyncio.timeout(seconds):
                while self._inside:
                    self._left.clear()
                    await self._left.wait()
        except TimeoutError:
            return False
        return True
