"""Calls that have arrived: each is refused at once, read at once, or waits until others are read.

Reading a request, planning its texts and queueing them take some steps of the event loop. If all calls that arrive
take them together, each step waits for the steps of all others: above capacity every call reaches the engine too late,
though each would have been in time alone. At most PLACES calls are between their start and the queue of the engine. The
others wait here, unread, in fair order between their callers; nothing was spent on a call that ends here.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar, copy_context
from functools import partial

from lingon.errors import Draining, QueueFull, RequestError
from lingon.serving.auth.callers import known_caller, on_other_port
from lingon.serving.engine.fair_queue import FairQueue
from lingon.serving.models.inflight import Arrived, arrived
from lingon.serving.rpc.arrival.later import Arrival, LaterRefusals, Refusal, Start
from lingon.serving.rpc.calls import Context

PLACES = 16
"""Calls that are read at once: enough for an iteration of the event loop, and few enough that each is read soon."""

PLACES_OF_CALLER = 12
"""Those of one caller at most: a request that does not end keeps its place for 0.1 s, and other callers are read
meanwhile. More than half of all, so that of two callers one always finds a place.
"""

PASS_SECONDS = 0.01
"""Seconds between two calls that start before those of their address on the other port, which have all places that they
may have. A request of HTTP has arrived whole and is read at once; one of gRPC is read in several steps. Without this
bound HTTP would start all its calls while those of gRPC wait to be read.
"""

MOST_LATER = 8192  # refusals that are put off at once, of some kilobytes each
STARTS_AT_ONCE = 64  # waiting calls that are started or refused before other callbacks of the event loop run
INTERVAL_WEIGHT = 0.02  # weight of the latest interval in the average
LONGEST_INTERVAL = 0.1  # seconds; a longer one says nothing of the next


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


class Arrivals:
    """The calls of a port that wait to be read. Belongs to the event loop."""

    def __init__(
        self,
        refusal: Refusal,
        most: int,
        observe_wait: Callable[[float], None] = lambda seconds: None,
        arrive: Callable[[], Arrived | None] = lambda: None,
    ) -> None:
        """most: calls that wait at once; observe_wait: called with the seconds that a call waited until its start.

        arrive: tells the gate of a call that is not refused at once
        """
        self._refusal, self._most, self._observe_wait, self._arrived = refusal, most, observe_wait, arrive
        self._waiting: dict[str, deque[Arrival]] = {}  # by caller, the oldest first
        self._order: FairQueue[str] = FairQueue()
        self._reading: Counter[str] = Counter()  # calls that hold a place, by caller
        self._places = PLACES  # that no call holds
        self.count = 0
        self._due = False  # `_admit` will run
        self._passed = 0.0  # when a call started before those of its address that wait on the other port
        self._timer: asyncio.TimerHandle | None = None  # until `_admit` runs although no call leaves its place
        self._interval = self._latest = 0.0  # seconds from one call that leaves to the next; when the latest one left
        self._endings: set[asyncio.Task[None]] = set()
        self._later = LaterRefusals(refusal, MOST_LATER)
        self._context = copy_context()  # that of the server: a call must not start with the API key of another one

    def arrive(self, path: str, context: Context, start: Start) -> Awaitable[None] | None:
        """Start a call, or let it wait, or return what ends it with an error, which raises."""
        caller = self._refusal.caller(path, context)
        if caller is None:
            start()
            return None
        arrival = Arrival(path, context, caller, start, time.monotonic())
        error = self._error_of(arrival)
        if error is not None:
            return self._refuse(arrival, error)
        arrival = arrival._replace(unread=self._arrived())
        if caller not in self._waiting and self._may_start(caller) and not self._due and not self._is_ahead(caller):
            self._start(arrival)
        elif self.count < self._most or self._make_room(caller):
            self._add(arrival)
            if self._is_ahead(caller):
                self._admit_soon()
        else:
            return self._refuse(arrival, self._full())
        return None

    def refusal(self, path: str, context: Context) -> RequestError | None:
        """Return the error of a call that would be refused if it arrived now, and count it; None if it might be done.

        For a caller whose request is not there yet: it need not send or read one that is refused.
        """
        caller = self._refusal.caller(path, context)
        if caller is None:
            return None
        arrival = Arrival(path, context, caller, _never, time.monotonic())
        error = self._error_of(arrival)
        if error is not None:
            self._refusal.count(arrival, error)
        return error

    def _error_of(self, arrival: Arrival) -> RequestError | None:
        path, context, caller, _, now, _ = arrival
        return self._refusal.of_load(path, context, caller, self._expected_seconds(caller, now))

    def _expected_seconds(self, caller: str, now: float) -> float:
        """Return the seconds until a call of a caller that arrives now is started.

        That is at least what the oldest one of the caller has waited: a caller whose requests take long to read has its
        places for long, and gets fewer turns than others.
        """
        if not self.count:
            return 0.0
        waiting = self._waiting.get(caller, ())
        before = min(self.count, (len(waiting) + 1) * len(self._waiting))
        return max(before * self._interval, now - waiting[0].at if waiting else 0.0)

    def _add(self, arrival: Arrival) -> None:
        if not self.count:
            self._latest = arrival.at
        if arrival.caller not in self._waiting:
            self._waiting[arrival.caller] = deque()
            self._order.join(arrival.caller)
        self._waiting[arrival.caller].append(arrival)
        self.count += 1

    def _remove(self, caller: str, *, newest: bool = False) -> Arrival:
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
        self._refuse_soon(self._remove(heaviest, newest=True), self._full())
        return True

    def _full(self) -> QueueFull:
        return QueueFull(f"{self._most} calls wait to be read, and no more may; try again")

    def _refuse(self, arrival: Arrival, error: RequestError) -> Awaitable[None] | None:
        """Return what ends a call; None if that is put off because the event loop is busy."""
        _end(arrival.unread)
        if not isinstance(error, Draining) and self._later.put_off(arrival, error):
            return None  # but a server that ends would never get to it
        return self._refusal.ending(arrival, error)

    def _start(self, arrival: Arrival) -> None:
        self._observe_wait(time.monotonic() - arrival.at)
        self._reading[arrival.caller] += 1
        self._places -= 1
        self._context.copy().run(self._start_with_place, arrival)

    def _start_with_place(self, arrival: Arrival) -> None:
        place = Place(partial(self._leave, arrival.caller))
        _place.set(place)
        arrived.set(arrival.unread)
        known_caller.set(arrival.caller)

        def end(_: object) -> None:  # also if the handler never reads
            place.leave()
            _end(arrival.unread)

        arrival.start().add_done_callback(end)

    def _leave(self, caller: str) -> None:
        self._reading[caller] -= 1
        self._places += 1
        if not self._reading[caller]:
            del self._reading[caller]
        self._admit_soon()

    def _may_start(self, caller: str) -> bool:
        return self._places > 0 and self._reading[caller] < PLACES_OF_CALLER

    def _admit_soon(self) -> None:
        if self.count and not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._admit)

    def _admit(self) -> None:
        """Start calls that wait, and end those that no engine would take any more."""
        self._due = False
        for _ in range(STARTS_AT_ONCE):
            caller = self._next()
            if caller is None:
                return
            self._admit_next(caller)
        self._admit_soon()

    def _next(self) -> str | None:
        """Return the caller whose call starts next; None if none may start."""
        if not self.count or not self._places:
            return None
        if not any(self._may_start(each) and not self._is_held_back(each) for each in self._waiting):
            return None
        while not self._may_start(caller := self._order.next()) or self._is_held_back(caller):
            self._order.charge(caller, 1)  # a turn that it cannot use
        if self._is_ahead(caller):
            self._passed = time.monotonic()
        return caller

    def _is_ahead(self, caller: str) -> bool:
        """Whether calls of the same address wait on the other port, and have all places that they may have."""
        other = on_other_port(caller)
        return other in self._waiting and self._reading[other] >= PLACES_OF_CALLER

    def _is_held_back(self, caller: str) -> bool:
        """Whether a call must wait for those of its address on the other port; if so, looks again later."""
        if not self._is_ahead(caller) or time.monotonic() >= self._passed + PASS_SECONDS:
            return False
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PASS_SECONDS, self._look_again)
        return True

    def _look_again(self) -> None:
        self._timer = None
        self._admit_soon()

    def _admit_next(self, caller: str) -> None:
        now = time.monotonic()
        self._interval += INTERVAL_WEIGHT * (min(now - self._latest, LONGEST_INTERVAL) - self._interval)
        self._latest = now
        self._order.charge(caller, 1)
        arrival = self._remove(caller)
        error = self._refusal.of_load(arrival.path, arrival.context, caller, new=False)
        if error is None:
            self._start(arrival)
        else:
            self._refuse_soon(arrival, error)

    def _refuse_soon(self, arrival: Arrival, error: RequestError) -> None:
        ending = self._refuse(arrival, error)
        if ending is not None:
            task = asyncio.get_running_loop().create_task(_quietly(ending))
            self._endings.add(task)
            task.add_done_callback(self._endings.discard)


def _never() -> asyncio.Task[None]:
    raise AssertionError("a call without a request does not start")


def _end(unread: Arrived | None) -> None:
    if unread is not None:
        unread.end()


async def _quietly(ending: Awaitable[None]) -> None:
    with suppress(Exception):  # it always raises
        await ending
