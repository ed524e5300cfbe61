"""The properties of a gRPC call besides its messages: request id, deadline, final status."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import grpc
from google.rpc import error_details_pb2, status_pb2

from lingon.errors import InvalidRequest, NotBegun
from lingon.serving.rpc.admission import LATE
from lingon.status import DEFAULT_DEADLINE, REQUEST_ID, STATUS_DETAILS, request_id_from
from lingon.translation.v1 import translation_pb2 as pb

_GRPC_CODES: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}

SERVICE = f"/{pb.DESCRIPTOR.services_by_name['TranslationService'].full_name}/"  # prefix of the paths of its methods
RETRY_AFTER = "retry-after-ms"
TRANSIT_SECONDS = 0.2  # seconds that a call may take from its caller to the server
PATIENCE_SECONDS = 10.0
"""Seconds that a call may wait until its work begins if it has no deadline. Most HTTP clients give up after about ten
seconds, and later work for them is lost. The work itself may take longer.
"""

Context = grpc.aio.ServicerContext[Any, Any]
Metadata = Iterable[tuple[str, str | bytes]]


def request_id_of(metadata: Metadata) -> str:
    """Return the id of a call; see `request_id_from`."""
    return request_id_from(next((str(value) for name, value in metadata if name == REQUEST_ID), ""))


def is_late(context: Context) -> bool:
    """Return whether the deadline, and not the caller, cancelled a call.

    The caller's clock started earlier, by the transit time of the call. Its deadline therefore ends the call while some
    time is left here.
    """
    remaining = time_left(context)
    return remaining is not None and remaining <= TRANSIT_SECONDS


def time_left(context: Context) -> float | None:
    """Return the seconds until the deadline of a call, or None without one, although grpc's type stubs deny it."""
    return context.time_remaining()


def patience_of(context: Context, left: float | None) -> float:
    """Return the seconds that a call may wait until its work begins, infinity with a deadline set by its client.

    left: seconds until the deadline, or None without one
    """
    if left is None or any(name == DEFAULT_DEADLINE for name, _ in context.invocation_metadata() or ()):
        return PATIENCE_SECONDS
    return math.inf


class Ending(NamedTuple):
    """The end of a call: the arguments of `Context.abort`, without the request id in the trailers."""

    code: grpc.StatusCode
    message: str
    trailers: tuple[tuple[str, str | bytes], ...]


def ending_of(status: status_pb2.Status) -> Ending:
    """Return the ending with a status. A retry delay is also in the trailers, for clients that ignore details."""
    trailers: list[tuple[str, str | bytes]] = [(STATUS_DETAILS, status.SerializeToString())]
    retry = error_details_pb2.RetryInfo()
    for detail in status.details:
        if detail.Unpack(retry):
            trailers.append((RETRY_AFTER, str(retry.retry_delay.ToMilliseconds())))
    return Ending(_GRPC_CODES[status.code], status.message, tuple(trailers))


async def abort(context: Context, ending: Ending, request_id: str) -> None:
    """End a call. Raises the error that gRPC expects."""
    try:
        await context.abort(ending.code, ending.message, (*ending.trailers, (REQUEST_ID, request_id)))
    except grpc.aio.AbortError as error:
        # gRPC keeps the error with its call, and the frames of the error keep the call and its request. This cycle
        # would hold their memory until the garbage collector runs. The frames have ended when the loop runs next.
        asyncio.get_running_loop().call_soon(error.with_traceback, None)
        raise


def deadline_of(context: Context) -> float | None:
    """Return the caller's deadline on the clock of `time.monotonic`. Raises NotBegun if it has passed."""
    remaining = time_left(context)
    if remaining is None:
        return None
    if remaining <= 0:
        raise NotBegun(LATE)
    return time.monotonic() + remaining


def check_count(field: str, count: int, most: int) -> None:
    """Raise InvalidRequest for a request without texts or pairs, or with more than `most`; field: that has them."""
    if not 1 <= count <= most:
        raise InvalidRequest(field, f"{field} must be 1 to {most}, got {count}")
