"""The admin port: lists, loads, swaps and unloads the models of a running server over gRPC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import grpc

from lingon.admin.v1 import admin_pb2 as pb
from lingon.admin.v1 import admin_pb2_grpc as pb_grpc
from lingon.bundle.manifest import Languages, Manifest
from lingon.serving.auth.callers import caller_of
from lingon.serving.models.catalog import Entry
from lingon.serving.models.inflight import AdmissionGate
from lingon.serving.models.pool import ModelPool
from lingon.serving.models.registry import ModelRegistry, ServedModel
from lingon.serving.models.reload import ModelReloader
from lingon.serving.rpc.calls import Context
from lingon.serving.rpc.ports import ADMIN_BYTES, bind, grpc_server
from lingon.serving.settings import Settings

SERVICE = pb.DESCRIPTOR.services_by_name["ModelService"].full_name
METHODS = tuple(method.name for method in pb.DESCRIPTOR.services_by_name["ModelService"].methods)


async def open_admin(
    settings: Settings,
    registry: ModelRegistry,
    reloader: ModelReloader,
    pool: ModelPool,
    gate: AdmissionGate,
    interceptors: Sequence[grpc.aio.ServerInterceptor],
    connections: int,
    credentials: grpc.ServerCredentials | None = None,
) -> tuple[grpc.aio.Server, int]:
    """Start the server of the admin port and return it with its port.

    connections: bound of the connections to the port
    interceptors: the outermost first; the first one turns the errors of the others into statuses
    """
    assert settings.admin_port is not None
    server = grpc_server(settings, interceptors, ADMIN_BYTES, connections)
    pb_grpc.add_ModelServiceServicer_to_server(ModelService(registry, reloader, pool, gate), server)
    port = bind(server, settings.admin_host, settings.admin_port, credentials, flag="admin-port")
    await server.start()
    return server, port


class ModelService(pb_grpc.ModelServiceServicer):
    """The methods of the admin port. They raise Draining while the gate is closed."""

    def __init__(self, registry: ModelRegistry, reloader: ModelReloader, pool: ModelPool, gate: AdmissionGate) -> None:
        self._registry, self._reloader, self._pool, self._gate = registry, reloader, pool, gate

    async def ListModels(self, request: pb.ListModelsRequest, context: Context) -> pb.ListModelsResponse:
        self._gate.check()
        models = [self._served_message(entry) for entry in self._registry.catalog.entries]
        models += [_message(entry, pb.MODEL_STATE_LEAVING) for entry in self._registry.draining]
        if (loading := self._reloader.loading) is not None:
            models.append(self._loading_message(loading))
        return pb.ListModelsResponse(models=sorted(models, key=lambda model: (model.name, int(model.version))))

    def _served_message(self, entry: Entry[ServedModel]) -> pb.Model:
        """Return the message of a model of the catalog, with the progress of its load if it is being loaded."""
        if entry.model.is_loaded:
            return _message(entry, pb.MODEL_STATE_SERVING)
        if entry.model not in self._pool.loading:
            return _message(entry, pb.MODEL_STATE_COLD)
        model = _message(entry, pb.MODEL_STATE_LOADING)
        self._add_progress(model, entry.label)
        return model

    def _loading_message(self, manifest: Manifest) -> pb.Model:
        """Return the message of a model that is being loaded, with its progress once the load has begun."""
        model = pb.Model(
            name=manifest.name,
            version=str(manifest.version),
            source_language_code=manifest.source_language,
            target_language_code=manifest.target_language,
            **_languages(manifest.languages),
            state=pb.MODEL_STATE_LOADING,
        )
        self._add_progress(model, f"{manifest.name}/{manifest.version}")
        return model

    def _add_progress(self, model: pb.Model, label: str) -> None:
        progress = self._registry.progress
        if progress is not None and progress.label == label and not progress.ended:
            model.load_phase, model.load_seconds = progress.phase, progress.total()

    async def LoadModel(self, request: pb.LoadModelRequest, context: Context) -> pb.LoadModelResponse:
        self._gate.check()
        entry = await self._reloader.load(request.path, caller_of(context))
        return pb.LoadModelResponse(model=_message(entry, pb.MODEL_STATE_SERVING))

    async def SwapModel(self, request: pb.SwapModelRequest, context: Context) -> pb.SwapModelResponse:
        self._gate.check()
        swapped = await self._reloader.swap(request.path, caller_of(context))
        return pb.SwapModelResponse(
            model=_message(swapped.entry, pb.MODEL_STATE_SERVING), unloaded=sorted(swapped.unloaded)
        )

    async def UnloadModel(self, request: pb.UnloadModelRequest, context: Context) -> pb.UnloadModelResponse:
        self._gate.check()
        await self._reloader.unload(request.name, request.version, caller_of(context))
        return pb.UnloadModelResponse()


class _LanguageCodes(TypedDict):
    """The fields of a model with several languages."""

    source_language_codes: list[str]
    target_language_codes: list[str]


def _languages(languages: Languages | None) -> _LanguageCodes:
    """Return the languages of a model with several, or none for a model of one pair."""
    sides = (languages.sources, languages.targets) if languages else ((), ())
    source, target = ([each.language for each in side] for side in sides)
    return {"source_language_codes": source, "target_language_codes": target}


def _message(entry: Entry[ServedModel], state: pb.ModelState.ValueType) -> pb.Model:
    """Return the message of a model."""
    served, described = entry.model, entry.model.describe()
    return pb.Model(
        name=entry.name,
        version=str(entry.version),
        source_language_code=entry.source,
        target_language_code=entry.target,
        **_languages(entry.languages),
        precision=described.precision,
        provider=described.provider,
        state=state,
        graph_bytes=served.translator.graph_bytes if served.is_loaded else 0,
        memory_bytes=served.memory_bytes,
        requests=served.in_flight.count,
        folder=str(served.folder),
    )
