"""A server from its start to its end: bind, load, warm up, serve, drain."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from lingon.bundle import Bundle
from lingon.serving.engine.engine import still_running
from lingon.serving.models.catalog import Catalog, Entry
from lingon.serving.models.inflight import AdmissionGate
from lingon.serving.models.loading import bundles, load_translator
from lingon.serving.models.registry import LAST_WORDS, ModelRegistry, ServedModel
from lingon.serving.models.reload import ModelReloader
from lingon.serving.models.supervisor import Supervisor
from lingon.serving.observability.http import HttpEndpoint
from lingon.serving.observability.logs import event, unexpected
from lingon.serving.observability.metrics import Metrics
from lingon.serving.observability.tracing import open_tracer
from lingon.serving.rpc.admin import open_admin
from lingon.serving.rpc.health import Health
from lingon.serving.rpc.interceptors import CallInterceptor, ErrorInterceptor
from lingon.serving.rpc.ports import PortSecurity, allow_many_files, bind, grpc_server
from lingon.serving.rpc.service import TranslationService
from lingon.serving.runtime.device import onnxruntime_version
from lingon.serving.settings import Settings
from lingon.serving.system.event_loop import LagMonitor
from lingon.serving.system.memory import limit_malloc_caches
from lingon.serving.system.threads import run_in_thread
from lingon.serving.translation.translator import Translator
from lingon.translation.v1 import translation_pb2 as pb
from lingon.translation.v1 import translation_pb2_grpc as pb_grpc

SERVICE = pb.DESCRIPTOR.services_by_name["TranslationService"].full_name
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
LATECOMERS = 4.0  # seconds for a crowd that comes as the server ends to be refused: on a busy machine it takes some
HEARTBEAT = 0.25  # seconds between two looks at the engines

logger = logging.getLogger(__name__)


class Server:
    """One server; `run` is its life."""

    def __init__(
        self, settings: Settings, announce: Callable[[str], None], load: Callable[..., Translator] = load_translator
    ) -> None:
        """announce: is told one line when the server is ready; load: makes a model of a bundle."""
        self._settings, self._announce, self._locks = settings, announce, PortSecurity(settings)
        self._tracer = open_tracer(traces=settings.traces)
        self.metrics = Metrics(onnxruntime_version())
        self.port = self.metrics_port = self.admin_port = 0  # real ones once it is bound
        self.bound = asyncio.Event()
        self.abandoned = False  # a thread still loads, computes or hangs, which cannot be interrupted
        self._gate, self._stopping = AdmissionGate(), asyncio.Event()
        self._fleet = ModelRegistry(settings, self.metrics, load)
        self._changes = ModelReloader(self._fleet, self.metrics, settings.models, self._published)
        self._supervisor = Supervisor(settings.hang_seconds, settings.max_restarts)
        most = min(settings.max_texts, settings.max_queue_texts)  # more would never find room in the queue
        self._service = TranslationService(self._gate, self.metrics, most, lambda: self._fleet.catalog)
        self._health = Health()
        self._serving, self._pulse = False, LagMonitor()
        self._names = ["", SERVICE]  # of which health tells the same
        self._admin: grpc.aio.Server | None = None

    async def run(self) -> int:
        """Serve until a signal comes or an engine dies; returns the exit code."""
        settings, found = self._settings, bundles(self._settings.models)
        self._names += sorted({f"model/{bundle.manifest.name}" for bundle in found})
        self._listen_to_signals(on=True)
        asyncio.get_running_loop().set_exception_handler(unexpected)
        pulse = asyncio.create_task(self._pulse.measure(self.metrics.loop_lag.observe))
        with HttpEndpoint(
            settings.metrics_host, settings.metrics_port, self.metrics.registry, self._is_serving
        ) as endpoint:
            server = self._grpc_server()
            self.port = bind(server, settings.host, settings.port, self._locks.credentials())
            self.metrics_port = endpoint.port
            if settings.admin_port is not None:
                self._admin, self.admin_port = await open_admin(
                    settings,
                    self._fleet,
                    self._changes,
                    self._gate,
                    [ErrorInterceptor(self.metrics.rejected), *self._locks.interceptors(admin=True)],
                    self._locks.credentials(),
                )
            self._tell()
            await server.start()
            self.bound.set()
            try:
                if not await self._load(found):
                    return 0
                self._open()
                return await self._serve()
            finally:
                await self._close(server)
                pulse.cancel()
                self._listen_to_signals(on=False)

    def stop(self) -> None:
        """Begin to end."""
        self._stopping.set()

    def _on_signal(self) -> None:
        if self._stopping.is_set():
            os._exit(1)  # the second one: at once
        self.stop()

    def _listen_to_signals(self, *, on: bool) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            if on:
                loop.add_signal_handler(number, self._on_signal)
            else:
                loop.remove_signal_handler(number)

    def _grpc_server(self) -> grpc.aio.Server:
        server = grpc_server(self._settings, [CallInterceptor(self.metrics, self._tracer), *self._locks.interceptors()])
        pb_grpc.add_TranslationServiceServicer_to_server(self._service, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        if self._settings.reflection:
            reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
        return server

    async def _load(self, found: Sequence[Bundle]) -> bool:
        """Load all models; False if a signal came first."""
        loading = run_in_thread(partial(self._fleet.load_all, found), "loading")
        self.abandoned = not await self._before_the_end(loading)
        if not self.abandoned:
            self._fleet.publish(loading.result())
        return not self._stopping.is_set()

    async def _before_the_end(self, work: asyncio.Future[Any]) -> bool:
        """Whether work is done; waits for it until the server is told to end."""
        stopping = asyncio.create_task(self._stopping.wait())
        both: set[asyncio.Future[Any]] = {work, stopping}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        return work.done()

    def _open(self) -> None:
        self._gate.open()
        self._set_serving(True)
        self._announce(_ready_line(self._fleet.catalog, self._settings, self.port, self.metrics_port))

    async def _serve(self) -> int:
        """Serve; then drain. The exit code tells whether it was by intent."""
        while not self._stopping.is_set():
            if sick := [entry for entry in self._fleet.watched if self._supervisor.sick(entry)]:
                self._set_serving(False)
                healing = asyncio.create_task(self._heal(sick))
                if not await self._before_the_end(healing):
                    healing.cancel()
                    self.abandoned = True  # a thread that starts an engine, or hangs in that
                    break
                if not healing.result():
                    self.abandoned = True  # a thread that hangs would hold up an orderly end
                    return 1
                self._set_serving(True)
            try:
                async with asyncio.timeout(HEARTBEAT):
                    await self._stopping.wait()
            except TimeoutError:
                continue
        await self._drain()
        return 0

    async def _heal(self, sick: Sequence[Entry[ServedModel]]) -> bool:
        """As the supervisor says of each; unless it is gone by then."""
        well = True
        for entry in sick:
            async with entry.model.care:
                well &= entry.model.gone or await self._supervisor.heal(entry)
        return well

    def _published(self) -> None:
        """Other models are served: health has their names."""
        self._names = ["", SERVICE, *self._fleet.names]
        self._tell()

    async def _drain(self) -> None:
        """Say NOT_SERVING, let load balancers notice, refuse what is new, wait for what is inside."""
        self._set_serving(False)
        await asyncio.sleep(self._settings.propagation_seconds)
        self._gate.close()
        event(logger, logging.INFO, "draining")
        if not await self._gate.empty(self._settings.drain_seconds):
            event(logger, logging.WARNING, "calls are cut off", after_seconds=self._settings.drain_seconds)

    async def _close(self, server: grpc.aio.Server) -> None:
        self._gate.close()
        self._changes.close()
        self._supervisor.give_up()
        await self._fleet.stop()
        await self._gate.empty(LAST_WORDS)
        await self._gate.quiet(LATECOMERS)
        await asyncio.gather(*(each.stop(LAST_WORDS) for each in (self._admin, server) if each is not None))
        self.abandoned = self.abandoned or self._changes.busy or still_running()
        await self._tracer.close()
        event(logger, logging.INFO, "stopped")

    def _set_serving(self, serving: bool) -> None:
        self._serving = serving
        self.metrics.ready.set(serving)
        self._tell()

    def _tell(self) -> None:
        self._health.tell(self._names, SERVING if self._serving else NOT_SERVING)

    def _is_serving(self) -> bool:
        """For other threads: a loop that hangs cannot say so itself."""
        return self._serving and self._pulse.seconds_since_beat() < self._settings.hang_seconds


def serve(settings: Settings, announce: Callable[[str], None]) -> int:
    """Run a server until it ends; returns the exit code."""

    async def live() -> int:
        server = Server(settings, announce)
        code = await server.run()
        if server.abandoned:
            os._exit(code)  # an orderly end would wait for the thread, or abort where it is in a graph
        return code

    allow_many_files()
    limit_malloc_caches()
    gc.freeze()  # what is imported stays; to look through it took each full collection 25 ms of the event loop
    return asyncio.run(live())


def _ready_line(catalog: Catalog[ServedModel], settings: Settings, port: int, metrics_port: int) -> str:
    models = ", ".join(
        f"{entry.label} ({entry.model.translator.precision}, "
        f"{entry.model.translator.provider.removesuffix('ExecutionProvider')})"
        for entry in catalog.entries
    )
    near = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # every address is none to call
    return (
        f"ready: {models} on {_address(settings.host, port)}, metrics on "
        f"{_address(settings.metrics_host, metrics_port)} - "
        f'try: echo "Tom lives in Boston." | {_command()} translate --server {_address(near, port)}'
    )


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _command() -> str:
    """How this program is called from here: `lingon` where the shell finds it, else where it lies."""
    program = Path(sys.argv[0])
    if shutil.which("lingon") or program.name != "lingon":
        return "lingon"
    return os.path.relpath(program)
