"""The lag of the event loop, which delays every call, and pauses in long work on the loop."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator
from typing import ClassVar, TypeVar

from lingon.machine import usable_cores

Result = TypeVar("Result")

MAX_SLICE = 0.00025  # seconds of work of one request on the event loop until it yields
SLICES_SHARE = 0.5  # share of the event loop's time for requests that wait for a slice
MOST_SLICES = 64  # slices in one iteration
BUSY_SHARE = 0.15  # share of the event loop's time per core for slices while the process keeps its cores busy
PAUSE = 0.001  # seconds without slices after that share was used
BEAT_INTERVAL = 0.05  # seconds between two measurements of the lag
MAX_ADDED = 60.0  # seconds of a block with added measurements; a suspended machine may block the loop for days


class LagMonitor:
    """A monitor of the lag of one event loop. `seconds_since_beat` may be called from any thread."""

    def __init__(self) -> None:
        self._last_beat = time.monotonic()

    async def measure(self, observe: Callable[[float], None]) -> None:
        """Call `observe` with the lag of the loop in seconds, every BEAT_INTERVAL, until cancelled.

        While the loop is blocked, no measurement is made. The missing ones are added afterwards with the lag that they
        would have found, so that a quantile is one over time. A block of 3 s in 300 s is then 1 % of the time, not one
        of 6,000 measurements.
        """
        while True:
            self._last_beat = time.monotonic()
            await asyncio.sleep(BEAT_INTERVAL)
            lag = max(time.monotonic() - self._last_beat - BEAT_INTERVAL, 0.0)
            observe(lag)
            for missed in range(1, int(min(lag, MAX_ADDED) / BEAT_INTERVAL) + 1):
                observe(lag - missed * BEAT_INTERVAL)

    def seconds_since_beat(self) -> float:
        """Return the seconds since the loop last ran `measure`."""
        return time.monotonic() - self._last_beat


class TimeSlice:
    """The division of a request's long work on the event loop into short slices, with other tasks between them.

    A request has one, and checks it before every unit of work but the first, which takes a fraction of a slice. A
    request of one short sentence never checks it. Most others find by one read of the clock that no slice is over:

        if time.monotonic() > time_slice.end:
            await time_slice.yield_if_due()

    end: end of the current slice, on the clock of `time.monotonic`
    """

    def __init__(self, caller: str = "") -> None:
        """caller: the key of fair service between requests with long work."""
        self.caller = caller
        self._queue = queue = _SliceQueue.of(asyncio.get_running_loop())
        self._iteration, self.end = queue.iteration(), time.monotonic() + MAX_SLICE

    async def yield_if_due(self) -> None:
        """Let other tasks run if the current slice is over.

        A slice begins with the first work of an iteration of the loop, because the wait before it was no work.
        """
        if time.monotonic() <= self.end:
            return
        if self._iteration == self._queue.iteration():
            await self._queue.wait(self.caller)
        self._iteration, self.end = self._queue.iteration(), time.monotonic() + MAX_SLICE

    async def run(self, steps: Generator[None, None, Result]) -> Result:
        """Run a generator to its end, in slices, and return its result."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: Result = end.value
                return result
            if time.monotonic() > self.end:
                await self.yield_if_due()


class IdleTime:
    """The idle time of a core, measured by the computing time of all threads of the process."""

    def __init__(self, cores: int) -> None:
        """cores: number of cores that the process may use."""
        self._cores, self._wall, self._cpu = cores, time.monotonic(), time.process_time()

    def take(self) -> tuple[float, float]:
        """Return the seconds since the last call, and for how many of them at least one core was idle on average."""
        wall, cpu = time.monotonic(), time.process_time()
        elapsed, used = wall - self._wall, cpu - self._cpu
        self._wall, self._cpu = wall, cpu
        return elapsed, min(max(self._cores * elapsed - used, 0.0), elapsed)


class _SpareTime:
    """The time for slices: all of it while a core is idle, else BUSY_SHARE.

    On a busy core the operating system preempts a thread that has used its half. Texts that are planned faster than
    they are decoded would use that half. Each step of a short request on the loop would then wait for the engine.
    """

    def __init__(self, cores: int) -> None:
        """cores: number of cores that the process may use."""
        self._idle, self._least, self._seconds = IdleTime(cores), min(BUSY_SHARE * cores, 1.0), 0.0

    def measure(self) -> None:
        """Add the time since the last call."""
        elapsed, idle = self._idle.take()
        self._seconds = min(self._seconds + max(idle, self._least * elapsed), MOST_SLICES * MAX_SLICE)

    def take_slice(self) -> bool:
        """Take the time of a slice and return True, or return False if less time is left."""
        if self._seconds < MAX_SLICE:
            return False
        self._seconds -= MAX_SLICE
        return True


class _SliceQueue:
    """A round-robin queue of callers for slices: one in each iteration of a loop, or more if the iteration took long.

    Otherwise all requests with long work would use a slice in every iteration. A short request, which needs several
    iterations, would wait for all of them in each. A loop with many short requests takes long for an iteration. With
    one slice in each, a request that is a little longer than the others would wait for a hundred of them: with 64
    clients a tenth of the requests took 30 times as long as half of them.

    While the engine keeps the cores busy, slices have a small share of the time: see `_SpareTime`.
    """

    _by_loop: ClassVar[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _SliceQueue]] = weakref.WeakKeyDictionary()

    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # by caller; the next caller first
        self._iteration, self._counts = 0, False  # whether the next iteration will be counted
        self._spare = _SpareTime(usable_cores())
        self._granted = 0.0  # time of the latest slices, or since when a request waits for the first one

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> _SliceQueue:
        """Return the only instance for a loop."""
        found = cls._by_loop.get(loop)
        if found is None:
            found = cls._by_loop[loop] = cls()
        return found

    def iteration(self) -> int:
        """Return the number of the current iteration, which is the same within one iteration."""
        if not self._counts:
            self._counts = True
            asyncio.get_running_loop().call_soon(self._count)
        return self._iteration

    def _count(self) -> None:
        self._iteration, self._counts = self._iteration + 1, False

    async def wait(self, caller: str) -> None:
        """Wait for a slice, at least until the next iteration of the loop."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            self._granted = time.monotonic()
            loop.call_soon(self._grant, loop)
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(caller, deque()).append(waiter)
        await waiter

    def _grant(self, loop: asyncio.AbstractEventLoop) -> None:
        now = time.monotonic()
        slices = min(1 + int(SLICES_SHARE * (now - self._granted) / MAX_SLICE), MOST_SLICES)
        self._granted = now
        self._spare.measure()
        while self._waiting and slices and self._spare.take_slice():
            slices -= self._grant_next()
        if self._waiting and slices:
            loop.call_later(PAUSE, self._grant, loop)
        elif self._waiting:
            loop.call_soon(self._grant, loop)

    def _grant_next(self) -> bool:
        """Grant a slice to the next caller. Returns False if its request no longer waits, because it was cancelled."""
        caller = next(iter(self._waiting))
        waiting = self._waiting.pop(caller)
        waiter = waiting.popleft()
        if waiting:
            self._waiting[caller] = waiting
        if waiter.done():
            return False
        waiter.set_result(None)
        return True
