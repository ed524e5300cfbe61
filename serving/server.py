"""The life of a server: bind ports, load models, warm up, serve, drain."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import uvloop
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from prometheus_client import CollectorRegistry

from lingon.errors import LingonError
from lingon.extras import find_entry_points, name_missing_extra
from lingon.serving.engine.engine import Engine, any_worker_alive, worker_threads
from lingon.serving.event_loop import LagMonitor
from lingon.serving.live.listening import LiveLimits
from lingon.serving.models.catalog import Catalog, Entry
from lingon.serving.models.inflight import AdmissionGate
from lingon.serving.models.loading import LoadFunction, load_translator, model_folders, model_names
from lingon.serving.models.memory import MIB, limit_malloc_caches
from lingon.serving.models.pool import ModelPool
from lingon.serving.models.registry import ABORT_SECONDS, ModelRegistry, ServedModel
from lingon.serving.models.reload import ModelReloader
from lingon.serving.models.supervisor import Supervisor
from lingon.serving.observability.http import HttpEndpoint
from lingon.serving.observability.logs import event, unexpected
from lingon.serving.observability.metrics import Metrics, ReceivedCalls
from lingon.serving.observability.tracing import NullTracer, Tracer
from lingon.serving.rpc.admin import open_admin
from lingon.serving.rpc.arrival import LoadShedder
from lingon.serving.rpc.google import GoogleService, add_google
from lingon.serving.rpc.google_glossaries import GoogleGlossaryService
from lingon.serving.rpc.grpc_server import services_of
from lingon.serving.rpc.interceptors import CallInterceptor, ErrorInterceptor
from lingon.serving.rpc.live import LiveCalls
from lingon.serving.rpc.local_channel import LocalChannel
from lingon.serving.rpc.ports import (
    ADMIN_CALLS,
    Connections,
    PortSecurity,
    allow_many_files,
    bind,
    call_limits,
    fitting_connections,
    grpc_server,
    most_connections,
)
from lingon.serving.rpc.service import TranslationService
from lingon.serving.rpc.standard_services import Health, add_reflection, model_services
from lingon.serving.rpc.stores import GLOSSARIES, MEMORIES, GlossaryService, MemoryService
from lingon.serving.runtime.device import onnxruntime_version
from lingon.serving.settings import DOCUMENT_BYTES, DOCUMENT_PROCESSES, HTTP_BYTES, Settings
from lingon.serving.stores.data_dir import DataDir, StoreLimits
from lingon.serving.stores.figures import StoredFigures
from lingon.serving.stores.glossaries import GlossaryStore
from lingon.serving.stores.memories import MemoryStore
from lingon.serving.threads import avoid_preemption, new_threads_never_preempt, run_in_thread
from lingon.translation.v1 import stores_pb2_grpc
from lingon.translation.v1 import translation_pb2 as pb
from lingon.translation.v1 import translation_pb2_grpc as pb_grpc

SERVICE = pb.DESCRIPTOR.services_by_name["TranslationService"].full_name
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
LATE_CALL_SECONDS = 4.0  # seconds for refusals of calls that arrive while the server stops
GC_THRESHOLDS = (2_000, 20, 10)
"""New objects until a garbage collection, and collections until a larger one. The defaults are 700, 10 and 10.

A call has some hundred objects, and nearly all are freed with it without the collector. With the defaults the collector
takes a tenth of the time of a server. Higher numbers would keep too many requests of failed calls, which gRPC holds in
reference cycles.
"""
HEALTH_INTERVAL = 0.25  # seconds between two health checks of the engines

logger = logging.getLogger(__name__)


class Server:
    """One server, from its ports to its exit code."""

    def __init__(
        self,
        settings: Settings,
        announce: Callable[[str], None],
        load: LoadFunction = load_translator,
        connections: Connections | None = None,
    ) -> None:
        """announce: called with one line when the server is ready; load: makes the translator of a bundle.

        connections: bound of the connections to the ports, or None for the default maximum
        """
        self._connections = connections or most_connections()
        self._settings, self._announce = settings, announce
        self._tracer = open_tracer(traces=settings.traces, trust_parents=settings.trust_traceparent)
        self.metrics = Metrics(onnxruntime_version())
        self._received = ReceivedCalls(self.metrics.received_calls)
        self._security = PortSecurity(settings, self.metrics)
        self.port = self.metrics_port = self.admin_port = self.http_port = (
            0  # the real ones are set when the ports are bound
        )
        self.bound = asyncio.Event()
        self.has_stuck_thread = False  # whether a thread that cannot be interrupted still loads, computes or hangs
        self._gate, self._stopping = AdmissionGate(), asyncio.Event()
        self._registry = ModelRegistry(settings, self.metrics, load, second_hourly=self._security.second_hourly)
        bound = None if settings.model_memory is None else settings.model_memory * MIB
        self._pool = ModelPool(self._registry, self.metrics, bound)
        self._failed: frozenset[str] = frozenset()  # labels of models that could not be loaded a short time ago
        self._reloader = ModelReloader(self._registry, self._pool, self.metrics, settings.models, self._on_published)
        self._supervisor = Supervisor(settings.hang_seconds)
        self._most_texts = min(settings.max_texts, settings.max_queue_texts)  # the queue never accepts more
        self._data_dir = open_data_dir(settings)
        self._glossaries, self._memories = (
            GlossaryStore(self._data_dir),
            MemoryStore(self._data_dir, self.metrics.looked_up),
        )
        self.metrics.glossary_bytes.set_function(lambda: self._glossaries.loaded_bytes)
        live = LiveCalls(
            self._gate,
            self.metrics,
            lambda: self._registry.catalog,
            self._pool,
            LiveLimits(sentence_words=settings.live_sentence_words),
            settings.live_speakers_of_caller,
            settings.live_states * MIB,
        )
        self._service = TranslationService(
            self._gate,
            self.metrics,
            self._most_texts,
            lambda: self._registry.catalog,
            self._pool,
            self._glossaries,
            self._memories,
            live,
        )
        self._health = Health()
        self._serving, self._lag = False, LagMonitor()
        self.metrics.ready.set_function(self._is_serving)
        self._names = ["", SERVICE]  # services that the health service reports with one status
        self._admin: grpc.aio.Server | None = None
        self._http: Any = None  # the open port of the HTTP APIs, if there is one
        self.channel: LocalChannel  # to the services of the gRPC port, set when it is open

    async def run(self) -> int:
        """Serve until a signal or the failure of an engine, and return the exit code."""
        settings, folders = self._settings, model_folders(self._settings.models)
        self._names += model_services(model_names(folders))
        self._listen_to_signals()
        asyncio.get_running_loop().set_exception_handler(unexpected)
        address, registry = (settings.metrics_host, settings.metrics_port), self.metrics.registry
        async with AsyncExitStack() as opened:
            for work in (
                self._lag.measure(self.metrics.loop_lag.observe),
                self._security.watch_files(),
                avoid_preemption(worker_threads, lambda: any(each.contended for each in self._engines())),
            ):
                opened.callback(asyncio.create_task(work).cancel)
            if self._data_dir is not None:
                counting = StoredFigures(self._data_dir).watch(self.metrics)
                opened.callback(asyncio.create_task(counting).cancel)
            endpoint = opened.enter_context(HttpEndpoint(*address, registry, self._is_serving, self._received.update))
            self.metrics_port = endpoint.port
            server = await self._open_ports()
            opened.push_async_callback(self._stop_ports, server)  # already stopped, unless the start fails
            await self._start_ports(server, opened)
            self.bound.set()
            try:
                if not await self._load(folders):
                    return 0
                self._open()
                return await self._serve()
            finally:
                await self._close(server)

    async def _open_ports(self) -> grpc.aio.Server:
        """Bind the gRPC port, open the admin port if it is set, and return the server of the gRPC port."""
        settings, server = self._settings, self._grpc_server()
        self.channel = LocalChannel(services_of(server), self.metrics.received_calls.inc)
        self.port = bind(server, settings.host, settings.port, self._security.credentials())
        if settings.admin_port is not None:
            interceptors = [
                ErrorInterceptor(self.metrics, self._security.admit, {"": ADMIN_CALLS}),
                *self._security.interceptors(admin=True),
            ]
            self._admin, self.admin_port = await open_admin(
                settings,
                self._registry,
                self._reloader,
                self._pool,
                self._gate,
                interceptors,
                self._connections.grpc,
                self._security.credentials(),
            )
        self._received.watch()
        self._update_health()
        return server

    async def _start_ports(self, server: grpc.aio.Server, opened: AsyncExitStack) -> None:
        """Start the gRPC server, and the HTTP APIs in front of it if they are set."""
        with new_threads_never_preempt():
            await server.start()
        if self._settings.http_port is not None:
            apis = http_apis(self._settings, self.channel, self.metrics.registry, self._connections.http)
            self._http = await opened.enter_async_context(apis)
            self.http_port = self._http.port

    async def _stop_ports(self, server: grpc.aio.Server) -> None:
        await asyncio.gather(*(each.stop(ABORT_SECONDS) for each in (self._admin, server) if each is not None))

    def stop(self) -> None:
        """Start to drain."""
        self._stopping.set()

    def _on_signal(self) -> None:
        if self._stopping.is_set():
            os._exit(1)  # the second signal ends the process at once
        self.stop()

    def _on_hangup(self) -> None:
        """Reload files on SIGHUP. The default action would end the process without a drain."""
        self._security.check_files()
        event(logger, logging.INFO, "SIGHUP: keys and certificates were checked; other settings need a restart")

    def _listen_to_signals(self) -> None:
        """Handle signals until the process ends, because a late one must not change its exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        loop.add_signal_handler(signal.SIGHUP, self._on_hangup)

    def _grpc_server(self) -> grpc.aio.Server:
        limits = call_limits(self._settings)
        calls = CallInterceptor(self.metrics, self._tracer, self._security.admit, limits, self._gate.leave)
        interceptors = [calls, *self._security.interceptors(models_of=self._registry.charged_models)]
        shedder = LoadShedder(self._gate, self._engines, any_cold=lambda: not self._registry.all_loaded)
        server = grpc_server(
            self._settings, interceptors, self._settings.max_message_bytes, self._connections.grpc, shedder
        )
        pb_grpc.add_TranslationServiceServicer_to_server(self._service, server)
        glossaries = GlossaryService(self._gate, self._glossaries)
        stores_pb2_grpc.add_GlossaryServiceServicer_to_server(glossaries, server)
        memories = MemoryService(self._gate, self._memories, self._most_texts)
        stores_pb2_grpc.add_MemoryServiceServicer_to_server(memories, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        if self._settings.google_v3:
            google = GoogleGlossaryService(glossaries)
            add_google(server, GoogleService(self._service, google, lambda: self._registry.catalog, self._most_texts))
        if self._settings.reflection:
            add_reflection(server, (SERVICE, GLOSSARIES, MEMORIES, health.SERVICE_NAME))
        return server

    def _engines(self) -> list[Engine]:
        """Return the engines of all loaded models."""
        models = (entry.model for entry in self._registry.catalog.entries)
        return [model.translator.engine for model in models if model.is_loaded]

    async def _load(self, folders: Sequence[Path]) -> bool:
        """Load all models. Returns False if a signal came first."""
        loading = run_in_thread(partial(self._registry.load_all, folders), "loading")
        self.has_stuck_thread = not await self._done_before_stop(loading)
        if not self.has_stuck_thread:
            self._registry.publish(loading.result())
            self._on_published()
        return not self._stopping.is_set()

    async def _done_before_stop(self, work: asyncio.Future[Any]) -> bool:
        """Wait until work is done or the server has to stop, and return whether the work is done."""
        stopping = asyncio.create_task(self._stopping.wait())
        both: set[asyncio.Future[Any]] = {work, stopping}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        return work.done()

    def _open(self) -> None:
        self._gate.open()
        self._set_serving(True)
        try:
            self._announce(
                _ready_line(self._registry.catalog, self._settings, self.port, self.metrics_port, self.http_port)
            )
        except OSError as error:  # the reader of standard output ended, or its disk is full
            event(logger, logging.WARNING, "the line `ready` could not be written", error=error.strerror or str(error))

    async def _serve(self) -> int:
        """Serve, then drain. Returns exit code 0, or 1 if an engine ended the process."""
        while not self._stopping.is_set():
            if failed := [entry for entry in self._registry.running if self._supervisor.needs_restart(entry)]:
                self._set_serving(False)
                recovery = asyncio.create_task(self._recover(failed))
                if not await self._done_before_stop(recovery):
                    recovery.cancel()
                    self.has_stuck_thread = True  # it starts an engine, or hangs during the start
                    break
                if not recovery.result():
                    self.has_stuck_thread = True  # an orderly exit would wait for it
                    return 1
                self._set_serving(True)
            self._update_failures()
            try:
                async with asyncio.timeout(HEALTH_INTERVAL):
                    await self._stopping.wait()
            except TimeoutError:
                continue
        await self._drain()
        return 0

    async def _recover(self, failed: Sequence[Entry[ServedModel]]) -> bool:
        """Restart engines. Returns False if the process has to end instead."""
        return all([await self._supervisor.recover(entry) for entry in failed])

    def _on_published(self) -> None:
        self._names = ["", SERVICE, *model_services(self._registry.names)]
        self._update_health()

    async def _drain(self) -> None:
        """Report NOT_SERVING, wait for load balancers, refuse new calls, wait for the calls in flight."""
        self._set_serving(False)
        await asyncio.sleep(self._settings.propagation_seconds)
        self._gate.close()
        event(logger, logging.INFO, "draining")
        end = time.monotonic() + self._settings.drain_seconds
        if self._http is not None:
            self._http.stop(self._settings.drain_seconds)
        ended = await self._gate.wait_until_left(self._settings.drain_seconds)
        idle = await self._registry.wait_until_idle(max(end - time.monotonic(), 0.0))
        if not (ended and idle):
            event(logger, logging.WARNING, "calls are cut off", after_seconds=self._settings.drain_seconds)

    async def _close(self, server: grpc.aio.Server) -> None:
        self._gate.close()
        if self._http is not None:
            self._http.stop(ABORT_SECONDS)
        self._reloader.close()
        self._pool.close()
        self._supervisor.fail_all()
        await self._registry.stop()
        await self._registry.wait_until_idle(ABORT_SECONDS)
        await self._gate.wait_until_quiet(LATE_CALL_SECONDS)
        await self._stop_ports(server)
        self.has_stuck_thread = self.has_stuck_thread or self._reloader.busy or self._pool.busy or any_worker_alive()
        await self._tracer.close()
        if self._data_dir is not None:
            self._data_dir.close()
        event(logger, logging.INFO, "stopped")

    def _set_serving(self, serving: bool) -> None:
        self._serving = serving
        self._update_health()

    def _update_health(self) -> None:
        """Set the status of all names. A model that could not be loaded a short time ago does not serve."""
        failed = [label for label in self._failed for label in (label, label.rpartition("/")[0])]
        self._health.set_status(self._names, SERVING if self._serving else NOT_SERVING)
        if failed and self._serving:
            self._health.change_status(model_services(failed), NOT_SERVING)

    def _update_failures(self) -> None:
        """Update the status of models that could not be loaded, and of those that may be tried again."""
        failed = self._pool.failed
        if failed != self._failed:
            self._failed = failed
            self._update_health()

    def _is_serving(self) -> bool:
        """Return whether the server serves and its event loop runs. Safe for any thread."""
        return self._serving and self._lag.seconds_since_beat() < self._settings.hang_seconds


def serve(settings: Settings, announce: Callable[[str], None], load: LoadFunction = load_translator) -> int:
    """Run a server until it ends, and return the exit code. The parameters are those of Server.

    The process belongs to the server: its garbage collection, the limits of its files and of malloc are set here.
    """

    def announce_and_freeze(line: str) -> None:
        gc.freeze()  # the manifests of many models make a full collection slow, and are not garbage
        announce(line)

    async def live() -> int:
        server = Server(settings, announce_and_freeze, load, fitting_connections(http=settings.http_port is not None))
        code = await server.run()
        if server.has_stuck_thread:
            os._exit(code)  # an orderly exit would wait for the thread, or abort if it runs a graph
        return code

    open_standard_files()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the server handles it
    allow_many_files()
    limit_malloc_caches()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.freeze()  # a full collection of all imported objects takes 25 ms of the event loop
    return uvloop.run(live())


def open_standard_files() -> None:
    """Open /dev/null in place of closed standard input, output and error.

    Otherwise sockets would get their numbers, and a library that writes an error would write it to a client.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one


def open_data_dir(settings: Settings) -> DataDir | None:
    """Return the folder of what callers store, or None without one. Raises SettingsError if it cannot be used."""
    if settings.data_dir is None:
        return None
    limits = {each.name: getattr(settings, each.name) for each in fields(StoreLimits)}
    return DataDir(settings.data_dir, StoreLimits(**limits))


def http_apis(settings: Settings, channel: LocalChannel, registry: CollectorRegistry, connections: int) -> Any:
    """Return the context in which the HTTP port is open. Raises LingonError if the HTTP APIs are not installed.

    channel: channel to the services that they call; connections: bound of the connections to the port
    """
    entry = find_entry_points("lingon.gateways").get("http")
    if entry is None:
        raise LingonError("this installation has no HTTP APIs (entry point lingon.gateways: http)")
    with name_missing_extra("lingon serve --http-port", entry.extras):
        return entry.load()(
            channel,
            registry,
            settings,
            max_connections=connections,
            held_bytes=HTTP_BYTES,
            document_processes=DOCUMENT_PROCESSES,
            document_bytes=DOCUMENT_BYTES,
        )


def _ready_line(
    catalog: Catalog[ServedModel], settings: Settings, port: int, metrics_port: int, http_port: int = 0
) -> str:
    """Return the line that reports what is served where, with a command to try it."""
    models = _shown_models(catalog.entries)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # a wildcard cannot be called
    scheme = "https" if settings.tls_certificate else "http"
    http = f", HTTP APIs on {scheme}://{_address(settings.http_host, http_port)}" if http_port else ""
    options = " --tls-ca CA_FILE" if settings.tls_certificate else ""
    options += " --tls-client-certificate FILE --tls-client-key FILE" if settings.tls_client_ca else ""
    options += " --api-key-file KEY_FILE" if settings.api_keys else ""
    options += _model_options(catalog.entries)
    return (
        f"ready: {models} on {_address(settings.host, port)}, metrics on "
        f"{_address(settings.metrics_host, metrics_port)}{http} - "
        f'try: echo "Tom lives in Boston." | {_command()} translate --server {_address(host, port)}{options}'
    )


def _shown_models(entries: Sequence[Entry[ServedModel]]) -> str:
    """Return the loaded models with precision and provider, and the number of those that are loaded when needed."""
    shown = [
        f"{entry.label} ({entry.model.translator.precision}, "
        f"{entry.model.translator.provider.removesuffix('ExecutionProvider')})"
        for entry in entries
        if entry.model.is_loaded
    ]
    cold = len(entries) - len(shown)
    return ", ".join([*shown, *([f"{cold} models that are loaded for their first request"] if cold else [])])


def _model_options(entries: Sequence[Entry[ServedModel]]) -> str:
    """Return the options of `lingon translate` that select a model, and a pair of its languages if it has several."""
    options = f" --model {entries[0].label}" if len(entries) > 1 else ""
    if not entries or entries[0].languages is None:
        return options
    source, target = next(entries[0].languages.pairs())
    return f"{options} --source-language {source} --target-language {target}"


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _command() -> str:
    """Return the shell command of this program: `lingon` if it is on the path, else its relative path."""
    program = Path(sys.argv[0])
    if shutil.which("lingon") or program.name != "lingon":
        return "lingon"
    return os.path.relpath(program)


def open_tracer(*, traces: bool, trust_parents: bool = False) -> Tracer:
    """Return the tracer of a server. Raises LingonError if traces are on but the extra 'tracing' is not installed.

    trust_parents: whether the caller's sampled flag decides if a call is recorded
    """
    if not traces:
        return NullTracer()
    with name_missing_extra("lingon serve --traces", ["tracing"]):
        from lingon.serving.observability.opentelemetry import OpenTelemetryTracer

        return OpenTelemetryTracer(trust_parents=trust_parents)
