"""The calls that a port has open at once: how many, for how long, and what their requests hold.

Memory is bounded by these limits and not by the number of callers. If a limit is reached, the caller with the most open
calls gives way, so that one caller cannot keep the others out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message

from lingon.errors import Expired, InvalidRequest, RequestError, TooManyCalls
from lingon.machine import usable_cores
from lingon.serving.event_loop import IdleTime
from lingon.serving.models.inflight import arrived
from lingon.serving.rpc.arrival import leave_place
from lingon.serving.rpc.calls import Context

SMALL_BYTES = 65_536  # bytes; a request up to this size is not counted in held_bytes, since max_calls bounds it
SLOW_SECONDS = 0.1  # seconds after which a request that is not whole is slow; a small one is whole when it is read
SLOW_CHECKS = 4  # parts of SLOW_SECONDS; a busy event loop delays each of them, so that it makes no request slow
IDLE_SHARE = 0.2  # of such a part: with less idle time it counts for nothing, since gRPC may lack a core to read
BUSY_CHECKS = 16  # parts that may count for nothing
CANCEL_SECONDS = 0.05  # seconds for the cancellation of a call to arrive after the end of its requests

EndCall = Callable[[RequestError], None]
"""Ends a call that waits for its request, from outside its task."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallLimits:
    """What the calls of one kind may hold.

    kind: name of the kind, for metrics
    max_calls: calls at once
    max_seconds: duration of a call; None for no limit
    receive_seconds: time until a request has arrived whole
    request_bytes: size of one request
    slow_calls: calls at once whose request is not whole after SLOW_SECONDS; a caller has at most a quarter of them
    held_bytes: bytes of the requests above SMALL_BYTES of all calls; a caller has at most half of them
    """

    kind: str
    max_calls: int
    max_seconds: float | None
    receive_seconds: float
    request_bytes: int
    slow_calls: int = 32
    held_bytes: int = 2**26


class OpenCalls:
    """The open calls of one kind. Belongs to the event loop."""

    def __init__(self, limits: CallLimits) -> None:
        self.limits, self.count, self.slow, self.placeless, self.held_bytes = limits, 0, 0, 0, 0
        self.cores = usable_cores()
        self._by_caller: dict[str, dict[OpenCall, None]] = {}  # newest last

    @property
    def receiving(self) -> int:
        """Open calls whose request has not arrived whole."""
        return sum(call.receiving for calls in self._by_caller.values() for call in calls)

    def open(self, context: Context, caller: str, end: EndCall) -> OpenCall:
        """Return what surrounds one call of the current task; end: sends the status of an error to the caller."""
        return OpenCall(self, context, caller, end)

    def add(self, call: OpenCall) -> None:
        """Open a call; raises TooManyCalls unless a caller with more calls can give way."""
        if self.count >= self.limits.max_calls:
            self._make_room(call.caller)
        self._by_caller.setdefault(call.caller, {})[call] = None
        self.count += 1

    def _make_room(self, caller: str) -> None:
        """End the newest call of the caller with the most, if that leaves it at least as many as this caller gets."""
        heaviest = max(self._by_caller.values(), key=len)
        error = TooManyCalls(f"{self.count} calls are open, and no more are allowed; try again")
        if len(heaviest) - 1 <= len(self._by_caller.get(caller, ())):
            raise error
        newest = next(reversed(heaviest))
        self.discard(newest)
        newest.end(error)

    def discard(self, call: OpenCall) -> None:
        """Close a call; a call that gave way is closed already."""
        calls = self._by_caller.get(call.caller, {})
        if call in calls:
            del calls[call]
            self.count -= 1
            self._release(call)
            if not calls:
                del self._by_caller[call.caller]

    def _release(self, call: OpenCall) -> None:
        self.slow -= call.slow
        self.placeless -= call.placeless
        self.held_bytes -= call.held_bytes
        call.slow, call.placeless, call.held_bytes = False, False, 0

    def leave_place(self, call: OpenCall) -> bool:
        """Let another call be read in the place of an unread one, if memory allows; returns whether it has left.

        gRPC buffers what the request of each call that is read sends, up to its whole size. The calls that have left
        their place, slow ones or not, are as few as slow ones may be.
        """
        if not call.placeless and self._has_room(self.placeless, [each.placeless for each in self._calls_of(call)]):
            call.placeless = True
            self.placeless += 1
            leave_place()
        return call.placeless

    def mark_slow(self, call: OpenCall) -> bool:
        """Let a call receive its request for longer; returns False if it has to keep its place; raises TooManyCalls."""
        if (unread := arrived.get()) is not None:
            unread.end()  # a drain does not wait for it
        if not self._has_room(self.slow, [each.slow for each in self._calls_of(call)]):
            raise TooManyCalls(f"{self.slow} requests arrive slowly, and no more are allowed; try again")
        if not self.leave_place(call):
            return False
        call.slow = True
        self.slow += 1
        return True

    def _calls_of(self, call: OpenCall) -> Iterable[OpenCall]:
        """Return the open calls of the caller of a call."""
        return self._by_caller.get(call.caller, ())

    def _has_room(self, count: int, own: Iterable[bool]) -> bool:
        """Whether one more call may arrive slowly; count: those that do; own: which ones of its caller do."""
        return count < self.limits.slow_calls and 4 * sum(own) < self.limits.slow_calls

    def hold(self, call: OpenCall, size: int) -> None:
        """Count the bytes of a whole request until its call ends; raises InvalidRequest or TooManyCalls."""
        self._release(call)
        limits, calls = self.limits, self._calls_of(call)
        if size > limits.request_bytes:
            message = f"the request must have at most {limits.request_bytes} bytes, got {size}"
            raise InvalidRequest("request", message)
        if size <= SMALL_BYTES or call not in calls:
            return
        own = sum(each.held_bytes for each in calls)
        if self.held_bytes + size > limits.held_bytes or own + size > limits.held_bytes // 2:
            raise TooManyCalls(f"the requests of open calls hold {self.held_bytes} bytes; try again")
        call.held_bytes = size
        self.held_bytes += size


class OpenCall:
    """Surrounds one call from its start to its end, as a context manager in the task of the call.

    If a limit ends the call, its task is cancelled; `limit_of` returns the error of such a cancellation.
    """

    def __init__(self, calls: OpenCalls, context: Context, caller: str, end: EndCall) -> None:
        self.caller, self.held_bytes = caller, 0
        self.receiving = self.slow = self.placeless = False
        self._calls, self._context, self._end_call = calls, context, end
        self._reading = False
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> OpenCall:
        """Count nothing yet: a call without a valid API key receives nothing, and takes no place of another call."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leave_place()
        self._set_timer(None)
        self._calls.discard(self)

    async def receive(self) -> bytes | Message:
        """Count the call and return its only request; raises RequestError."""
        self._open()
        self.receiving = True
        self._wait_until_slow(SLOW_CHECKS)
        raw = await self._read()
        self.receiving = False
        leave_place()
        if raw is None:
            await asyncio.sleep(CANCEL_SECONDS)
            raise InvalidRequest("request", "the call has no request")
        self._calls.hold(self, _size_of(raw))
        self._set_timer(self._calls.limits.max_seconds, self._took_too_long)
        return raw

    async def receive_all(self) -> AsyncIterator[bytes | Message]:
        """Count the call and yield its requests; raises RequestError."""
        self._open()
        self._set_timer(self._calls.limits.max_seconds, self._took_too_long)
        while (raw := await self._read()) is not None:
            self._calls.hold(self, _size_of(raw))
            yield raw

    def end(self, error: RequestError) -> None:
        """End the call early, from outside its task."""
        self._set_timer(None)
        if self._reading:
            # gRPC does not free a message that arrives while its read is cancelled. The status ends the read.
            self._end_call(error)
        elif self._task is not None:
            self._task.cancel(error)

    def _open(self) -> None:
        self._task = asyncio.current_task()
        self._calls.add(self)

    async def _read(self) -> bytes | Message | None:
        """Return the next request, a message if it comes from this process; None if there is none."""
        self._reading = True
        try:
            raw: Any = await self._context.read()
        finally:
            self._reading = False
        return None if raw is grpc.aio.EOF else raw

    def _set_timer(self, seconds: float | None, end: Callable[[], None] = lambda: None) -> None:
        """Replace the timer of the call; None for no timer."""
        if self._timer is not None:
            self._timer.cancel()
        if seconds is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds, end)

    def _wait_until_slow(self, checks: int, busy: int = BUSY_CHECKS, idle: IdleTime | None = None) -> None:
        """Mark the call as slow after so many checks, or end it; busy: checks that may count for nothing."""
        if idle is not None:
            elapsed, unused = idle.take()
            if busy and unused < IDLE_SHARE * elapsed:
                checks, busy = checks + 1, busy - 1  # it keeps its place: gRPC buffers what unfinished requests send
            else:
                self._calls.leave_place(self)  # others are not kept waiting by a request that arrives slowly
        elif checks < SLOW_CHECKS:
            idle = IdleTime(self._calls.cores)
        try:
            if not checks and self._calls.mark_slow(self):
                self._set_timer(self._calls.limits.receive_seconds, self._was_not_received)
                return
        except TooManyCalls as error:
            self.end(error)
            return
        left = max(checks - 1, 0)  # a call that cannot leave its place waits until another one is whole, slow or ended
        self._set_timer(SLOW_SECONDS / SLOW_CHECKS, partial(self._wait_until_slow, left, busy, idle))

    def _was_not_received(self) -> None:
        seconds = self._calls.limits.receive_seconds
        self.end(Expired(f"the request did not arrive whole within {seconds:g} s"))

    def _took_too_long(self) -> None:
        self.end(Expired(f"the call was not done within {self._calls.limits.max_seconds:g} s"))


def _size_of(raw: bytes | Message) -> int:
    return len(raw) if isinstance(raw, bytes) else raw.ByteSize()


def limit_of(error: asyncio.CancelledError) -> RequestError | None:
    """Return the error of a call that `OpenCall.end` cancelled; None if its caller cancelled it."""
    found = error.args[0] if error.args else None
    return found if isinstance(found, RequestError) else None


async def parsed_requests(opened: OpenCall, parse: Callable[[bytes], Any]) -> AsyncIterator[Any]:
    """Yield the messages of a call; raises InvalidRequest if the bytes of one are none."""
    async for raw in opened.receive_all():
        yield parsed(raw, parse)


def parsed(raw: bytes | Message, parse: Callable[[bytes], Any]) -> Any:
    """Return the message of a call; raises InvalidRequest if the bytes are none."""
    if isinstance(raw, Message):
        return raw
    try:
        return parse(raw)
    except DecodeError:
        raise InvalidRequest("request", "the request cannot be parsed; strings must be valid UTF-8") from None
