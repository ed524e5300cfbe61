"""The standard services of gRPC: health, with names for every served model and version, and server reflection.

grpcio-reflection (1.85.1) implements `v1alpha` only. Clients try `v1` first, and some know no other version. Both have
the same messages, so that one servicer answers both. The description of v1 is that of v1alpha with other names.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, text_format
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from lingon.errors import InvalidRequest

MAX_NAME = 256  # characters of a service name; a Watch call holds it as long as it lasts
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


def model_services(names: Iterable[str]) -> list[str]:
    """Return the names of the services of models; names: models and their versions, as in "en-de", "en-de/2"."""
    return [service for name in sorted(set(names)) for service in (name, f"model/{name}")]


class Health(health_pb2_grpc.HealthServicer):
    """The health service. Belongs to the event loop.

    Setting a status never waits. The health service of grpcio holds a lock while it writes to a watcher. A watcher that
    does not read would there delay every change of status, and so a drain.
    """

    def __init__(self) -> None:
        self._statuses: dict[str, int] = {}
        self._changed = asyncio.Event()

    def set_status(self, services: Iterable[str], status: int) -> None:
        """Set the services that exist and their status.

        Other services are NOT_FOUND for Check and SERVICE_UNKNOWN for Watch.
        """
        self._replace(dict.fromkeys(services, status))

    def change_status(self, services: Iterable[str], status: int) -> None:
        """Change the status of some of the services."""
        self._replace({**self._statuses, **dict.fromkeys(services, status)})

    def _replace(self, statuses: dict[str, int]) -> None:
        self._statuses = statuses
        self._changed.set()
        self._changed = asyncio.Event()

    async def Check(self, request: health_pb2.HealthCheckRequest, context: Any) -> health_pb2.HealthCheckResponse:
        """See grpc.health.v1."""
        service = _service_of(request)
        status = self._statuses.get(service)
        if status is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no service {service[:128]!r} is here")
        return health_pb2.HealthCheckResponse(status=status)

    async def Watch(
        self, request: health_pb2.HealthCheckRequest, context: Any
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """See grpc.health.v1. A slow reader gets only the latest status."""
        service, last = _service_of(request), None
        while True:
            changed, status = self._changed, self._statuses.get(service, UNKNOWN)
            if status != last:
                yield health_pb2.HealthCheckResponse(status=status)
                last = status
            else:
                await changed.wait()


def _service_of(request: health_pb2.HealthCheckRequest) -> str:
    """Return the name of the requested service. Raises InvalidRequest if it is too long."""
    if len(request.service) > MAX_NAME:
        message = f"service must have at most {MAX_NAME} characters, got {len(request.service)}"
        raise InvalidRequest("service", message)
    return request.service


V1ALPHA = reflection.SERVICE_NAME
V1 = V1ALPHA.replace("v1alpha", "v1")


def add_reflection(server: grpc.aio.Server, services: Sequence[str]) -> None:
    """Add both services to a server. They list themselves and `services`, which are full names of protobuf services."""
    _describe_v1()
    servicer = reflection.aio.ReflectionServicer([*services, V1, V1ALPHA])
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    for name in (V1, V1ALPHA):
        methods = {"ServerReflectionInfo": handler}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, methods),))
        server.add_registered_method_handlers(name, methods)


def _describe_v1() -> None:
    """Add the description of v1 to the pool of reflection, unless another library has done so."""
    pool = descriptor_pool.Default()
    try:
        pool.FindFileContainingSymbol(V1)
    except KeyError:
        file = descriptor_pb2.FileDescriptorProto()
        reflection_pb2.DESCRIPTOR.CopyToProto(file)
        file.name = "grpc/reflection/v1/reflection.proto"
        file.ClearField("options")  # those of generated code in other languages
        text = text_format.MessageToString(file).replace(V1ALPHA.rpartition(".")[0], V1.rpartition(".")[0])
        pool.AddSerializedFile(text_format.Parse(text, descriptor_pb2.FileDescriptorProto()).SerializeToString())
