"""Errors as `google.rpc.Status` and back, with the details that a client acts on, and the ids of requests."""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Callable, Iterable

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2

from lingon.errors import (
    Draining,
    EngineLost,
    InvalidRequest,
    ModelMemoryFull,
    ModelNotLoadable,
    NotStored,
    OutOfMemory,
    QueueFull,
    QuotaExceeded,
    RequestError,
    ServerError,
    StoreBusy,
    TooManyCalls,
    UnknownModel,
    WontFinish,
)

STATUS_DETAILS = "grpc-status-details-bin"
REQUEST_ID = "x-request-id"
CLIENT_ADDRESS = "x-lingon-client-address"  # of the client of a gateway; a server believes its own gateway alone
DEFAULT_DEADLINE = "x-lingon-default-deadline"
"""Metadata of a call whose deadline is a limit of the gateway: how long its client waits is not known."""

DOMAIN = "lingon"
_SANE_ID = re.compile(r"[A-Za-z0-9_.:/+=-]{1,128}")
RETRY_MILLISECONDS: dict[type[RequestError], int] = {
    QueueFull: 200,
    WontFinish: 200,
    TooManyCalls: 500,
    ModelMemoryFull: 1000,
    Draining: 1000,
    EngineLost: 500,
    OutOfMemory: 1000,
    StoreBusy: 1000,
}
"""Milliseconds until a retry makes sense: a queue moves within a few sentences, another replica answers at once."""


def request_id_from(given: str) -> str:
    """Return the id of a request: the one that its client gave it if that is safe to log, else a new one."""
    return given if _SANE_ID.fullmatch(given) else secrets.token_hex(16)


def to_status(error: RequestError) -> status_pb2.Status:
    """Return the status of an error with its details packed."""
    status = status_pb2.Status(code=error.code, message=str(error))
    for detail in _details(error):
        status.details.add().Pack(detail)
    return status


def _details(error: RequestError) -> list[Message]:
    found: list[Message] = [error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN)]
    if isinstance(error, InvalidRequest):
        violation = error_details_pb2.BadRequest.FieldViolation(field=error.field, description=str(error))
        found.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if isinstance(error, UnknownModel):
        found.append(
            error_details_pb2.ResourceInfo(resource_type="model", resource_name=error.resource, description=str(error))
        )
    if isinstance(error, NotStored):
        found.append(
            error_details_pb2.ResourceInfo(
                resource_type=error.kind, resource_name=error.resource, description=str(error)
            )
        )
    if milliseconds := retry_milliseconds(error):
        delay = Duration()
        delay.FromMilliseconds(milliseconds)
        found.append(error_details_pb2.RetryInfo(retry_delay=delay))
    return found


def retry_milliseconds(error: RequestError) -> int | None:
    """Return the milliseconds after which a retry makes sense, or None if it never does."""
    if isinstance(error, QuotaExceeded | ModelNotLoadable):
        return max(math.ceil(error.retry_after * 1000), 1)  # rounded up: a retry that is early fails again
    return next((after for kind, after in RETRY_MILLISECONDS.items() if isinstance(error, kind)), None)


def server_error(status: status_pb2.Status, request_id: str = "") -> ServerError:
    """Return the ServerError of a status and its details."""
    info, bad, again, request = (
        error_details_pb2.ErrorInfo(),
        error_details_pb2.BadRequest(),
        error_details_pb2.RetryInfo(),
        error_details_pb2.RequestInfo(),
    )
    retry_after = None
    for detail in status.details:
        for message in (info, bad, again, request):
            if detail.Unpack(message) and message is again:
                retry_after = again.retry_delay.ToTimedelta().total_seconds()
    return ServerError(
        " ".join(status.message.split()) or code_pb2.Code.Name(status.code),
        status.code,
        reason=info.reason,
        violations=tuple((violation.field, violation.description) for violation in bad.field_violations),
        request_id=request.request_id or request_id,
        retry_after=retry_after,
    )


def call_error(
    code: int, message: str, trailers: Iterable[tuple[str, str | bytes]], explain: Callable[[int, str], str]
) -> ServerError:
    """Return the error of a call that ended with an error status.

    trailers: the trailing metadata, which holds the details that gRPC has no field for
    explain: returns the message for a code and a message that gRPC itself made, without details of a server
    """
    found = dict(trailers)
    request_id, details = found.get(REQUEST_ID, ""), found.get(STATUS_DETAILS, b"")
    status = status_pb2.Status(code=code, message=message)
    if isinstance(details, bytes) and details:
        status = _rich_status(details, status)
    else:
        status.message = explain(code, message)
    return server_error(status, request_id if isinstance(request_id, str) else "")


def _rich_status(details: bytes, plain: status_pb2.Status) -> status_pb2.Status:
    """Return the status that the server sent in full. The plain one if that cannot be read or has another code."""
    try:
        status = status_pb2.Status.FromString(details)
    except ValueError:  # the base class of protobuf's DecodeError
        return plain
    return status if status.code == plain.code else plain
