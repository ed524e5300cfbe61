"""What a call carries beside its message: request id, deadline, and the status it is ended with."""

from __future__ import annotations

import re
import secrets
import time
from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2

from lingon.errors import NotBegun

_GRPC_CODES: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}

REQUEST_ID = "x-request-id"
RETRY_AFTER = "retry-after-ms"
ON_THE_WAY = 0.2  # seconds that a call may take from its caller to us
_SANE_ID = re.compile(r"[A-Za-z0-9_.:/+=-]{1,128}")
_STATUS_DETAILS = "grpc-status-details-bin"
Context = grpc.aio.ServicerContext[Any, Any]


def request_id_of(context: Context) -> str:
    """A call's id: the client's own, if it is one that may stand in a log; else a new one."""
    for name, value in context.invocation_metadata() or ():
        if name == REQUEST_ID and _SANE_ID.fullmatch(str(value)):
            return str(value)
    return secrets.token_hex(16)


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


async def abort(context: Context, status: status_pb2.Status, request_id: str) -> None:
    """End a call with a status; when it is worth asking again is told twice, for clients that unpack no details."""
    trailers: list[tuple[str, str | bytes]] = [(_STATUS_DETAILS, status.SerializeToString()), (REQUEST_ID, request_id)]
    retry = error_details_pb2.RetryInfo()
    for detail in status.details:
        if detail.Unpack(retry):
            trailers.append((RETRY_AFTER, str(retry.retry_delay.ToMilliseconds())))
    await context.abort(_GRPC_CODES[status.code], status.message, tuple(trailers))


def deadline_of(context: Context) -> float | None:
    """The caller's deadline on the clock of `time.monotonic`."""
    remaining = time_left(context)
    if remaining is None:
        return None
    if remaining <= 0:
        raise NotBegun("the deadline passed before the call began")
    return time.monotonic() + remaining
