"""The standard health service of gRPC, with names that come and go as models do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


class Health(health_pb2_grpc.HealthServicer):
    """On the event loop only.

    To tell a status waits for nobody. The service that gRPC brings holds a lock while it writes to one who watches:
    where that one reads nothing, whoever has to tell a status would wait for it, and so would a drain.
    """

    def __init__(self) -> None:
        self._told: dict[str, int] = {}
        self._changed = asyncio.Event()

    def tell(self, services: Iterable[str], status: int) -> None:
        """These services are there, in this state; others are no more.

        Those are NOT_FOUND to whoever asks, SERVICE_UNKNOWN to whoever watches.
        """
        self._told = dict.fromkeys(services, status)
        self._changed.set()
        self._changed = asyncio.Event()

    async def Check(self, request: health_pb2.HealthCheckRequest, context: Any) -> health_pb2.HealthCheckResponse:
        """See grpc.health.v1."""
        status = self._told.get(request.service)
        if status is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no service {request.service[:128]!r} is here")
        return health_pb2.HealthCheckResponse(status=status)

    async def Watch(
        self, request: health_pb2.HealthCheckRequest, context: Any
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """See grpc.health.v1; who reads slowly hears the last state, not each."""
        last = None
        while True:
            changed, status = self._changed, self._told.get(request.service, UNKNOWN)
            if status != last:
                yield health_pb2.HealthCheckResponse(status=status)
                last = status
            else:
                await changed.wait()
