"""Calls on several threads that end together, and their results in order."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from google.rpc import code_pb2

from lingon.client.protocol.steps import Send, Sleep
from lingon.errors import ServerError

Item = TypeVar("Item")
Result = TypeVar("Result")
Perform = Callable[[Send | Sleep], Any]

CHECK = 0.1  # seconds between two looks at whether a pause is still wanted


class Pending(Protocol):
    """A call that has been sent."""

    def result(self) -> Any:
        """Wait for the reply; raises ServerError."""

    def cancel(self) -> Any:
        """End the call: `result` raises."""


class CallGroup:
    """Carries out the steps of exchanges on several threads; all calls end together."""

    def __init__(self, begin: Callable[[Send], Pending], closed: threading.Event) -> None:
        """begin: sends a request; closed: set when the client is closed, which ends pauses too."""
        self._begin, self._closed = begin, closed
        self._cancelled, self._lock, self._calls = False, threading.Lock(), set[Pending]()

    def perform(self, step: Send | Sleep) -> Any:
        """Carry out a step and return its reply; raises ServerError."""
        if isinstance(step, Sleep):
            return self._pause(time.monotonic() + step.seconds)
        with self._lock:
            if self._cancelled:
                raise ServerError("the iterator was closed during this call", code_pb2.CANCELLED)
            call = self._begin(step)
            self._calls.add(call)
        try:
            return call.result()
        finally:
            with self._lock:
                self._calls.discard(call)

    def cancel(self) -> None:
        """End the calls in progress and their pauses, and take no more."""
        with self._lock:
            self._cancelled, calls = True, list(self._calls)
        for call in calls:
            call.cancel()

    def _pause(self, until: float) -> None:
        while (left := until - time.monotonic()) > 0 and not self._cancelled:
            if self._closed.wait(min(left, CHECK)):
                return


def in_order(
    items: Iterable[Item], work: Callable[[Item, Perform], Result], group: CallGroup, in_flight: int
) -> Generator[Result, None, None]:
    """work(item, perform) of every item, in_flight at once, in order.

    The items are read on the thread of the caller, because a cursor of a database may belong to it. An exception of
    theirs, or of the work, is raised after the results before it. Closing the generator cancels the work.
    """
    pool, waiting = ThreadPoolExecutor(in_flight, "lingon iterable"), deque[Future[Result]]()
    try:
        for future in _begun(items, lambda item: pool.submit(work, item, group.perform)):
            waiting.append(future)
            while len(waiting) == in_flight or (waiting and waiting[0].done()):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        group.cancel()
        pool.shutdown(cancel_futures=True)  # waits for the threads, whose calls end now


def _begun(items: Iterable[Item], begin: Callable[[Item], Future[Result]]) -> Iterator[Future[Result]]:
    """The futures of the items; if reading one fails, the last one has the exception."""
    try:
        for item in items:
            yield begin(item)
    except Exception as error:
        failed: Future[Result] = Future()
        failed.set_exception(error)
        yield failed
