"""Runs the gateway: inside a server, or in a process of its own."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, start_http_server

from lingon.client.address import is_local, with_port
from lingon.client.client import DEFAULT_PORT
from lingon.client.tls import Tls, check_encrypted
from lingon.errors import LingonError
from lingon.gateway.app import GatewayOptions, build
from lingon.gateway.backend import Backend
from lingon.gateway.metrics import GatewayMetrics
from lingon.gateway.requests.body import BodyLimits
from lingon.gateway.server import HttpOptions, Listening, listening
from lingon.gateway.translations.document_processes import DocumentLimits, DocumentProcesses
from lingon.gateway.translations.documents import Documents
from lingon.gateway.translations.kept_files import KeptFiles

CALL_SECONDS = 120.0  # seconds; the longest duration of a call for a request, at most `max_call_seconds`


class ServerSettings(Protocol):
    """The settings of a server that its HTTP port has too; see lingon.serving.settings."""

    http_host: str
    http_port: int | None
    http_apis: tuple[str, ...]
    http_page: bool
    http_data_dir: Path | None
    http_cors: tuple[str, ...]
    http_hosts: tuple[str, ...]
    http_max_connections: int
    http_trusted_proxies: str
    tls_certificate: Path | None
    tls_key: Path | None
    max_call_seconds: float
    drain_seconds: float


@asynccontextmanager
async def in_server(
    channel: Any,
    registry: CollectorRegistry,
    settings: ServerSettings,
    *,
    held_bytes: int,
    document_processes: int,
    document_bytes: int,
) -> AsyncIterator[Listening]:
    """Open the HTTP port of a server in its event loop.

    channel: to its gRPC services, see Backend; registry: of its metrics
    held_bytes: of the bodies of all open requests, and as many of all connections
    document_processes, document_bytes: see DocumentLimits
    """
    assert settings.http_port is not None
    http = HttpOptions(
        host=settings.http_host,
        port=settings.http_port,
        certificate=settings.tls_certificate,
        key=settings.tls_key,
        max_connections=settings.http_max_connections,
        held_bytes=held_bytes,
        trusted_proxies=settings.http_trusted_proxies,
        drain_seconds=settings.drain_seconds,
        flags="--http-",
    )
    options = GatewayOptions(
        apis=settings.http_apis,
        page=settings.http_page,
        data_dir=settings.http_data_dir,
        cors=settings.http_cors,
        hosts=settings.http_hosts or default_hosts(http),
        limits=BodyLimits(together=held_bytes),
    )
    documents = DocumentLimits(processes=document_processes, memory=document_bytes)
    call_seconds = min(settings.max_call_seconds, CALL_SECONDS)
    async with _open(Backend(channel, call_seconds), registry, http, options, documents) as opened:
        yield opened


def default_hosts(http: HttpOptions) -> Sequence[str]:
    """Return the names that a gateway may be called by if none are given.

    On loopback it is for this machine, unless a proxy passes on the requests of others.
    """
    return () if is_local(http.host) and not http.trusted_proxies else ("*",)


@asynccontextmanager
async def _open(
    backend: Backend,
    registry: CollectorRegistry,
    http: HttpOptions,
    options: GatewayOptions,
    limits: DocumentLimits | None = None,
) -> AsyncIterator[Listening]:
    metrics = GatewayMetrics(registry)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(backend.close)
        kept = None if options.data_dir is None else KeptFiles(options.data_dir / "documents")
        if kept is not None:
            stack.callback(asyncio.create_task(kept.remove_old_ones()).cancel)
        processes = DocumentProcesses(limits)
        stack.push_async_callback(processes.close)
        app = build(backend, metrics, options, Documents(processes, kept))
        yield await stack.enter_async_context(listening(app, metrics, http))


def run_apart(
    target: str,
    tls: bool | Tls,
    timeout: float,
    http: HttpOptions,
    options: GatewayOptions,
    metrics_port: int | None,
    announce: Callable[[str], None],
    *,
    insecure: bool = False,
) -> None:
    """Run the gateway until SIGTERM or SIGINT.

    target: address of the server; tls: as a client takes it; announce: called with one line when the port is open
    insecure: whether keys of callers may be sent without TLS to another machine; else raises SettingsError
    """
    target = with_port(target, DEFAULT_PORT)
    if tls is False and not insecure:
        check_encrypted(target)
    credentials = None if tls is False else (Tls() if tls is True else tls).credentials()
    registry = CollectorRegistry()
    if metrics_port is not None:
        try:
            start_http_server(metrics_port, http.host, registry)
        except OSError as error:
            raise LingonError(
                f"metrics port {http.host}:{metrics_port}: {error.strerror}; set --metrics-port"
            ) from None

    async def serve() -> None:
        stopping = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopping.set)
        backend = Backend.connect(target, credentials, timeout, proxy=insecure)
        async with _open(backend, registry, http, options) as opened:
            scheme = "https" if http.certificate else "http"
            announce(f"ready: {', '.join(options.apis)} on {scheme}://{http.host}:{opened.port}, in front of {target}")
            await stopping.wait()

    asyncio.run(serve())
