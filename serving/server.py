"""A server from its start to its end: bind, load, warm up, serve, drain."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from lingon.bundle import Bundle
from lingon.translation.v1 import translation_pb2 as pb
from lingon.translation.v1 import translation_pb2_grpc as pb_grpc
from serving.catalog import Catalog
from serving.doors import bind, grpc_server
from serving.endpoint import Endpoint
from serving.fleet import Fleet
from serving.gate import Gate
from serving.guard import Guard
from serving.loading import bundles, load_translator
from serving.logs import event
from serving.metrics import Metrics
from serving.pulse import measure_lag
from serving.service import Served, TranslationService
from serving.settings import Settings
from serving.supervisor import Supervisor
from serving.translator import Translator

SERVICE = pb.DESCRIPTOR.services_by_name["TranslationService"].full_name
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
HEARTBEAT = 0.25  # seconds between two looks at the engines
LAST_WORDS = 1.0  # seconds for calls that were cut off to tell their clients

logger = logging.getLogger(__name__)
Result = TypeVar("Result")


class Server:
    """One server; `run` is its life."""

    def __init__(
        self, settings: Settings, announce: Callable[[str], None], load: Callable[..., Translator] = load_translator
    ) -> None:
        """announce: is told one line when the server is ready; load: makes a model of a bundle."""
        self._settings, self._announce = settings, announce
        self.metrics = Metrics()
        self.port = self.metrics_port = 0  # real ones once it is bound
        self.bound = asyncio.Event()
        self.abandoned = False  # a thread still loads or hangs, which cannot be interrupted
        self._gate, self._stopping = Gate(), asyncio.Event()
        self._fleet = Fleet(settings, self.metrics, load)
        self._supervisor = Supervisor(settings.hang_seconds, settings.max_restarts)
        self._service = TranslationService(self._gate, self.metrics, settings.max_texts, lambda: self._fleet.catalog)
        self._health = health.aio.HealthServicer()
        self._serving = False
        self._names = ["", SERVICE]

    async def run(self) -> int:
        """Serve until a signal comes or an engine dies; returns the exit code."""
        settings, found = self._settings, bundles(self._settings.models)
        self._names += sorted({f"model/{bundle.manifest.name}" for bundle in found})
        self._listen_to_signals(on=True)
        pulse = asyncio.create_task(measure_lag(self.metrics.loop_lag.observe))
        with Endpoint(
            settings.metrics_host, settings.metrics_port, self.metrics.registry, self._is_serving
        ) as endpoint:
            server = self._grpc_server()
            self.port, self.metrics_port = bind(server, settings.host, settings.port), endpoint.port
            await self._tell(NOT_SERVING)
            await server.start()
            self.bound.set()
            try:
                if not await self._load(found):
                    return 0
                await self._open()
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
        server = grpc_server(self._settings, [Guard(self.metrics)])
        pb_grpc.add_TranslationServiceServicer_to_server(self._service, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        if self._settings.reflection:
            reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
        return server

    async def _load(self, found: Sequence[Bundle]) -> bool:
        """Load all models; False if a signal came first."""
        loading = _on_thread(partial(self._fleet.load_all, found))
        stopping = asyncio.create_task(self._stopping.wait())
        both: set[asyncio.Future[Any]] = {loading, stopping}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        self.abandoned = not loading.done()
        if not self.abandoned:
            self._fleet.publish(loading.result())
        return not self._stopping.is_set()

    async def _open(self) -> None:
        self._gate.open()
        await self._set_serving(True)
        self._announce(_ready_line(self._fleet.catalog, self._settings, self.port, self.metrics_port))

    async def _serve(self) -> int:
        """Serve; then drain. The exit code tells whether it was by intent."""
        while not self._stopping.is_set():
            if sick := [entry for entry in self._fleet.catalog.entries if self._supervisor.sick(entry)]:
                await self._set_serving(False)
                if not all([await self._supervisor.heal(entry) for entry in sick]):
                    self.abandoned = True  # a thread that hangs would hold up an orderly end
                    return 1
                await self._set_serving(True)
            try:
                async with asyncio.timeout(HEARTBEAT):
                    await self._stopping.wait()
            except TimeoutError:
                continue
        await self._drain()
        return 0

    async def _drain(self) -> None:
        """Say NOT_SERVING, let load balancers notice, refuse what is new, wait for what is inside."""
        self._serving = False
        self.metrics.ready.set(False)
        await self._health.enter_graceful_shutdown()
        await asyncio.sleep(self._settings.propagation_seconds)
        self._gate.close()
        event(logger, logging.INFO, "draining")
        if not await self._gate.empty(self._settings.drain_seconds):
            event(logger, logging.WARNING, "calls are cut off", after_seconds=self._settings.drain_seconds)

    async def _close(self, server: grpc.aio.Server) -> None:
        self._gate.close()
        await self._fleet.stop()
        await self._gate.empty(LAST_WORDS)
        await server.stop(LAST_WORDS)
        event(logger, logging.INFO, "stopped")

    async def _set_serving(self, serving: bool) -> None:
        self._serving = serving
        self.metrics.ready.set(serving)
        await self._tell(SERVING if serving else NOT_SERVING)

    async def _tell(self, status: int) -> None:
        for name in self._names:
            await self._health.set(name, status)

    def _is_serving(self) -> bool:
        return self._serving


def serve(settings: Settings, announce: Callable[[str], None]) -> int:
    """Run a server until it ends; returns the exit code."""

    async def live() -> int:
        server = Server(settings, announce)
        code = await server.run()
        if server.abandoned:
            os._exit(code)  # an orderly end would wait for the thread
        return code

    return asyncio.run(live())


def _on_thread(work: Callable[[], Result]) -> asyncio.Future[Result]:
    """Work on a thread that nobody has to wait for."""
    future: concurrent.futures.Future[Result] = concurrent.futures.Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="loading", daemon=True).start()
    return asyncio.wrap_future(future)


def _ready_line(catalog: Catalog[Served], settings: Settings, port: int, metrics_port: int) -> str:
    models = ", ".join(
        f"{entry.label} ({entry.model.translator.precision}, "
        f"{entry.model.translator.provider.removesuffix('ExecutionProvider')})"
        for entry in catalog.entries
    )
    address = f"{settings.host}:{port}"
    return (
        f"ready: {models} on {address}, metrics on {settings.metrics_host}:{metrics_port} - "
        f'try: echo "Tom lives in Boston." | {_command()} translate --server {address}'
    )


def _command() -> str:
    """How this program is called from here: `lingon` where the shell finds it, else where it lies."""
    program = Path(sys.argv[0])
    if shutil.which("lingon") or program.name != "lingon":
        return "lingon"
    return os.path.relpath(program)
