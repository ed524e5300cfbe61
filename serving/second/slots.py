"""The questions that are open at once. Callers take turns when there are more."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairSlots:
    """A bounded number of slots for one event loop, which are given to waiting callers in rotation.

    A caller with a thousand sentences waits for its own ones, and one with a single sentence for one of each other.
    """

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()  # the next caller first

    @asynccontextmanager
    async def of(self, caller: str) -> AsyncIterator[None]:
        """Hold a slot inside the block, after waiting for it."""
        await self._acquire(caller)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, caller: str) -> None:
        if self._free and not self._waiting:
            self._free -= 1
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(granted)
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():  # the slot came together with the cancellation
                self._release()
            raise

    def _release(self) -> None:
        """Give a slot to the next caller that waits, or keep it free."""
        while self._waiting:
            caller, own = self._waiting.popitem(last=False)
            granted = own.popleft()
            if own:
                self._waiting[caller] = own  # behind the others
            if not granted.cancelled():
                granted.set_result(None)
                return
        self._free += 1
