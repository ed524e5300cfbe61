"""Statuses of gRPC as errors of ours, with all that their details say; the base install decodes them itself."""

from __future__ import annotations

from collections.abc import Iterable

from google.rpc import code_pb2, error_details_pb2, status_pb2

from lingon.errors import ServerError

STATUS_DETAILS = "grpc-status-details-bin"
REQUEST_ID = "x-request-id"


def server_error(status: status_pb2.Status, request_id: str = "") -> ServerError:
    """The error of a status, with all that its details say."""
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


def call_error(code: int, message: str, trailers: Iterable[tuple[str, str | bytes]], server: str) -> ServerError:
    """The error of a call that ended with an error status.

    trailers: the trailing metadata; the details that gRPC has no field for are there
    server: named where it was not reached, or its answer says nothing of itself
    """
    found = dict(trailers)
    request_id, details = found.get(REQUEST_ID, ""), found.get(STATUS_DETAILS, b"")
    status = status_pb2.Status(code=code, message=message)
    if isinstance(details, bytes) and details:
        status = _rich_status(details, status)
    elif code == code_pb2.UNAVAILABLE:
        status.message = f"no answer from {server}: {message}"
    elif code == code_pb2.DEADLINE_EXCEEDED:
        status.message = f"no answer from {server} in time: {message}"
    return server_error(status, request_id if isinstance(request_id, str) else "")


def _rich_status(details: bytes, plain: status_pb2.Status) -> status_pb2.Status:
    """The status that the server wrote in full, unless it cannot be read or is of another call."""
    try:
        status = status_pb2.Status.FromString(details)
    except ValueError:  # protobuf's DecodeError is one
        return plain
    return status if status.code == plain.code else plain
