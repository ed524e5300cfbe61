"""Event loops for the threads of callers, which take the turns of an engine while they wait for its results.

A call from another thread would pass from the caller to an event loop, from there to a thread of the engine, and back.
Each of the four passes wakes a thread by a system call, which takes longer than the decoding of a small model.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from lingon.errors import Cancelled

Result = TypeVar("Result")
KEPT = 8  # loops without a call that are kept; each has three file descriptors
CLOSE_SECONDS = 10.0  # seconds that `CallerLoops.close` waits for the last steps of calls


class TurnSelector(selectors.DefaultSelector):
    """A selector whose wait is work: it takes turns of an engine where it would sleep.

    take_turns: takes turns until a job ends and returns True, or returns False at once if there is none to take
    """

    take_turns: Callable[[], bool] | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the events of now after turns, or those after a wait; timeout: seconds, None for no limit.

        An event loop has nothing to run when it waits. After the turns it has the callback of a job that ended. The
        only events are notifications by other threads, whose callbacks the loop finds without them. It therefore asks
        the system for events only where it sleeps.
        """
        if timeout is not None and timeout <= 0:
            return []
        if self.take_turns is not None and self.take_turns():
            return []
        return super().select(timeout)


class _CallerLoop:
    """An event loop that runs one call at a time, on any thread.

    It installs no handler of signals, as `asyncio.Runner` does for each call, which takes 15 µs. KeyboardInterrupt is
    raised where the caller is.
    """

    def __init__(self) -> None:
        self._selector = TurnSelector()
        self._loop = asyncio.SelectorEventLoop(self._selector)

    def run(self, work: Coroutine[Any, Any, Result], take_turns: Callable[[], bool]) -> Result:
        self._selector.take_turns = take_turns
        try:
            return self._loop.run_until_complete(work)
        finally:
            self._selector.take_turns = None

    def cancel(self) -> None:
        """Cancel the call that runs. Safe for any thread."""
        self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()

    def close(self) -> None:
        """End what an interrupted call has left, and close the loop. The thread may run another event loop."""
        if asyncio._get_running_loop() is None:
            self._end()
            return
        with ThreadPoolExecutor(1) as thread:  # this one cannot run two event loops
            thread.submit(self._end).result()

    def _end(self) -> None:
        try:
            self._loop.run_until_complete(_end_all(self._loop))
        finally:
            self._loop.close()


async def _end_all(loop: asyncio.AbstractEventLoop) -> None:
    """End all other tasks, generators and threads of the current event loop."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()


class CallerLoops:
    """The event loops of the calls on their callers' threads, one for each call in progress. Safe for any thread."""

    def __init__(self, closed: str) -> None:
        """closed: message of the error of calls that `close` cancels."""
        self._message = closed
        self._idle: list[_CallerLoop] = []
        self._running: set[_CallerLoop] = set()
        self._changed, self._closed = threading.Condition(), False

    def run(self, work: Coroutine[Any, Any, Result], take_turns: Callable[[], bool]) -> Result:
        """Run a coroutine on the calling thread, which must not run an event loop, and return its result.

        take_turns: see TurnSelector

        Raises Cancelled if `close` is called meanwhile.
        """
        loop = self._open()
        if loop is None:
            work.close()
            raise Cancelled(self._message)
        ended = False
        try:
            result = loop.run(work, take_turns)
            ended = True
        except asyncio.CancelledError:
            raise Cancelled(self._message) from None
        except Exception:
            ended = True
            raise
        finally:
            self._put_back(loop, ended=ended)
        return result

    def close(self) -> None:
        """Cancel all calls, wait until they have ended, and accept no more."""
        with self._changed:
            self._closed = True
            for loop in self._running:
                loop.cancel()
            self._changed.wait_for(lambda: not self._running, CLOSE_SECONDS)
            for loop in self._idle:
                loop.close()
            self._idle.clear()

    def _open(self) -> _CallerLoop | None:
        with self._changed:
            if self._closed:
                return None
            loop = self._idle.pop() if self._idle else _CallerLoop()
            self._running.add(loop)
            return loop

    def _put_back(self, loop: _CallerLoop, *, ended: bool) -> None:
        """Keep a loop after its call, or close it; ended: whether the call was not interrupted."""
        with self._changed:
            self._running.discard(loop)
            kept = ended and not self._closed and len(self._idle) < KEPT
            if kept:
                self._idle.append(loop)
            if self._closed:
                self._changed.notify_all()
        if not kept:
            loop.close()
