"""Puts off refusals while the event loop is busy, so that those of a flood of calls do not stop the translations.

A refusal takes a tenth of the time of a translation, and most of that inside gRPC. At ten times the capacity they would
take a whole core, and then every call waits inside gRPC until its deadline, the few that could be done in time as well.
A call that is put off is refused when there is time, the latest first, because its client still waits. When its
deadline has passed, its client has ended it already.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from lingon.errors import RequestError
from lingon.machine import usable_cores
from lingon.serving.auth.callers import is_of_own_gateway
from lingon.serving.models.inflight import Arrived
from lingon.serving.rpc.calls import Context, time_left

BUSY_SHARES = (0.25, 0.6)
"""The part of the time that the event loop may compute while all refusals are sent at once, on one core and on several.

On one core the loop takes a quarter of it to feed an engine that is always busy.
"""

SHARE_SECONDS = 0.02  # seconds over which that part is measured
ROUND_SECONDS = 0.01  # seconds between two looks whether there is time for refusals
MOST, LEAST = 16, 5  # refusals in a round, and those that are sent however busy the event loop is

Start = Callable[[], "asyncio.Task[Any]"]
"""Starts the handler of a call, in a copy of the current context."""


class Arrival(NamedTuple):
    """A call that has arrived; caller: the key of fair queuing; at: on the clock of `time.monotonic`.

    unread: what a drain waits for; None for a call that is refused at once
    """

    path: str
    context: Context
    caller: str
    start: Start
    at: float
    unread: Arrived | None = None


class Refusal(Protocol):
    """Decides on calls before they are read; see `lingon.serving.rpc.arrival.shedding.EarlyRefusal`."""

    def caller(self, path: str, context: Context) -> str | None:
        """Return who calls; None if the call needs no place."""

    def of_load(
        self, path: str, context: Context, caller: str, wait: float = 0.0, *, new: bool = True
    ) -> RequestError | None:
        """Return the error of a call that no engine would take; None if one might.

        new: whether it arrives now, so that it is refused while the server drains
        """

    def ending(self, arrival: Arrival, error: RequestError) -> Awaitable[None]:
        """Return what ends a call with an error, and count it."""

    def count(self, arrival: Arrival, error: RequestError) -> object:
        """Count, log and trace a call that ends with an error, without ending it."""

    def forget(self, arrival: Arrival) -> None:
        """Count a call whose deadline has passed."""


class LaterRefusals:
    """The refusals that are put off. Belongs to the event loop."""

    def __init__(self, refusal: Refusal, most: int, share: Callable[[], float] | None = None) -> None:
        """most: refusals that are put off at once; share: see `LoopShare`, which is the default."""
        self._refusal, self._most, self._share = refusal, most, share or LoopShare()
        self._busy = BUSY_SHARES[usable_cores() > 1]
        self._calls: deque[tuple[Arrival, RequestError]] = deque()  # the oldest first
        self._work: asyncio.Task[None] | None = None

    def put_off(self, arrival: Arrival, error: RequestError) -> bool:
        """Keep a call to refuse it later; returns False if it is to be refused at once."""
        if len(self._calls) >= self._most or self._share() < self._busy:
            return False
        if is_of_own_gateway(arrival.context):  # nothing of gRPC is spent on it, and its client closes its connection
            return False
        self._calls.append((arrival, error))
        if self._work is None:
            self._work = asyncio.get_running_loop().create_task(self._refuse_all())
        return True

    async def _refuse_all(self) -> None:
        while self._calls:
            await asyncio.sleep(ROUND_SECONDS)
            self._drop_late()
            for number in range(MOST):
                if not self._calls or (number >= LEAST and self._share() >= self._busy):
                    break
                arrival, error = self._calls.pop()
                if _is_late(arrival.context):
                    self._refusal.forget(arrival)
                    continue
                with suppress(Exception):  # it always raises
                    await self._refusal.ending(arrival, error)
        self._work = None

    def _drop_late(self) -> None:
        """Count and forget calls whose deadline has passed: gRPC cancels them, and no client waits for a status."""
        while self._calls and _is_late(self._calls[0][0].context):
            arrival, _ = self._calls.popleft()
            self._refusal.forget(arrival)


def _is_late(context: Context) -> bool:
    left = time_left(context)
    return left is not None and left <= 0


class LoopShare:
    """The part of the time that the thread of the event loop computes, over the last SHARE_SECONDS."""

    def __init__(self) -> None:
        self._share, self._wall, self._cpu = 0.0, time.monotonic(), time.thread_time()

    def __call__(self) -> float:
        """Return the part, from 0 to 1; called on the thread of the event loop."""
        elapsed = (now := time.monotonic()) - self._wall
        if elapsed >= SHARE_SECONDS:
            cpu = time.thread_time()
            self._share, self._wall, self._cpu = (cpu - self._cpu) / elapsed, now, cpu
        return self._share
