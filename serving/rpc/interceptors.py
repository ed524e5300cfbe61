"""What surrounds every call: its request id, its count and time, and the one place where errors become statuses."""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, contextmanager
from functools import partial
from inspect import isawaitable
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError
from google.rpc import code_pb2, status_pb2
from prometheus_client import Counter

from lingon.errors import InvalidRequest, ModelUnloaded, RequestError
from lingon.serving.auth.interceptor import charged
from lingon.serving.models.inflight import was_dismissed
from lingon.serving.observability.logs import CallLog, fault
from lingon.serving.observability.metrics import METHODS, Metrics
from lingon.serving.observability.tracing import NullTracer, Tracer, enter
from lingon.serving.rpc.calls import REQUEST_ID, Context, abort, is_late, request_id_of
from lingon.status import to_status
from lingon.translation.v1 import translation_pb2 as pb

_SERVICE = f"/{pb.DESCRIPTOR.services_by_name['TranslationService'].full_name}/"

logger = logging.getLogger(__name__)
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Surrounds every call of a port, of whatever service: no error leaves it but as a status that we chose.

    gRPC would send the text of an error to the client, under the status UNKNOWN.
    """

    def __init__(self, rejected: Counter | None = None) -> None:
        """rejected: counts calls that end with an error of ours, by its reason."""
        self._log, self._rejected = CallLog(logger), rejected

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """The handler of a call, guarded; None for a method that is not there, which gRPC answers itself."""
        method = handler_call_details.method
        try:
            handler = await continuation(handler_call_details)
        except Exception as error:
            handler, method = grpc.stream_stream_rpc_method_handler(_raising(error)), ""  # it may be made up
        return _guarded(handler, partial(self._watched, method)) if handler is not None else None

    def _watched(self, method: str, context: Context) -> AbstractAsyncContextManager[None]:
        """What a call is served in: it ends the call with the right status."""
        return self._ended(method, context)

    @asynccontextmanager
    async def _ended(self, method: str, context: Context) -> AsyncIterator[None]:
        request_id = request_id_of(context)
        context.set_trailing_metadata(((REQUEST_ID, request_id),))
        try:
            yield
        except (asyncio.CancelledError, grpc.aio.AbortError):
            raise
        except Exception as error:
            failure = self._refused(error, {"method": method, "request_id": request_id})
        else:
            return
        self._log.tell(code_pb2.Code.Name(failure.code), request_id=request_id)
        await abort(context, failure, request_id)

    def _refused(self, error: Exception, ids: dict[str, str]) -> status_pb2.Status:
        """The status of a call that ends with an error, which is counted."""
        if self._rejected is not None and isinstance(error, RequestError):
            self._rejected.labels(error.reason).inc()
        status = _failure(error, ids)
        # gRPC keeps the error with its call, in a cycle: with it went the request, and a model that was swapped out.
        traceback.clear_frames(error.__traceback__)
        return status


class CallInterceptor(ErrorInterceptor):
    """Counts, times and follows the calls of TranslationService as well."""

    def __init__(self, metrics: Metrics, tracer: Tracer | None = None) -> None:
        super().__init__(metrics.rejected)
        self._metrics, self._tracer = metrics, tracer or NullTracer()

    def _watched(self, method: str, context: Context) -> AbstractAsyncContextManager[None]:
        name = method.removeprefix(_SERVICE)
        if name in METHODS and method.startswith(_SERVICE):  # a label is never what a client makes up
            return self._counted(name, context)
        return super()._watched(method, context)

    @asynccontextmanager
    async def _counted(self, method: str, context: Context) -> AsyncIterator[None]:
        request_id, start = request_id_of(context), time.perf_counter()
        code: int = code_pb2.OK
        failure: status_pb2.Status | None = None
        trace = enter(self._tracer.call(method, request_id, context.invocation_metadata() or ()))
        ids = {"request_id": request_id} | ({"trace_id": trace.trace_id} if trace.trace_id else {})
        self._metrics.in_flight.inc()
        context.set_trailing_metadata(((REQUEST_ID, request_id),))
        try:
            yield
        except asyncio.CancelledError:
            code = code_pb2.DEADLINE_EXCEEDED if is_late(context) else code_pb2.CANCELLED
            raise
        except Exception as error:
            failure = self._refused(error, {"method": method, **ids})
            code = failure.code
        finally:
            seconds, name = time.perf_counter() - start, code_pb2.Code.Name(code)
            self._metrics.in_flight.dec()
            self._metrics.requests.labels(method, name).inc()
            self._metrics.duration.labels(method).observe(seconds)
            self._log.tell(name, method=method, milliseconds=round(seconds * 1000, 1), **ids)
            trace.end(code)
        if failure is not None:  # counted first: who has the answer finds it in the figures
            await abort(context, failure, request_id)


def _guarded(handler: Handler, watched: Callable[[Context], AbstractAsyncContextManager[None]]) -> Handler:
    """The same behaviour within `watched`. It parses here: what cannot be would end with a status that is not ours."""
    parse = handler.request_deserializer or bytes
    behaviour: Any = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
    read: Any = partial(_each if handler.request_streaming else parsed, parse=parse)

    async def unary(raw: Any, context: Context) -> Any:
        async with watched(context):
            request = read(raw)
            with charged(request), _cancelled():
                return await behaviour(request, context)

    async def stream(raw: Any, context: Context) -> None:
        async with watched(context):
            request = read(raw)
            with charged(request), _cancelled():
                replies = behaviour(request, context)
                if isawaitable(replies):  # it writes them itself
                    await replies
                    return
                # Closed here and at once: left to the garbage collector, a cancelled call would go on decoding.
                async with aclosing(replies):
                    async for reply in replies:
                        await _written(context, reply)

    made = stream if handler.response_streaming else unary
    return _MAKERS[handler.request_streaming, handler.response_streaming](made, None, handler.response_serializer)


async def _written(context: Context, reply: bytes) -> None:
    """Send a reply of several; whoever is dismissed meanwhile is told nothing: no status overtakes a message."""
    try:
        await context.write(reply)
    except asyncio.CancelledError:
        raise asyncio.CancelledError from None


@contextmanager
def _cancelled() -> Iterator[None]:
    """A call that is cut short ends as what it is: left by its caller, or dismissed by us."""
    try:
        yield
    except grpc.aio.InternalError:  # a reply cannot be sent: whoever should have it has gone
        raise asyncio.CancelledError from None
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or not was_dismissed(error):
            raise
        task.uncancel()
        raise ModelUnloaded from None


_MAKERS: dict[tuple[bool, bool], Callable[..., Handler]] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


def _raising(error: Exception) -> Any:
    async def fail(requests: AsyncIterator[bytes], context: Context) -> None:
        raise error

    return fail


def _failure(error: Exception, ids: dict[str, str]) -> status_pb2.Status:
    """The status of an error; of one that nobody expected the log tells, and the status has no word of it."""
    if isinstance(error, RequestError):
        return to_status(error)
    if isinstance(error, NotImplementedError):  # a method of a service that gRPC brings
        return status_pb2.Status(code=code_pb2.UNIMPLEMENTED, message="the method is not implemented")
    fault(logger, "a call failed", error, **ids)
    message = f"internal error; the server's log has its cause under request id {ids['request_id']}"
    return status_pb2.Status(code=code_pb2.INTERNAL, message=message)


async def _each(requests: AsyncIterator[bytes], parse: Callable[[bytes], Any]) -> AsyncIterator[Any]:
    async for raw in requests:
        yield parsed(raw, parse)


def parsed(raw: bytes, parse: Callable[[bytes], Any]) -> Any:
    """The message of a call; raises InvalidRequest where the bytes are none."""
    try:
        return parse(raw)
    except DecodeError:
        raise InvalidRequest("request", "the request cannot be parsed; strings must be valid UTF-8") from None
