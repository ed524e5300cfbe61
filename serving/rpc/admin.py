"""The admin port: the models of a running server listed, loaded, swapped and unloaded over gRPC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc

from lingon.admin.v1 import admin_pb2 as pb
from lingon.admin.v1 import admin_pb2_grpc as pb_grpc
from lingon.serving.models.catalog import Entry
from lingon.serving.models.inflight import AdmissionGate
from lingon.serving.models.registry import ModelRegistry, ServedModel
from lingon.serving.models.reload import ModelReloader
from lingon.serving.rpc.ports import bind, grpc_server
from lingon.serving.settings import Settings

SERVICE = pb.DESCRIPTOR.services_by_name["ModelService"].full_name
METHODS = tuple(method.name for method in pb.DESCRIPTOR.services_by_name["ModelService"].methods)

Context = grpc.aio.ServicerContext[Any, Any]


async def open_admin(
    settings: Settings,
    fleet: ModelRegistry,
    changes: ModelReloader,
    gate: AdmissionGate,
    interceptors: Sequence[grpc.aio.ServerInterceptor],
    credentials: grpc.ServerCredentials | None = None,
) -> tuple[grpc.aio.Server, int]:
    """The server of the admin port, started, and its port.

    interceptors: what a call passes before it is answered; the first makes the errors of the others statuses
    """
    assert settings.admin_port is not None
    server = grpc_server(settings, interceptors)
    pb_grpc.add_ModelServiceServicer_to_server(ModelService(fleet, changes, gate), server)
    port = bind(server, settings.admin_host, settings.admin_port, credentials, flag="admin-port")
    await server.start()
    return server, port


class ModelService(pb_grpc.ModelServiceServicer):
    """Answers while the gate is open."""

    def __init__(self, fleet: ModelRegistry, changes: ModelReloader, gate: AdmissionGate) -> None:
        self._fleet, self._changes, self._gate = fleet, changes, gate

    async def ListModels(self, request: pb.ListModelsRequest, context: Context) -> pb.ListModelsResponse:
        """See the proto file."""
        self._gate.check()
        models = [described(entry, pb.MODEL_STATE_SERVING) for entry in self._fleet.catalog.entries]
        models += [described(entry, pb.MODEL_STATE_LEAVING) for entry in self._fleet.draining]
        if (loading := self._changes.loading) is not None:
            models.append(
                pb.Model(
                    name=loading.name,
                    version=str(loading.version),
                    source_language_code=loading.source_language,
                    target_language_code=loading.target_language,
                    state=pb.MODEL_STATE_LOADING,
                )
            )
        return pb.ListModelsResponse(models=sorted(models, key=lambda model: (model.name, int(model.version))))

    async def LoadModel(self, request: pb.LoadModelRequest, context: Context) -> pb.LoadModelResponse:
        """See the proto file."""
        self._gate.check()
        entry = await self._changes.load(request.path)
        return pb.LoadModelResponse(model=described(entry, pb.MODEL_STATE_SERVING))

    async def SwapModel(self, request: pb.SwapModelRequest, context: Context) -> pb.SwapModelResponse:
        """See the proto file."""
        self._gate.check()
        swapped = await self._changes.swap(request.path)
        return pb.SwapModelResponse(
            model=described(swapped.entry, pb.MODEL_STATE_SERVING), unloaded=sorted(swapped.unloaded)
        )

    async def UnloadModel(self, request: pb.UnloadModelRequest, context: Context) -> pb.UnloadModelResponse:
        """See the proto file."""
        self._gate.check()
        await self._changes.unload(request.name, request.version)
        return pb.UnloadModelResponse()


def described(entry: Entry[ServedModel], state: pb.ModelState.ValueType) -> pb.Model:
    """A model as ListModels tells it."""
    served = entry.model
    return pb.Model(
        name=entry.name,
        version=str(entry.version),
        source_language_code=entry.source,
        target_language_code=entry.target,
        precision=served.translator.precision,
        provider=served.translator.provider,
        state=state,
        graph_bytes=served.translator.graph_bytes,
        requests=served.in_flight.count,
        folder=str(served.folder),
    )
