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
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from lingon.bundle import Bundle
from lingon.errors import LingonError
from lingon.translation.v1 import translation_pb2 as pb
from lingon.translation.v1 import translation_pb2_grpc as pb_grpc
from serving.catalog import Catalog, Entry
from serving.endpoint import Endpoint
from serving.gate import Gate
from serving.guard import Guard
from serving.loading import bundles, load_translator
from serving.logs import event
from serving.metrics import Metrics
from serving.service import Served, TranslationService
from serving.settings import Settings
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
        self._settings, self._announce, self._load_translator = settings, announce, load
        self.metrics = Metrics()
        self.port = self.metrics_port = 0  # real ones once it is bound
        self.bound = asyncio.Event()
        self.abandoned = False  # a thread still loads, which cannot be interrupted
        self._gate, self._stopping = Gate(), asyncio.Event()
        self._service = TranslationService(self._gate, self.metrics, settings.max_texts)
        self._health = health.aio.HealthServicer()
        self._serving = False
        self._names = ["", SERVICE]

    async def run(self) -> int:
        """Serve until a signal comes or an engine dies; returns the exit code."""
        settings, found = self._settings, bundles(self._settings.models)
        self._names += sorted({f"model/{bundle.manifest.name}" for bundle in found})
        self._listen_to_signals(on=True)
        with Endpoint(
            settings.metrics_host, settings.metrics_port, self.metrics.registry, self._is_serving
        ) as endpoint:
            server = self._grpc_server()
            self.port, self.metrics_port = _bind(server, settings.host, settings.port), endpoint.port
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
        server = grpc.aio.server(interceptors=[Guard(self.metrics)], options=_options(self._settings))
        pb_grpc.add_TranslationServiceServicer_to_server(self._service, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        if self._settings.reflection:
            reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
        return server

    async def _load(self, found: Sequence[Bundle]) -> bool:
        """Load all models; False if a signal came first."""
        loading = _on_thread(partial(self._load_all, found))
        stopping = asyncio.create_task(self._stopping.wait())
        both: set[asyncio.Future[Any]] = {loading, stopping}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        self.abandoned = not loading.done()
        if not self.abandoned:
            self._service.catalog = Catalog(loading.result())
        return not self._stopping.is_set()

    def _load_all(self, found: Sequence[Bundle]) -> list[Entry[Served]]:
        return [self._load_model(bundle) for bundle in found]

    def _load_model(self, bundle: Bundle) -> Entry[Served]:
        manifest, start = bundle.manifest, time.perf_counter()
        metrics = self.metrics.model(manifest.name, manifest.version)
        limits = self._settings.engine_limits()
        translator = self._load_translator(
            bundle,
            device=self._settings.device,
            precision=self._settings.precision,
            engines=self._settings.engines,
            threads=self._settings.threads,
            shortlist=self._settings.shortlist,
            limits=limits,
            observer=metrics,
        )
        seconds = time.perf_counter() - start
        metrics.loaded(translator.describe(), manifest.architecture, limits, seconds, translator.graph_bytes)
        event(
            logger,
            logging.INFO,
            "loaded",
            model=bundle.label,
            folder=bundle.folder,
            precision=translator.precision,
            seconds=round(seconds, 2),
            graph_bytes=translator.graph_bytes,
            state_bytes=translator.engine.state_bytes(manifest.defaults.beam_size),
        )
        served = Served(translator, metrics)
        return Entry(manifest.name, manifest.version, manifest.source_language, manifest.target_language, served)

    async def _open(self) -> None:
        self._gate.open()
        self._serving = True
        await self._tell(SERVING)
        self._announce(_ready_line(self._service.catalog, self._settings, self.port, self.metrics_port))

    async def _serve(self) -> int:
        """Serve; then drain. The exit code tells whether it was by intent."""
        while not self._stopping.is_set():
            if not all(entry.model.translator.engine.healthy for entry in self._service.catalog.entries):
                self._serving = False
                await self._tell(NOT_SERVING)
                event(logger, logging.ERROR, "an engine died; the server ends")
                return 1
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
        await self._health.enter_graceful_shutdown()
        await asyncio.sleep(self._settings.propagation_seconds)
        self._gate.close()
        event(logger, logging.INFO, "draining")
        if not await self._gate.empty(self._settings.drain_seconds):
            event(logger, logging.WARNING, "calls are cut off", after_seconds=self._settings.drain_seconds)

    async def _close(self, server: grpc.aio.Server) -> None:
        self._gate.close()
        for entry in self._service.catalog.entries:
            await asyncio.to_thread(entry.model.translator.engine.stop, 0)
        await self._gate.empty(LAST_WORDS)
        await server.stop(LAST_WORDS)
        event(logger, logging.INFO, "stopped")

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


def _bind(server: grpc.aio.Server, host: str, port: int) -> int:
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        return server.add_insecure_port(address)
    except RuntimeError:
        raise LingonError(f"cannot listen on {address}: it is in use or not allowed; set --host or --port") from None


def _options(settings: Settings) -> list[tuple[str, int]]:
    options = [
        ("grpc.so_reuseport", 0),  # else a second server binds the same port and takes half of the calls
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.keepalive_time_ms", 60_000),  # clients that vanished without a word are found within these two
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    ]
    if settings.max_connection_age_seconds:
        options.append(("grpc.max_connection_age_ms", int(settings.max_connection_age_seconds * 1000)))
    return options


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
