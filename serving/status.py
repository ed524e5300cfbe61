"""Errors as `google.rpc.Status`, with the details that a client acts on."""

from __future__ import annotations

import math

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2 as details
from google.rpc import status_pb2

from lingon.errors import Draining, EngineLost, InvalidRequest, QueueFull, QuotaExceeded, RequestError, UnknownModel

DOMAIN = "lingon"
RETRY_MILLISECONDS: dict[type[RequestError], int] = {QueueFull: 200, Draining: 1000, EngineLost: 500}
"""When it is worth asking again: a full queue moves within some sentences, another replica answers at once."""


class NotServed(UnknownModel):
    """No served model is the one asked for.

    resource: what was asked for, as in `google.rpc.ResourceInfo`
    """

    def __init__(self, resource: str, message: str) -> None:
        super().__init__(message)
        self.resource = resource


def to_status(error: RequestError) -> status_pb2.Status:
    """The status of an error with its details packed."""
    status = status_pb2.Status(code=error.code, message=str(error))
    for detail in _details(error):
        status.details.add().Pack(detail)
    return status


def _details(error: RequestError) -> list[Message]:
    found: list[Message] = [details.ErrorInfo(reason=error.reason, domain=DOMAIN)]
    if isinstance(error, InvalidRequest):
        violation = details.BadRequest.FieldViolation(field=error.field, description=str(error))
        found.append(details.BadRequest(field_violations=[violation]))
    if isinstance(error, UnknownModel):
        name = error.resource if isinstance(error, NotServed) else ""
        found.append(details.ResourceInfo(resource_type="model", resource_name=name, description=str(error)))
    if milliseconds := retry_milliseconds(error):
        delay = Duration()
        delay.FromMilliseconds(milliseconds)
        found.append(details.RetryInfo(retry_delay=delay))
    return found


def retry_milliseconds(error: RequestError) -> int | None:
    """When it is worth asking again; None where it is not."""
    if isinstance(error, QuotaExceeded):
        return max(math.ceil(error.retry_after * 1000), 1)  # not a moment too early
    return next((after for kind, after in RETRY_MILLISECONDS.items() if isinstance(error, kind)), None)
