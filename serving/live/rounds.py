"""Rounds: the updates of many speakers begin together, so that the engine decodes them together.

Alone a draft takes 0.8 ms of the engine's CPU time, of which most is the same for a few more: a step of the decoder
takes 83 us for one row and 97 us for four. Words come at any time, so that few jobs would meet in the engine by chance.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

MOST_SECONDS = 0.04  # seconds that words wait for those of other speakers, a tenth of the time of a spoken word
SECONDS_A_SPEAKER = 0.0008  # seconds of them for each other speaker, because few have little to share


class Rounds:
    """The rounds of all speakers of a server. Belongs to the event loop.

    speakers: the number of those inside `speaking`
    """

    def __init__(self, most_seconds: float = MOST_SECONDS) -> None:
        """most_seconds: that words wait for those of other speakers; 0 lets each update begin at once."""
        self._most_seconds, self.speakers = most_seconds, 0
        self._next: asyncio.Event | None = None  # the begin of the round that collects updates, if there is one

    @property
    def seconds(self) -> float:
        """The seconds from the first update of a round to its begin."""
        return min(self._most_seconds, SECONDS_A_SPEAKER * max(self.speakers - 1, 0))

    @contextmanager
    def speaking(self) -> Iterator[None]:
        """Count a speaker inside the context."""
        self.speakers += 1
        try:
            yield
        finally:
            self.speakers -= 1

    async def begin(self) -> None:
        """Wait until an update may begin. Those of a round then run in the same iteration of the event loop."""
        if self._next is None:
            if not self.seconds:
                return
            self._next = asyncio.Event()
            asyncio.get_running_loop().call_later(self.seconds, self._begin)
        await self._next.wait()

    def _begin(self) -> None:
        assert self._next is not None, "a round begins once"
        self._next.set()
        self._next = None
