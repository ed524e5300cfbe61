"""Calls that have arrived: each is refused at once, read at once, or waits until others are read.

Reading a request, planning its texts and queueing them take some steps of the event loop. If all calls that arrive
take them together, each step waits for the steps of all others: above capacity every call reaches the engine too late,
though each would have been in time alone. At most PLACES calls are between their start and the queue of the engine. The
others wait here, unread, in fair order between their callers; nothing was spent on a call that ends here.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar, copy_context
from typing import Any, NamedTuple, Protocol

from lingon.errors import QueueFull
from lingon.serving.engine.fair_queue import FairQueue
from lingon.serving.rpc.calls import Context

PLACES = 16
"""Calls that are read at once: enough for an iteration of the event loop, and few enough that each is read soon."""

AT_ONCE = 64  # waiting calls that are started or refused before other callbacks of the event loop run
INTERVAL_WEIGHT = 0.02  # weight of the latest interval in the average
LONGEST_INTERVAL = 0.1  # seconds; a longer one says nothing of the next

Start = Callable[[], "asyncio.Task[Any]"]
"""Starts the handler of a call, in a copy of the current context."""


class Refusal(Protocol):
    """Decides on calls before they are read; see `lingon.serving.rpc.arrival.shedding.EarlyRefusal`."""

    def caller(self, path: str, context: Context) -> str | None:
        """Return who calls; None if the call needs no place."""

    def of_load(self, path: str, context: Context, caller: str, wait: float = 0.0) -> Awaitable[None] | None:
        """Return what ends a call that no engine would take; None if one might."""

    def ending(self, path: str, context: Context, caller: str, error: QueueFull) -> Awaitable[None]:
        """Return what ends a call with an error."""


class Place:
    """What a call holds from its start until its request is read."""

    def __init__(self, release: Callable[[], None]) -> None:
        self._release: Callable[[], None] | None = release

    def leave(self) -> None:
        """Let another call take the place; does nothing the second time."""
        release, self._release = self._release, None
        if release is not None:
            release()


_place: ContextVar[Place | None] = ContextVar("place", default=None)


def leave_place() -> None:
    """Leave the place of the call that this task serves, if it has one."""
    place = _place.get()
    if place is not None:
        place.leave()


class _Arrival(NamedTuple):
    path: str
    context: Context
    caller: str
    start: Start
    at: float  # on the clock of `time.monotonic`


class Arrivals:
    """The calls of a port that wait to be read. Belongs to the event loop."""

    def __init__(
        self, refusal: Refusal, most: int, observe_wait: Callable[[float], None] = lambda seconds: None
    ) -> None:
        """most: calls that wait at once; observe_wait: called with the seconds that a call waited until its start."""
        self._refusal, self._most, self._observe_wait = refusal, most, observe_wait
        self._waiting: dict[str, deque[_Arrival]] = {}  # by caller, the oldest first
        self._order: FairQueue[str] = FairQueue()
        self.count = self._reading = 0
        self._due = False  # `_admit` will run
        self._interval = self._latest = 0.0  # seconds from one call that leaves to the next; when the latest one left
        self._endings: set[asyncio.Task[None]] = set()
        self._context = copy_context()  # that of the server: a call must not start with the API key of another one

    def arrive(self, path: str, context: Context, start: Start) -> Awaitable[None] | None:
        """Start a call, or let it wait, or return what ends it with an error, which raises."""
        caller = self._refusal.caller(path, context)
        if caller is None:
            start()
            return None
        ending = self._refusal.of_load(path, context, caller, self._expected_seconds(caller))
        if ending is not None:
            return ending
        arrival = _Arrival(path, context, caller, start, time.monotonic())
        if self._reading < PLACES and not self.count:
            self._start(arrival)
        elif self.count < self._most or self._make_room(caller):
            self._add(arrival)
        else:
            return self._refuse(arrival)
        return None

    def _expected_seconds(self, caller: str) -> float:
        """Return the seconds until a call of a caller that arrives now is started."""
        if not self.count:
            return 0.0
        before = min(self.count, (len(self._waiting.get(caller, ())) + 1) * len(self._waiting))
        return before * self._interval

    def _add(self, arrival: _Arrival) -> None:
        if not self.count:
            self._latest = arrival.at
        if arrival.caller not in self._waiting:
            self._waiting[arrival.caller] = deque()
            self._order.join(arrival.caller)
        self._waiting[arrival.caller].append(arrival)
        self.count += 1

    def _remove(self, caller: str, *, newest: bool = False) -> _Arrival:
        waiting = self._waiting[caller]
        arrival = waiting.pop() if newest else waiting.popleft()
        self.count -= 1
        if not waiting:
            del self._waiting[caller]
            self._order.leave(caller)
        return arrival

    def _make_room(self, caller: str) -> bool:
        """End the newest call of the caller with the most, if it has more than this caller; returns whether it did."""
        heaviest = max(self._waiting, key=lambda each: len(self._waiting[each]))
        if len(self._waiting[heaviest]) <= len(self._waiting.get(caller, ())) + 1:
            return False
        self._end_soon(self._refuse(self._remove(heaviest, newest=True)))
        return True

    def _refuse(self, arrival: _Arrival) -> Awaitable[None]:
        error = QueueFull(f"{self._most} calls wait to be read, and no more may; try again")
        return self._refusal.ending(arrival.path, arrival.context, arrival.caller, error)

    def _start(self, arrival: _Arrival) -> None:
        self._observe_wait(time.monotonic() - arrival.at)
        self._reading += 1
        self._context.copy().run(self._start_with_place, arrival)

    def _start_with_place(self, arrival: _Arrival) -> None:
        place = Place(self._leave)
        _place.set(place)
        arrival.start().add_done_callback(lambda _: place.leave())  # also if the handler never reads

    def _leave(self) -> None:
        self._reading -= 1
        self._admit_soon()

    def _admit_soon(self) -> None:
        if self.count and not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._admit)

    def _admit(self) -> None:
        """Start calls that wait, and end those that no engine would take any more."""
        self._due = False
        for _ in range(AT_ONCE):
            if not self.count or self._reading >= PLACES:
                return
            self._admit_next()
        self._admit_soon()

    def _admit_next(self) -> None:
        now, caller = time.monotonic(), self._order.next()
        self._interval += INTERVAL_WEIGHT * (min(now - self._latest, LONGEST_INTERVAL) - self._interval)
        self._latest = now
        self._order.charge(caller, 1)
        arrival = self._remove(caller)
        ending = self._refusal.of_load(arrival.path, arrival.context, caller)
        if ending is None:
            self._start(arrival)
        else:
            self._end_soon(ending)

    def _end_soon(self, ending: Awaitable[None]) -> None:
        task = asyncio.get_running_loop().create_task(_quietly(ending))
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)


async def _quietly(ending: Awaitable[None]) -> None:
    with suppress(Exception):  # it always raises
        await ending
