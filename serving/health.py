"""The standard health service of gRPC, with names that come and go as models do."""

from __future__ import annotations

from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2

UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


class Health(health.aio.HealthServicer):
    """On the event loop only."""

    async def forget(self, service: str) -> None:
        """A service is there no more: NOT_FOUND to whoever asks, SERVICE_UNKNOWN to whoever watches."""
        await self.set(service, UNKNOWN)

    async def Check(self, request: health_pb2.HealthCheckRequest, context: Any) -> Any:
        """See grpc.health.v1."""
        reply = await super().Check(request, context)
        if reply.status == UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND)
        return reply
