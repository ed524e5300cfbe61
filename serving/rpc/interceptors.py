"""The interceptors of a port: every call ends with a status that Lingon chose, is counted, timed, logged and traced."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing, suppress
from functools import partial
from inspect import isawaitable
from itertools import product
from types import TracebackType
from typing import Any, TypeAlias

import grpc
from google.rpc import code_pb2, status_pb2

from lingon.errors import (
    Cancelled,
    EngineFault,
    EngineLost,
    Expired,
    ModelUnloaded,
    NotBegun,
    OutOfMemory,
    RequestError,
)
from lingon.serving.auth.callers import KEY, address_of, caller_of, presented_key
from lingon.serving.auth.charges import Charge, charge
from lingon.serving.models.inflight import Arrived, was_unloaded
from lingon.serving.observability.logs import CallLog, fault
from lingon.serving.observability.metrics import CALL_OUTCOMES, METHODS, TIMED_METHODS, Metrics
from lingon.serving.observability.tracing import NullTracer, Tracer, enter
from lingon.serving.rpc.admission import CallLimits
from lingon.serving.rpc.calls import SERVICE, Context, Metadata, abort, ending_of, is_late, request_id_of
from lingon.serving.rpc.open_calls import OpenCall, OpenCalls, limit_of, parsed, parsed_requests
from lingon.status import REQUEST_ID, to_status

_BEGUN = (
    Expired,
    Cancelled,
    EngineLost,
    EngineFault,
    ModelUnloaded,
    OutOfMemory,
)  # errors of calls that failed after their work had begun
_REFUSED = (code_pb2.UNAUTHENTICATED, code_pb2.PERMISSION_DENIED)
_CODE_NAMES: dict[int, str] = {number: name for name, number in code_pb2.Code.items()}

UNLIMITED = CallLimits(
    kind="translation", max_calls=sys.maxsize, max_seconds=None, receive_seconds=60, request_bytes=sys.maxsize
)

logger = logging.getLogger(__name__)
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Admit = Callable[[str, Context], None]
"""Takes the method and the context of a call. Raises RequestError to refuse it."""


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """An interceptor of every call of a port, of any service. All errors become a status that Lingon chose.

    gRPC would send the text of an error to the client, with the status UNKNOWN.
    """

    def __init__(
        self,
        metrics: Metrics | None = None,
        admit: Admit = lambda method, context: None,
        limits: Mapping[str, CallLimits] | None = None,
        on_slow: Callable[[Arrived], None] = lambda call: None,
    ) -> None:
        """metrics: for the calls that end with a RequestError, by its reason, and the calls of each API key.

        admit: raises RequestError for a call that must not be read
        limits: bounds of the calls of each service, by the prefix of its path; "" is for all others
        on_slow: see `OpenCalls`
        """
        self.call_log, self.admit, self._metrics = CallLog(logger), admit, metrics
        limits = {"": UNLIMITED, **(limits or {})}
        shared = {each: OpenCalls(each, on_slow) for each in limits.values()}
        self._open_calls = {start: shared[each] for start, each in limits.items()}
        self._wrapped: dict[str, tuple[Handler, Handler]] = {}  # by method: a handler, and its surrounded handler
        self._endings: set[asyncio.Task[None]] = set()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Return the surrounded handler of a call, or None for an unknown method, which gRPC answers itself."""
        method = handler_call_details.method
        try:
            handler = await continuation(handler_call_details)
        except Exception as error:
            # The client may have invented the name of the method.
            return self._wrap("", grpc.stream_stream_rpc_method_handler(_raising(error)))
        if handler is None:
            return None
        known = self._wrapped.get(method)
        if known is None or known[0] is not handler:
            known = self._wrapped[method] = handler, self._wrap(method, handler)
        return known[1]

    def _wrap(self, method: str, handler: Handler) -> Handler:
        calls = self._open_calls[max((start for start in self._open_calls if method.startswith(start)), key=len)]
        return _wrap(handler, self.beginning(method, calls), partial(self.admit, method))

    def end_soon(self, ending: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that ends a call from outside its task."""
        task = asyncio.get_running_loop().create_task(ending)
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)

    def beginning(self, method: str, calls: OpenCalls) -> Callable[[Context], Call]:
        """Return the function that makes the Call of a method's call; calls: counts it."""
        return partial(Call, self, method, calls)

    def refusal(self, error: Exception, fields: dict[str, str]) -> status_pb2.Status:
        """Return the status of a call that ends with an error, and count it; fields: for the log."""
        if self._metrics is not None and isinstance(error, RequestError):
            self._metrics.rejected.labels(error.reason).inc()
        status = _status_of(error, fields)
        # gRPC keeps the error with its call in a cycle, and its frames keep the request and an unloaded model.
        traceback.clear_frames(error.__traceback__)
        return status

    async def refuse_unknown_method(self, check: Callable[[Metadata], None], context: Context) -> None:
        """End a call of an unknown method; check: raises RequestError for a caller that gets another error."""
        try:
            check(context.invocation_metadata() or ())
            self.admit("", context)
        except RequestError as error:
            with (call := Call(self, "", self._open_calls[""], context)):
                raise error
            await call.abort()
        self.count_other(code_pb2.UNIMPLEMENTED)
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!", ())

    def count_other(self, code: int) -> None:
        """Count a call that ended and does not belong to TranslationService."""
        if self._metrics is not None:
            self._metrics.other_requests.labels(_CODE_NAMES[code]).inc()
        self.count_key(code)

    def count_key(self, code: int) -> None:
        """Count an ended call for its API key."""
        key = presented_key.get()
        if key is not None and self._metrics is not None:
            self._metrics.keys.ended(key.name, _CODE_NAMES[code])


class CallInterceptor(ErrorInterceptor):
    """An interceptor that also counts, times and traces the calls of TranslationService."""

    def __init__(
        self,
        metrics: Metrics,
        tracer: Tracer | None = None,
        admit: Admit = lambda method, context: None,
        limits: Mapping[str, CallLimits] | None = None,
        on_slow: Callable[[Arrived], None] = lambda call: None,
    ) -> None:
        super().__init__(metrics, admit, limits, on_slow)
        self.tracer, self.metrics = tracer or NullTracer(), metrics
        self.in_flight = 0
        metrics.in_flight.set_function(lambda: self.in_flight)
        for calls in self._open_calls.values():
            metrics.open_calls.labels(calls.limits.kind).set_function(partial(getattr, calls, "count"))
            metrics.receiving_calls.labels(calls.limits.kind).set_function(partial(getattr, calls, "receiving"))
        self._requests = {
            (method, code): metrics.requests.labels(method, _CODE_NAMES[code])
            for method, code in product(METHODS, _CODE_NAMES)
        }
        self._durations = {
            (method, refused): metrics.duration.labels(method, CALL_OUTCOMES[refused])
            for method, refused in product(TIMED_METHODS, (False, True))
        }

    def beginning(self, method: str, calls: OpenCalls) -> Callable[[Context], Call]:
        """See ErrorInterceptor. A method that a client invented becomes no label."""
        name = method.removeprefix(SERVICE)
        if name in METHODS and method.startswith(SERVICE):
            return partial(MeasuredCall, self, name, calls)
        return super().beginning(method, calls)

    def count(self, method: str, code: int, seconds: float, *, refused: bool, exemplar: dict[str, str] | None) -> None:
        """Count a call that ended; exemplar: see `Trace`."""
        self._requests[method, code].inc()
        if method in TIMED_METHODS:
            self._durations[method, refused].observe(seconds, exemplar)

    def refused_early(
        self, method: str, error: RequestError, metadata: Metadata, request_id: str, caller: str, seconds: float
    ) -> None:
        """Count, log and trace a call that ends so many seconds after it arrived, unread."""
        code = _CODE_NAMES[error.code]
        self.tracer.call(method, request_id, metadata, caller).end(error.code)
        self.metrics.rejected.labels(error.reason).inc()
        self.count(method, error.code, seconds, refused=True, exemplar=None)
        if caller.startswith(KEY):
            self.metrics.keys.ended(caller.removeprefix(KEY), code)
        milliseconds = round(seconds * 1000, 1)
        self.call_log.record(code, method=method, milliseconds=milliseconds, request_id=request_id, caller=caller)


class Call(OpenCall):
    """A context manager around the work on one call, which keeps the error for `abort`."""

    def __init__(self, interceptor: ErrorInterceptor, method: str, calls: OpenCalls, context: Context) -> None:
        """calls: counts the call when it receives its request."""
        super().__init__(calls, context, caller_of(context))
        self._interceptor, self._method = interceptor, method
        self._metadata = context.invocation_metadata() or ()
        self._ids = {"request_id": request_id_of(self._metadata)}
        self._failure: status_pb2.Status | None = None
        self._refused = False
        self._peer: str = context.peer()  # gRPC forgets it when the caller disconnects
        self.charge: Charge | None = None  # charge of its request

    def __enter__(self) -> None:
        """Set the request id in the trailing metadata of the call."""
        self._context.set_trailing_metadata(((REQUEST_ID, self._ids["request_id"]),))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Convert an error to the status of the call, and return whether `abort` must end the call with it."""
        self.close()
        found = None if error is None else _cause_of(error)
        if self.charge is not None:
            self.charge.settle(found)
        if found is None:
            self._end(code_pb2.OK)
        elif isinstance(found, grpc.aio.AbortError):  # the method has already ended the call
            self._end(self._context.code().value[0])
        elif isinstance(found, Exception):
            fields = {"method": self._method, **self._ids, "caller": self.caller}
            self._failure = self._interceptor.refusal(found, fields)
            self._refused = _was_refused(found)
            self._end(self._failure.code)
        else:  # the call was cancelled, or its coroutine was closed
            self._end(code_pb2.DEADLINE_EXCEEDED if is_late(self._context) else code_pb2.CANCELLED)
            if found is not error:
                raise found from None
        return self._failure is not None

    async def abort(self) -> None:
        """End the call with the status of its error.

        This runs after the block, so that the error is no context of gRPC's error. The call was counted before, so that
        a client with the status finds the call in the metrics.
        """
        assert self._failure is not None
        await abort(self._context, ending_of(self._failure), self._ids["request_id"])

    def end_unread(self, error: RequestError) -> None:
        """Send the status of an error from outside the task, which waits for a request and then gets an AbortError."""
        self._refused = True
        status = self._interceptor.refusal(error, {"method": self._method, **self._ids, "caller": self.caller})
        self._interceptor.end_soon(self._abort_early(status))

    async def _abort_early(self, status: status_pb2.Status) -> None:
        with suppress(Exception):  # `abort` always raises
            await abort(self._context, ending_of(status), self._ids["request_id"])

    def _end(self, code: int) -> None:
        self._interceptor.count_other(code)
        if self._failure is not None:
            self._interceptor.call_log.record(_CODE_NAMES[code], **self._fields(code))

    def _fields(self, code: int) -> dict[str, str]:
        """Return the ids of the call and the caller for the log, with the address if the caller was refused."""
        fields = {**self._ids, "caller": self.caller}
        if code in _REFUSED and self.caller != (address := address_of(self._peer, self._metadata)):
            fields["address"] = address.partition("/")[2]
        return fields


class MeasuredCall(Call):
    """A context manager around a call of TranslationService, which also measures it."""

    def __init__(self, interceptor: CallInterceptor, method: str, calls: OpenCalls, context: Context) -> None:
        super().__init__(interceptor, method, calls, context)
        self._measured, self._start = interceptor, time.perf_counter()
        self._trace = enter(interceptor.tracer.call(method, self._ids["request_id"], self._metadata, self.caller))
        if self._trace.trace_id:
            self._ids["trace_id"] = self._trace.trace_id
        interceptor.in_flight += 1

    def _end(self, code: int) -> None:
        seconds = time.perf_counter() - self._start
        self._measured.in_flight -= 1
        self._measured.count(self._method, code, seconds, refused=self._refused, exemplar=self._trace.exemplar)
        self._measured.count_key(code)
        if code != code_pb2.OK or logger.isEnabledFor(logging.DEBUG):
            fields = {"method": self._method, "milliseconds": round(seconds * 1000, 1), **self._fields(code)}
            self._measured.call_log.record(_CODE_NAMES[code], **fields)
        self._trace.end(code)


def _was_refused(error: Exception) -> bool:
    """Return whether a call ended with this error before its work began, so that its duration is not observed."""
    begun = isinstance(error, _BEGUN) and not isinstance(error, NotBegun)
    return isinstance(error, RequestError) and not begun


def _wrap(handler: Handler, begin: Callable[[Context], Call], admit: Callable[[Context], None]) -> Handler:
    """Return a handler for surrounded and counted calls.

    It reads requests itself. gRPC keeps the bytes of a request until its call ends, does not limit the time until a
    request is complete, and ends a call with invalid bytes with its own status.

    admit: checks the caller before anything of the call is read; raises RequestError
    """
    parse = handler.request_deserializer or bytes
    behaviour: Any = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
    streams = handler.request_streaming

    async def unary(_: Any, context: Context) -> Any:
        with (call := begin(context)):
            admit(context)
            request = parsed_requests(call, parse) if streams else parsed(await call.receive(), parse)
            call.charge = charge(request)
            return await behaviour(request, context)
        await call.abort()  # reached only by a failed call, because `call` has caught its error

    async def stream(_: Any, context: Context) -> None:
        with (call := begin(context)):
            admit(context)
            request = parsed_requests(call, parse) if streams else parsed(await call.receive(), parse)
            call.charge = charge(request)
            replies = behaviour(request, context)
            if isawaitable(replies):  # the method writes its replies itself
                await replies
                return
            # Closed here, because otherwise a cancelled call would decode until the garbage collector runs.
            async with aclosing(replies):
                async for reply in replies:
                    await _write(context, reply)
            return
        await call.abort()

    if handler.response_streaming:
        return grpc.stream_stream_rpc_method_handler(stream, None, handler.response_serializer)
    return grpc.stream_unary_rpc_method_handler(unary, None, handler.response_serializer)


async def _write(context: Context, reply: bytes) -> None:
    """Write one reply of a stream.

    A call that is cancelled during a message gets no status, because a status cannot overtake a message.
    """
    try:
        await context.write(reply)
    except asyncio.CancelledError:
        raise asyncio.CancelledError from None


def _cause_of(error: BaseException) -> BaseException:
    """Return the cause of a cancelled call: its caller disconnected, its model was unloaded, or it reached a limit."""
    if isinstance(error, grpc.aio.InternalError):  # a reply cannot be sent, because the caller disconnected
        return asyncio.CancelledError()
    if not isinstance(error, asyncio.CancelledError):
        return error
    reason = ModelUnloaded() if was_unloaded(error) else limit_of(error)
    if reason is None:
        return error
    task = asyncio.current_task()
    assert task is not None, "every call has a task"
    task.uncancel()
    return reason


def _raising(error: Exception) -> Any:
    async def fail(requests: AsyncIterator[bytes], context: Context) -> None:
        raise error

    return fail


def _status_of(error: Exception, fields: dict[str, str]) -> status_pb2.Status:
    """Return the status of an error. An unexpected error is logged, and the status has nothing of it."""
    if isinstance(error, RequestError):
        return to_status(error)
    if isinstance(error, NotImplementedError):  # a method of one of gRPC's own services
        return status_pb2.Status(code=code_pb2.UNIMPLEMENTED, message="the method is not implemented")
    fault(logger, "a call failed", error, **fields)
    message = f"internal error; the server's log has its cause under request id {fields['request_id']}"
    return status_pb2.Status(code=code_pb2.INTERNAL, message=message)
