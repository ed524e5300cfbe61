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

MAX_SLICE = 0.00025  # seconds that one request may work on the event loop before it yields
TURNS_SHARE = 0.5  # of the time of the event loop, for requests that wait for a turn
MOST_TURNS = 64  # in one iteration
BUSY_SHARE = 0.15  # for each core, of the time of the event loop: for turns while the process keeps its cores busy
PAUSE = 0.001  # seconds until turns are given again after they have taken that
BEAT_INTERVAL = 0.05  # seconds between two measurements of the lag
MAX_ADDED = 60.0  # seconds of a block for which missing measurements are added; a suspended machine may sleep for days


class LagMonitor:
    """Measures the lag of one event loop; `seconds_since_beat` may be called from any thread."""

    def __init__(self) -> None:
        self._last_beat = time.monotonic()

    async def measure(self, observe: Callable[[float], None]) -> None:
        """Call `observe` with the lag of the loop in seconds, every BEAT_INTERVAL, until cancelled.

        While the loop is blocked, no measurement is made. Those that are missing are added afterwards with the lag that
        they would have found, so that a quantile is one over time: a block of 3 s in 300 s is 1 % of it, not one of
        6,000 measurements.
        """
        while True:
            self._last_beat = time.monotonic()
            await asyncio.sleep(BEAT_INTERVAL)
            lag = max(time.monotonic() - self._last_beat - BEAT_INTERVAL, 0.0)
            observe(lag)
            for missed in range(1, int(min(lag, MAX_ADDED) / BEAT_INTERVAL) + 1):
                observe(lag - missed * BEAT_INTERVAL)

    def seconds_since_beat(self) -> float:
        """Seconds since the loop last ran `measure`."""
        return time.monotonic() - self._last_beat


class TimeSlice:
    """Divides the long work of a request on the event loop into short slices, so that other tasks run between them.

    A request has one, and asks before every unit of work but the first, which takes a fraction of a slice: a request
    of one short sentence never asks. Most of the others find by one look at the clock that no slice is over:

        if time.monotonic() > time_slice.end:
            await time_slice.yield_if_due()

    end: of the current slice, on the clock of `time.monotonic`
    """

    def __init__(self, caller: str = "") -> None:
        """caller: the key of fair service between requests that have long work."""
        self.caller = caller
        self._turns = turns = _Turns.of(asyncio.get_running_loop())
        self._iteration, self.end = turns.iteration(), time.monotonic() + MAX_SLICE

    async def yield_if_due(self) -> None:
        """Let other tasks run if the current slice is over.

        A slice begins with the first work of an iteration of the loop: what the request waited for was no work.
        """
        if time.monotonic() <= self.end:
            return
        if self._iteration == self._turns.iteration():
            await self._turns.wait(self.caller)
        self._iteration, self.end = self._turns.iteration(), time.monotonic() + MAX_SLICE

    async def run(self, steps: Generator[None, None, Result]) -> Result:
        """Run a generator to its end, in slices; returns what it returns."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: Result = end.value
                return result
            if time.monotonic() > self.end:
                await self.yield_if_due()


class IdleTime:
    """Measures for how long a core was idle, by what all threads of the process computed."""

    def __init__(self, cores: int) -> None:
        """cores: that the process may use."""
        self._cores, self._wall, self._cpu = cores, time.monotonic(), time.process_time()

    def take(self) -> tuple[float, float]:
        """Return the seconds since the last call, and for how many of them a core was idle, at least on average."""
        wall, cpu = time.monotonic(), time.process_time()
        elapsed, used = wall - self._wall, cpu - self._cpu
        self._wall, self._cpu = wall, cpu
        return elapsed, min(max(self._cores * elapsed - used, 0.0), elapsed)


class _SpareTime:
    """The time that turns may take: all of it while a core is idle, else BUSY_SHARE.

    On a busy core the operating system lets a thread wait that has used its half. Texts that are planned faster than
    they are decoded would take that half, and then each step of a short request on the loop waits for the engine.
    """

    def __init__(self, cores: int) -> None:
        """cores: that the process may use."""
        self._idle, self._least, self._seconds = IdleTime(cores), min(BUSY_SHARE * cores, 1.0), 0.0

    def measure(self) -> None:
        """Add the time since the last call."""
        elapsed, idle = self._idle.take()
        self._seconds = min(self._seconds + max(idle, self._least * elapsed), MOST_TURNS * MAX_SLICE)

    def take_turn(self) -> bool:
        """Take the time of a turn; returns whether there was as much."""
        if self._seconds < MAX_SLICE:
            return False
        self._seconds -= MAX_SLICE
        return True


class _Turns:
    """Gives turns in each iteration of a loop, to the callers by turns: one, and more if the iteration took long.

    Otherwise the requests that have long work would all take a slice in every iteration, and a short request, which
    needs several iterations, would wait for all of them in each. But a loop with many short requests takes long for an
    iteration. With one turn in each, a request that is a little longer than the others would wait for a hundred of
    them: with 64 clients a tenth of the requests took 30 times as long as half of them.

    While the engine keeps the cores busy, turns have a small part of the time: see `_SpareTime`.
    """

    _by_loop: ClassVar[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns]] = weakref.WeakKeyDictionary()

    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # by caller; the next caller first
        self._iteration, self._counts = 0, False  # whether the next iteration is going to be counted
        self._spare = _SpareTime(usable_cores())
        self._granted = 0.0  # time of the latest turns, or since when a request waits for the first one

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> _Turns:
        """Return the one instance of a loop."""
        if loop not in cls._by_loop:
            cls._by_loop[loop] = cls()
        return cls._by_loop[loop]

    def iteration(self) -> int:
        """Return the number of the current iteration: the same within one iteration, and another one later."""
        if not self._counts:
            self._counts = True
            asyncio.get_running_loop().call_soon(self._count)
        return self._iteration

    def _count(self) -> None:
        self._iteration, self._counts = self._iteration + 1, False

    async def wait(self, caller: str) -> None:
        """Wait for a turn, at least until the next iteration of the loop."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            self._granted = time.monotonic()
            loop.call_soon(self._grant, loop)
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        await turn

    def _grant(self, loop: asyncio.AbstractEventLoop) -> None:
        now = time.monotonic()
        turns = min(1 + int(TURNS_SHARE * (now - self._granted) / MAX_SLICE), MOST_TURNS)
        self._granted = now
        self._spare.measure()
        while self._waiting and turns and self._spare.take_turn():
            turns -= self._grant_next()
        if self._waiting and turns:
            loop.call_later(PAUSE, self._grant, loop)
        elif self._waiting:
            loop.call_soon(self._grant, loop)

    def _grant_next(self) -> bool:
        """Give the next caller a turn; returns whether its request still waited: it may have been cancelled."""
        caller = next(iter(self._waiting))
        waiting = self._waiting.pop(caller)
        turn = waiting.popleft()
        if waiting:
            self._waiting[caller] = waiting
        if turn.done():
            return False
        turn.set_result(None)
        return True
