"""Calls that have arrived. Each is refused at once, read at once, or waits until others are read.

Reading a request, planning its texts and queueing them take some steps of the event loop. If all calls take them at the
same time, each step waits for the steps of all others. Above capacity every call then reaches the engine too late,
although each would have been in time alone. At most READ_SLOTS calls are between their start and the queue of the
engine. The others wait here, unread, in fair order between their callers. A call that ends here has cost nothing.

A call that the engines would refuse is refused before anything of it is read. Above capacity most calls are refused,
and refusals take time from translations. A refusal here takes a fifth of the work of a refusal after the request was
read and its texts were planned (early load shedding; Zhou et al.: Overload Control for Scaling WeChat Microservices,
2018, section 4).

While the event loop is busy, refusals are deferred. A refusal takes a tenth of the time of a translation, mostly inside
gRPC. At ten times the capacity refusals would take a whole core. Every call would then wait inside gRPC until its
deadline, even the calls that could end in time. A deferred call is refused when there is time, the latest first,
because its client still waits. After its deadline, its client has already ended it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, NamedTuple, Protocol

from lingon.errors import Draining, NotBegun, QueueFull, RequestError
from lingon.machine import usable_cores
from lingon.serving.auth.callers import find_caller, is_of_own_gateway, known_caller, on_other_port
from lingon.serving.engine.engine import Engine
from lingon.serving.engine.policy import FairQueue
from lingon.serving.engine.scheduler import AT_ONCE, Forecast
from lingon.serving.models.inflight import AdmissionGate, Arrived, arrived
from lingon.serving.rpc.admission import LATE, READ_SLOTS, caller_to_evict, may_be_read, refused_on_arrival
from lingon.serving.rpc.calls import (
    SERVICE,
    Context,
    Ending,
    Metadata,
    abort,
    ending_of,
    patience_of,
    request_id_of,
    time_left,
)
from lingon.status import to_status

BUSY_SHARES = (0.25, 0.6)
"""Parts of the time that the event loop may compute while all refusals are sent at once: on one core, on several.

On one core the loop needs a quarter of the time for an engine that is always busy.
"""

SHARE_SECONDS = 0.02  # seconds; that part is measured over this time
ROUND_SECONDS = 0.01  # seconds between two rounds of deferred refusals
MOST, LEAST = 16, 5  # refusals in a round; LEAST are sent even if the event loop is busy

Start = Callable[[], "asyncio.Task[Any]"]
"""Starts the handler of a call, in a copy of the current context."""


class Arrival(NamedTuple):
    """A call that has arrived; caller: the key of fair queuing; at: arrival on the clock of `time.monotonic`."""

    path: str
    context: Context
    caller: str
    start: Start
    at: float
    known: Arrived


class Refusal(Protocol):
    """The decision about calls before they are read; see `EarlyRefusal`."""

    def caller(self, path: str, context: Context) -> str | None:
        """Return the caller, or None if the call needs no slot."""

    def of_load(
        self, path: str, context: Context, caller: str, wait: float = 0.0, *, new: bool = True
    ) -> RequestError | None:
        """Return the error of a call that no engine would accept, or None if one might.

        new: whether it arrives now, so that it is refused while the server drains
        """

    def ending(self, arrival: Arrival, error: RequestError) -> Awaitable[None]:
        """Return the coroutine that ends a call with an error, and count it."""

    def count(self, arrival: Arrival, error: RequestError) -> object:
        """Count, log and trace a call that ends with an error, without ending it."""

    def forget(self, arrival: Arrival) -> None:
        """Count a call whose deadline has passed."""


class LaterRefusals:
    """The deferred refusals. Belongs to the event loop."""

    def __init__(self, refusal: Refusal, most: int, share: Callable[[], float] | None = None) -> None:
        """most: bound of the deferred refusals; share: default `LoopShare`."""
        self._refusal, self._most, self._share = refusal, most, share or LoopShare()
        self._busy = BUSY_SHARES[usable_cores() > 1]
        self._calls: deque[tuple[Arrival, RequestError]] = deque()  # the oldest first
        self._work: asyncio.Task[None] | None = None

    def put_off(self, arrival: Arrival, error: RequestError) -> bool:
        """Defer the refusal of a call. Returns False if it must be refused at once."""
        if len(self._calls) >= self._most or self._share() < self._busy:
            return False
        if is_of_own_gateway(arrival.context):  # its refusal is cheap without gRPC, and its client disconnects
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
        """Count and forget calls after their deadline, because gRPC cancels them and no client waits for a status."""
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
        """Return the part, from 0 to 1. Call it on the thread of the event loop."""
        elapsed = (now := time.monotonic()) - self._wall
        if elapsed >= SHARE_SECONDS:
            cpu = time.thread_time()
            self._share, self._wall, self._cpu = (cpu - self._cpu) / elapsed, now, cpu
        return self._share


PASS_SECONDS = 0.01
"""Seconds between two calls that start before calls of their address on the other port, while those have all slots that
they may have. An HTTP request has arrived whole and is read at once. A gRPC request is read in several steps. Without
this bound all HTTP calls would start while gRPC calls wait to be read.
"""

MOST_LATER = 8192  # deferred refusals, of some kilobytes each
STARTS_AT_ONCE = 64  # waiting calls that are started or refused before other callbacks of the event loop run
INTERVAL_WEIGHT = 0.02  # weight of the latest interval in the average
LONGEST_INTERVAL = 0.1  # seconds; a longer interval does not predict the next one


class Arrivals:
    """The calls of a port that wait to be read. Belongs to the event loop."""

    def __init__(
        self,
        refusal: Refusal,
        most: int,
        observe_wait: Callable[[float], None] = lambda seconds: None,
        gate: AdmissionGate | None = None,
    ) -> None:
        """most: bound of the waiting calls; observe_wait: called with the seconds that a call waited until its start.

        gate: holds the calls that are not refused at once, until they end
        """
        self._refusal, self._most, self._observe_wait = refusal, most, observe_wait
        self._gate = gate or AdmissionGate()
        self._waiting: dict[str, deque[Arrival]] = {}  # by caller, the oldest first
        self._order: FairQueue[str] = FairQueue()
        self._reading: Counter[str] = Counter()  # calls with a slot, by caller
        self._slots = READ_SLOTS  # free slots
        self.count = 0
        self._due = False  # whether `_admit` will run
        self._passed = 0.0  # time of the latest start of a call before waiting calls of its address on the other port
        self._timer: asyncio.TimerHandle | None = None  # until `_admit` runs although no call leaves its slot
        self._interval = self._latest = 0.0  # seconds between two calls that leave their slots; time of the latest one
        self._endings: set[asyncio.Task[None]] = set()
        self._later = LaterRefusals(refusal, MOST_LATER)
        self._context = copy_context()  # the server's, because a call must not start with the API key of another one

    def arrive(self, path: str, context: Context, start: Start) -> Awaitable[None] | None:
        """Start a call, enqueue it, or return the coroutine that ends it with an error, which raises."""
        caller = self._refusal.caller(path, context)
        if caller is None:
            start()
            return None
        arrival = Arrival(path, context, caller, start, time.monotonic(), Arrived())
        error = self._error_of(arrival)
        if error is not None:
            return self._refuse(arrival, error)
        self._gate.enter(arrival.known)
        if may_be_read(self._slots, self._reading.get(caller, 0)) and (
            not self._waiting or (caller not in self._waiting and not self._due and not self._is_ahead(caller))
        ):
            self._start(arrival)
            return None
        if self.count >= self._most and not self._make_room(caller):
            return self._refuse(arrival, self._full())
        self._add(arrival)
        if self._is_ahead(caller):
            self._admit_soon()
        return None

    def refusal(self, path: str, context: Context) -> RequestError | None:
        """Return and count the error of a call that would be refused if it arrived now, or None if it might be served.

        The caller of this has not sent its request yet, and need not send one that is refused.
        """
        caller = self._refusal.caller(path, context)
        if caller is None:
            return None
        arrival = Arrival(path, context, caller, _never, time.monotonic(), Arrived())
        error = self._error_of(arrival)
        if error is not None:
            self._refusal.count(arrival, error)
        return error

    def _error_of(self, arrival: Arrival) -> RequestError | None:
        wait = self._expected_seconds(arrival.caller, arrival.at) if self.count else 0.0
        return self._refusal.of_load(arrival.path, arrival.context, arrival.caller, wait)

    def _expected_seconds(self, caller: str, now: float) -> float:
        """Return the seconds until a call of a caller that arrives now is started.

        It is at least the time that the oldest call of the caller has waited. A caller whose requests take long to read
        holds its slots for long, and is served less often than others.
        """
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
        """Evict a call for a new one of the caller. Returns whether there is one to evict."""
        heaviest = caller_to_evict(self._waiting, caller)
        if heaviest is None:
            return False
        self._refuse_soon(self._remove(heaviest, newest=True), self._full())
        return True

    def _full(self) -> QueueFull:
        return QueueFull(f"{self._most} calls wait to be read, and no more may; try again")

    def _refuse(self, arrival: Arrival, error: RequestError) -> Awaitable[None] | None:
        """Return the coroutine that ends a call, or None if the refusal is deferred because the event loop is busy."""
        self._gate.leave(arrival.known)
        if not isinstance(error, Draining) and self._later.put_off(arrival, error):
            return None  # a server that ends would never send the refusal
        return self._refusal.ending(arrival, error)

    def _start(self, arrival: Arrival) -> None:
        self._observe_wait(time.monotonic() - arrival.at)
        self._reading[arrival.caller] += 1
        self._slots -= 1
        self._context.copy().run(self._start_in_slot, arrival)

    def _start_in_slot(self, arrival: Arrival) -> None:
        arrival.known.release = partial(self._leave, arrival.caller)
        arrived.set(arrival.known)
        known_caller.set(arrival.caller)
        arrival.start().add_done_callback(partial(self._ended, arrival.known))

    def _ended(self, call: Arrived, _: object) -> None:
        call.leave_slot()  # if the handler has not read the request
        self._gate.leave(call)

    def _leave(self, caller: str) -> None:
        self._slots += 1
        self._reading[caller] -= 1
        if not self._reading[caller]:
            del self._reading[caller]
        if self.count:
            self._admit_soon()

    def _may_start(self, caller: str) -> bool:
        return may_be_read(self._slots, self._reading.get(caller, 0))

    def _admit_soon(self) -> None:
        if self.count and not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._admit)

    def _admit(self) -> None:
        """Start waiting calls, and end those that no engine would accept any more."""
        self._due = False
        for _ in range(STARTS_AT_ONCE):
            caller = self._next()
            if caller is None:
                return
            self._admit_next(caller)
        self._admit_soon()

    def _next(self) -> str | None:
        """Return the caller whose call starts next, or None if none may start."""
        if not self.count or not self._slots:
            return None
        if not any(self._may_start(each) and not self._is_held_back(each) for each in self._waiting):
            return None
        while not self._may_start(caller := self._order.next()) or self._is_held_back(caller):
            self._order.charge(caller, 1)  # its unused start
        if self._is_ahead(caller):
            self._passed = time.monotonic()
        return caller

    def _is_ahead(self, caller: str) -> bool:
        """Return whether calls of the address wait on the other port and have all slots that they may have."""
        other = on_other_port(caller)
        return other in self._waiting and not may_be_read(1, self._reading.get(other, 0))

    def _is_held_back(self, caller: str) -> bool:
        """Return whether a call must wait for calls of its address on the other port. If so, start a timer."""
        if not self._is_ahead(caller) or time.monotonic() >= self._passed + PASS_SECONDS:
            return False
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PASS_SECONDS, self._end_pause)
        return True

    def _end_pause(self) -> None:
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


async def _quietly(ending: Awaitable[None]) -> None:
    with suppress(Exception):  # `ending` always raises
        await ending


METHODS = frozenset(SERVICE + name for name in ("Translate", "TranslateStream", "Score"))
"""Paths of the methods with work for an engine."""

READ_IN_ORDER = METHODS | {SERVICE + "DetectLanguages"}
"""Paths of the methods with calls that wait for a slot. DetectLanguages works on the event loop alone."""

FRESH_SECONDS = 0.005  # seconds; a forecast stays valid for so long, because a queue hardly changes meanwhile
MAX_FORECASTS = 1000  # callers with a cached forecast
MAX_ENDINGS = 200  # errors with a cached status


class Counts(Protocol):
    """A receiver of refusals: counts, logs and traces them."""

    def refused_early(
        self, method: str, error: RequestError, metadata: Metadata, request_id: str, caller: str, seconds: float
    ) -> None:
        """Record a call of TranslationService that ends so many seconds after it arrived, unread."""


class _KnownForecast(NamedTuple):
    """The forecast for one caller; until: end of its validity on the clock of the LoadShedder."""

    forecast: Forecast
    until: float


class LoadShedder:
    """The decision from the queues whether a call is refused unread. Belongs to the event loop."""

    def __init__(
        self,
        gate: AdmissionGate,
        engines: Callable[[], Sequence[Engine]],
        clock: Callable[[], float] = time.monotonic,
        any_cold: Callable[[], bool] = lambda: False,
    ) -> None:
        """engines: returns the engines of all loaded models; a call may be for any of them.

        any_cold: returns whether a call may be for a model without an engine, which has no queue
        """
        self.gate, self._engines, self._clock, self._any_cold = gate, engines, clock, any_cold
        self._forecasts: dict[str, _KnownForecast] = {}

    def check(
        self,
        caller: str,
        left: float | None,
        wait: float = 0.0,
        *,
        patience: float = math.inf,
        new: bool = True,
        queued: bool = True,
    ) -> None:
        """Raise the error of a call that no engine would accept.

        left: seconds until its deadline, or None without one
        wait: seconds until it is read
        patience: seconds that it may wait until its work begins
        new: whether it arrives now, so that it is refused while the server drains
        queued: whether it has work for an engine
        """
        if new:
            self.gate.check()
        forecast = self._forecast(caller) if queued else None
        error = refused_on_arrival(left=left, wait=wait, patience=patience, forecast=forecast)
        if error is not None:
            raise error

    def _forecast(self, caller: str) -> Forecast:
        now, known = self._clock(), self._forecasts.get(caller)
        if known is None or known.until < now:
            engines = [] if self._any_cold() else self._engines()
            forecast = min((engine.forecast(caller) for engine in engines), default=AT_ONCE)
            if len(self._forecasts) >= MAX_FORECASTS:
                self._forecasts.clear()
            known = self._forecasts[caller] = _KnownForecast(forecast, now + FRESH_SECONDS)
        return known.forecast


class EarlyRefusal:
    """The refusals of a LoadShedder. They are counted and logged as if handlers had refused the calls."""

    def __init__(self, shedder: LoadShedder, counts: Counts, check_key: Callable[[Metadata], None] | None) -> None:
        """check_key: checks the API key in the metadata of a call, and raises RequestError; None without API keys."""
        self._shedder, self._counts, self._check_key = shedder, counts, check_key
        self._endings: dict[tuple[type[RequestError], str], Ending] = {}

    def caller(self, path: str, context: Context) -> str | None:
        """Return the caller, or None if the call needs no slot to be read, or has no valid key."""
        if path not in READ_IN_ORDER:
            return None
        if self._check_key is None:
            return find_caller(context)
        return copy_context().run(self._caller_with_key, context)  # the key of a call is a context variable

    def _caller_with_key(self, context: Context) -> str | None:
        assert self._check_key is not None
        try:
            self._check_key(context.invocation_metadata() or ())
        except RequestError:
            return None
        return find_caller(context)

    def of_load(
        self, path: str, context: Context, caller: str, wait: float = 0.0, *, new: bool = True
    ) -> RequestError | None:
        """Return the error of a call that no engine would accept, or None if one might.

        wait: seconds until the call is read; new: see `LoadShedder.check`
        """
        try:
            left = time_left(context)
            patience = patience_of(context, left)
            self._shedder.check(caller, left, wait, patience=patience, new=new, queued=path in METHODS)
        except RequestError as error:
            return error.with_traceback(None)  # its frames would keep the call in a reference cycle
        return None

    def ending(self, arrival: Arrival, error: RequestError) -> Awaitable[None]:
        """Return the coroutine that ends a call with an error. It raises the error that gRPC expects."""
        return abort(arrival.context, self._ending_with(error), self.count(arrival, error))

    def forget(self, arrival: Arrival) -> None:
        """Count a call after its deadline. Its client has ended it, and gRPC frees it without a status."""
        self.count(arrival, NotBegun(LATE))

    def count(self, arrival: Arrival, error: RequestError) -> str:
        """Count, log and trace a refused call, and return its request id."""
        metadata = arrival.context.invocation_metadata() or ()
        request_id, seconds = request_id_of(metadata), time.monotonic() - arrival.at
        method = arrival.path.removeprefix(SERVICE)
        self._counts.refused_early(method, error, metadata, request_id, arrival.caller, seconds)
        return request_id

    def _ending_with(self, error: RequestError) -> Ending:
        """Return the ending with an error that has only a kind and a message. Frequent ones are cached."""
        key = type(error), str(error)
        if key not in self._endings:
            if len(self._endings) >= MAX_ENDINGS:
                self._endings.clear()
            self._endings[key] = ending_of(to_status(error))
        return self._endings[key]
