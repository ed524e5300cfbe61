"""The status of a failed call and its details, and an engine whose calls all fail."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from lingon.serving.decoding.job import Job
from lingon.serving.engine.engine import Engine

CANARY = "canary"
"""A text that must appear in no reply and no log."""


class BrokenEngine(Engine):
    """An engine that raises an unexpected error with CANARY in its message."""

    def submit(self, jobs: Sequence[Job]) -> None:
        raise ValueError(f"secret {CANARY} /etc/path")


async def failure(call: Awaitable[Any]) -> tuple[status_pb2.Status, dict[str, Any]]:
    """Return the status with which a call fails, and its trailing metadata."""
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    status = rpc_status.from_call(raised.value)  # type: ignore[arg-type]
    if status is None:
        status = status_pb2.Status(code=raised.value.code().value[0], message=raised.value.details())
    assert (status.code, status.message) == (raised.value.code().value[0], raised.value.details())
    return status, dict(raised.value.trailing_metadata())


def details(status: status_pb2.Status) -> dict[str, Any]:
    """Return the details of a status by the name of their message type."""
    kinds = [
        error_details_pb2.ErrorInfo,
        error_details_pb2.BadRequest,
        error_details_pb2.RetryInfo,
        error_details_pb2.ResourceInfo,
    ]
    found = {}
    for packed in status.details:
        (kind,) = [kind for kind in kinds if packed.Is(kind.DESCRIPTOR)]
        message = kind()
        packed.Unpack(message)
        found[kind.DESCRIPTOR.name] = message
    assert found["ErrorInfo"].domain == "lingon"
    return found
