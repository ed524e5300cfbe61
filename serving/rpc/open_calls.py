"""The calls that a port has open at once: their number, their duration, and the bytes of their requests.

These limits bound the memory for any number of callers. `admission` decides, and this module counts and acts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextvars import Context
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message

from lingon.errors import Expired, InvalidRequest, RequestError, TooManyCalls
from lingon.machine import usable_cores
from lingon.serving.event_loop import IdleTime
from lingon.serving.models.inflight import Arrived, arrived
from lingon.serving.rpc.admission import (
    CHECKS_TO_REFUSE,
    SMALL_BYTES,
    CallLimits,
    Reading,
    caller_to_evict,
    refused_for_its_size,
    while_arriving,
)
from lingon.serving.rpc.calls import Context as CallContext

SLOW_SECONDS = 0.1  # seconds; an incomplete request is then refused if too many requests are slow
CHECKS = 4  # checks of the incomplete requests in SLOW_SECONDS; a busy event loop delays a check and adds none
IDLE_SHARE = 0.2  # share of idle time; with less a check does not count, because gRPC may lack a core
UNCOUNTED_CHECKS = 16  # checks of one request that may not count
CANCEL_SECONDS = 0.05  # seconds for the cancellation of a call to arrive after the end of its requests


class OpenCalls:
    """The open calls of one kind. Belongs to the event loop."""

    def __init__(self, limits: CallLimits, on_slow: Callable[[Arrived], None] = lambda call: None) -> None:
        """on_slow: called with a call whose request arrives so slowly that a drain must not wait for it."""
        self.limits, self.count, self.slow, self.held_bytes = limits, 0, 0, 0
        self._on_slow, self._cores = on_slow, usable_cores()
        self._by_caller: dict[str, dict[OpenCall, None]] = {}  # newest last
        self._arriving: dict[OpenCall, None] = {}  # calls with an incomplete request; newest last
        self._idle: IdleTime | None = None  # since the last check; None without incomplete requests

    @property
    def receiving(self) -> int:
        """The number of open calls with an incomplete request."""
        return len(self._arriving)

    def add(self, call: OpenCall) -> None:
        """Open a call. Raises TooManyCalls unless a call of a caller with more calls can be evicted."""
        if self.count >= self.limits.max_calls:
            error = TooManyCalls(f"{self.count} calls are open, and no more are allowed; try again")
            heaviest = caller_to_evict(self._by_caller, call.caller)
            if heaviest is None:
                raise error
            newest = next(reversed(self._by_caller[heaviest]))
            self.discard(newest)
            newest.end(error)
        self._by_caller.setdefault(call.caller, {})[call] = None
        self.count += 1

    def discard(self, call: OpenCall) -> None:
        """Close a call. A call that was evicted, or never opened, is already closed."""
        calls = self._by_caller.get(call.caller)
        if calls is None or call not in calls:
            return
        del calls[call]
        if not calls:
            del self._by_caller[call.caller]
        self.count -= 1
        self.held_bytes -= call.held_bytes
        self._arriving.pop(call, None)
        if call.is_slow:
            self.slow -= 1

    def expect(self, call: OpenCall) -> None:
        """Check the request of a call until it is complete."""
        self._arriving[call] = None
        if self._idle is None:
            self._idle = IdleTime(self._cores)
            self._check_soon()

    def forget(self, call: OpenCall) -> None:
        """Stop the checks of a call that is being ended."""
        self._arriving.pop(call, None)

    def hold(self, call: OpenCall, size: int) -> None:
        """Count the bytes of a complete request until its call ends. Raises InvalidRequest or TooManyCalls."""
        self._arriving.pop(call, None)
        if call.is_slow:
            call.is_slow, self.slow = False, self.slow - 1
        self.held_bytes -= call.held_bytes
        call.held_bytes = 0
        if size <= min(SMALL_BYTES, self.limits.request_bytes):
            return
        calls = self._by_caller.get(call.caller, {})
        own = sum(each.held_bytes for each in calls)
        error = refused_for_its_size(size, held=self.held_bytes, own=own, limits=self.limits)
        if error is not None:
            raise error
        if size > SMALL_BYTES and call in calls:
            call.held_bytes = size
            self.held_bytes += size

    def _check_soon(self) -> None:
        # In a separate context, because a check does not belong to the call that happens to start it.
        asyncio.get_running_loop().call_later(SLOW_SECONDS / CHECKS, self._check_arriving, context=Context())

    def _check_arriving(self) -> None:
        """Check the calls with incomplete requests, the oldest first, and end those that have to end."""
        if not self._arriving:
            self._idle = None
            return
        assert self._idle is not None, "there are calls to check"
        self._check_soon()
        elapsed, idle = self._idle.take()
        for call in tuple(self._arriving):
            if idle < IDLE_SHARE * elapsed and call.uncounted < UNCOUNTED_CHECKS:
                call.uncounted += 1  # it keeps its slot, because gRPC buffers the bytes of incomplete requests
            else:
                self._check_request(call)

    def _check_request(self, call: OpenCall) -> None:
        call.checks += 1
        if call.checks == CHECKS_TO_REFUSE and call.arrived is not None:
            self._on_slow(call.arrived)
        own = sum(each.is_slow for each in self._by_caller[call.caller])
        now = asyncio.get_running_loop().time()
        reading = while_arriving(
            call.checks, now - call.since, slow=call.is_slow, all_slow=self.slow, own_slow=own, limits=self.limits
        )
        if reading is Reading.SLOW:  # a slow request must not delay others
            call.is_slow, self.slow = True, self.slow + 1
            if call.arrived is not None:
                call.arrived.leave_slot()
        elif reading is Reading.REFUSE:
            call.end(TooManyCalls(f"{self.slow} requests arrive slowly, and no more are allowed; try again"))
        elif reading is Reading.EXPIRE:
            call.end(Expired(f"the request did not arrive whole within {self.limits.receive_seconds:g} s"))


class OpenCall:
    """One call from its start to `close`, in the task of the call.

    If a limit ends the call, its task is cancelled. `limit_of` returns the error of such a cancellation.
    """

    def __init__(self, calls: OpenCalls, context: CallContext, caller: str) -> None:
        """Count nothing yet, because a call without a valid API key gets no slot."""
        self.caller, self.arrived = caller, arrived.get()
        self.held_bytes = 0  # bytes of its complete request, if it is large
        self.since = 0.0  # when it was opened
        self.checks = self.uncounted = 0  # checks of its request while it is incomplete
        self.is_slow = False  # whether its request arrives slowly and it has left its slot
        self._calls, self._context = calls, context
        self._reading = False
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """Close the call, whether it was opened or not."""
        if self._timer is not None:
            self._timer.cancel()
        self._calls.discard(self)

    async def receive(self) -> bytes | Message:
        """Open the call and return its only request. Raises RequestError."""
        self._open()
        self._calls.expect(self)
        self._reading = True
        try:
            raw: Any = await self._context.read()
        finally:
            self._reading = False
        if self.arrived is not None:
            self.arrived.leave_slot()
        if raw is grpc.aio.EOF:
            await asyncio.sleep(CANCEL_SECONDS)
            raise InvalidRequest("request", "the call has no request")
        self._calls.hold(self, len(raw) if isinstance(raw, bytes) else raw.ByteSize())
        return raw  # type: ignore[no-any-return]

    async def receive_all(self) -> AsyncIterator[bytes | Message]:
        """Open the call and yield its requests. Raises RequestError."""
        self._open()
        seconds = self._calls.limits.message_seconds
        while True:
            self._reading = True
            late = None if seconds is None else asyncio.get_running_loop().call_later(seconds, self._message_is_late)
            try:
                raw: Any = await self._context.read()
            finally:
                self._reading = False
                if late is not None:
                    late.cancel()
            if raw is grpc.aio.EOF:
                return
            self._calls.hold(self, len(raw) if isinstance(raw, bytes) else raw.ByteSize())
            yield raw

    def end(self, error: RequestError) -> None:
        """End the call early, from outside its task."""
        self._calls.forget(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._reading:
            # gRPC does not free a message that arrives while its read is cancelled. The status ends the read.
            self.end_unread(error)
        elif self._task is not None:
            self._task.cancel(error)

    def end_unread(self, error: RequestError) -> None:
        """Send the status of an error, while the task of the call waits for its request."""
        raise NotImplementedError

    def _open(self) -> None:
        self._calls.add(self)
        self._task, loop = asyncio.current_task(), asyncio.get_running_loop()
        self.since = loop.time()
        seconds = self._calls.limits.max_seconds
        if seconds is not None:
            self._timer = loop.call_later(seconds, self._took_too_long)

    def _message_is_late(self) -> None:
        self.end(Expired(f"the next message did not arrive within {self._calls.limits.message_seconds:g} s"))

    def _took_too_long(self) -> None:
        self.end(Expired(f"the call was not done within {self._calls.limits.max_seconds:g} s"))


def limit_of(error: asyncio.CancelledError) -> RequestError | None:
    """Return the error of a call that `OpenCall.end` cancelled, or None if its caller cancelled it."""
    found = error.args[0] if error.args else None
    return found if isinstance(found, RequestError) else None


async def parsed_requests(opened: OpenCall, parse: Callable[[bytes], Any]) -> AsyncIterator[Any]:
    """Yield the messages of a call. Raises InvalidRequest for invalid bytes."""
    async for raw in opened.receive_all():
        yield parsed(raw, parse)


def parsed(raw: bytes | Message, parse: Callable[[bytes], Any]) -> Any:
    """Return the message of a call. Raises InvalidRequest for invalid bytes."""
    if isinstance(raw, Message):
        return raw
    try:
        return parse(raw)
    except DecodeError:
        raise InvalidRequest("request", "the request cannot be parsed; strings must be valid UTF-8") from None
