"""What surrounds every call: its request id, its count and time, and the one place where errors become statuses."""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError
from google.rpc import code_pb2, status_pb2

from lingon.errors import InvalidRequest, RequestError
from lingon.translation.v1 import translation_pb2 as pb
from serving.logs import event, fault
from serving.metrics import Metrics
from serving.status import to_status

REQUEST_ID = "x-request-id"
ON_THE_WAY = 0.2  # seconds that a call may take from its caller to us
_SANE_ID = re.compile(r"[A-Za-z0-9_.:/+=-]{1,128}")
_STATUS_DETAILS = "grpc-status-details-bin"
_SERVICE = f"/{pb.DESCRIPTOR.services_by_name['TranslationService'].full_name}/"

logger = logging.getLogger(__name__)
Context = grpc.aio.ServicerContext[Any, Any]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class Guard(grpc.aio.ServerInterceptor):
    """Guards the calls of TranslationService; health and reflection go their way."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """The handler of a call, guarded."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or not method.startswith(_SERVICE):
            return handler
        name, parse = method.removeprefix(_SERVICE), handler.request_deserializer
        # The guard parses: what cannot be parsed would end with a status that is not ours.
        if handler.response_streaming:
            guarded = self._stream(handler.unary_stream, parse, name)
            return grpc.unary_stream_rpc_method_handler(guarded, None, handler.response_serializer)
        return grpc.unary_unary_rpc_method_handler(
            self._unary(handler.unary_unary, parse, name), None, handler.response_serializer
        )

    def _unary(self, behaviour: Any, parse: Any, method: str) -> Any:
        async def call(raw: bytes, context: Context) -> Any:
            async with self._watched(method, context):
                return await behaviour(_parsed(raw, parse), context)

        return call

    def _stream(self, behaviour: Any, parse: Any, method: str) -> Any:
        async def call(raw: bytes, context: Context) -> None:
            # Closed here and at once: left to the garbage collector, a cancelled call would go on decoding.
            async with self._watched(method, context), aclosing(behaviour(_parsed(raw, parse), context)) as replies:
                async for reply in replies:
                    await context.write(reply)

        return call

    @asynccontextmanager
    async def _watched(self, method: str, context: Context) -> AsyncIterator[None]:
        """Count and time a call, and end it with the right status."""
        request_id, start = _request_id(context), time.perf_counter()
        code: int = code_pb2.OK
        failure: status_pb2.Status | None = None
        self._metrics.in_flight.inc()
        context.set_trailing_metadata(((REQUEST_ID, request_id),))
        try:
            yield
        except RequestError as error:
            code, failure = error.code, to_status(error)
            self._metrics.rejected.labels(error.reason).inc()
        except asyncio.CancelledError:
            code = code_pb2.DEADLINE_EXCEEDED if is_late(context) else code_pb2.CANCELLED
            raise
        except Exception as error:
            code = code_pb2.INTERNAL
            fault(logger, "a call failed", error, method=method, request_id=request_id)
            message = f"internal error; the server's log has its cause under request id {request_id}"
            failure = status_pb2.Status(code=code, message=message)
        finally:
            seconds, name = time.perf_counter() - start, code_pb2.Code.Name(code)
            self._metrics.in_flight.dec()
            self._metrics.requests.labels(method, name).inc()
            self._metrics.duration.labels(method).observe(seconds)
            event(
                logger,
                logging.DEBUG,
                "call",
                method=method,
                code=name,
                milliseconds=round(seconds * 1000, 1),
                request_id=request_id,
            )
        if failure is not None:  # counted first: who has the answer finds it in the figures
            await _abort(context, failure, request_id)


def _parsed(raw: bytes, parse: Callable[[bytes], Any]) -> Any:
    try:
        return parse(raw)
    except DecodeError:
        raise InvalidRequest("request", "the request cannot be parsed; strings must be valid UTF-8") from None


def _request_id(context: Context) -> str:
    """The client's own, if it is one that may stand in a log; else a new one."""
    for name, value in context.invocation_metadata() or ():
        if name == REQUEST_ID and _SANE_ID.fullmatch(str(value)):
            return str(value)
    return uuid.uuid4().hex


def is_late(context: Context) -> bool:
    """Whether it was the deadline that ended a call which was cut short.

    The caller's clock started before ours, by as long as the call was on its way: its own deadline cuts the call
    while ours still shows a moment.
    """
    remaining = time_left(context)
    return remaining is not None and remaining <= ON_THE_WAY


def time_left(context: Context) -> float | None:
    """Seconds until the deadline of a call; None without one, which the type stubs of grpc deny."""
    return context.time_remaining()


async def _abort(context: Context, status: status_pb2.Status, request_id: str) -> None:
    await context.abort(
        _GRPC_CODES[status.code],
        status.message,
        ((_STATUS_DETAILS, status.SerializeToString()), (REQUEST_ID, request_id)),
    )


_GRPC_CODES: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}
