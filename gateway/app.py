"""The gateway: the selected APIs and the page, inside a server or in a separate process."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, start_http_server
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import Receive, Scope, Send

from lingon.client.client import DEFAULT_PORT
from lingon.client.connection import Tls, check_encrypted, is_local, with_port
from lingon.documents import SUFFIXES
from lingon.errors import LingonError, SettingsError
from lingon.gateway.backend import Backend, KnownCallers
from lingon.gateway.body import BodyBudget, BodyLimits
from lingon.gateway.deepl import DeepLApi
from lingon.gateway.documents import DocumentLimits, DocumentProcesses, Documents, KeptFiles
from lingon.gateway.endpoint import Api, Endpoints
from lingon.gateway.google import GoogleApi
from lingon.gateway.libretranslate import LibreTranslateApi
from lingon.gateway.lingon_api import LingonApi
from lingon.gateway.live import LiveEndpoint
from lingon.gateway.metrics import GatewayMetrics
from lingon.gateway.openai import OpenAiApi
from lingon.gateway.server import HttpOptions, Listening, listening

APIS: dict[str, Callable[[Documents], Api]] = {
    "lingon": LingonApi,
    "deepl": DeepLApi,
    "libretranslate": LibreTranslateApi,
    "google": lambda _: GoogleApi(),
    "openai": lambda _: OpenAiApi(),
}
"""The APIs by name."""

USUAL_APIS = ("lingon", "deepl", "libretranslate", "google")
"""The APIs that are offered by default: those made for translation."""

FOLDER = Path(__file__).parent / "page"
SCRIPTS = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.js"))
PAGE = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/docs": ("docs.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    **{f"/{name}": (name, "text/javascript; charset=utf-8") for name in SCRIPTS},
    "/openapi.json": ("openapi.json", "application/json"),
}
"""The files of the page by their paths."""

_PORT = re.compile(r":\d+\Z")
ORIGIN = re.compile(r"[a-z][a-z0-9+.\-]*://[^/\s]+")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class GatewayOptions:
    """The options of the gateway.

    apis: names in APIS; by default without openai
    page: whether `/` is the page; it needs the API lingon
    data_dir: folder for files until they are fetched; None: files are not supported
    cors: origins of pages that may call the gateway, or "*"; none by default
    hosts: names in the header Host that are accepted, beside addresses and localhost, or "*"
    """

    apis: Sequence[str] = USUAL_APIS
    page: bool = True
    data_dir: Path | None = None
    cors: Sequence[str] = ()
    hosts: Sequence[str] = ("*",)
    limits: BodyLimits = field(default_factory=BodyLimits)

    def __post_init__(self) -> None:
        for name in self.apis:
            if name not in APIS:
                raise SettingsError(f"there is no API {name!r}; the APIs are {', '.join(APIS)}")
        for origin in self.cors:
            if origin != "*" and not ORIGIN.fullmatch(origin):
                raise SettingsError(f"an origin is written as https://example.com, without a path; got {origin[:60]!r}")


class _Application(Starlette):
    """An application that calls the endpoint of a path without parameters directly, without middlewares and routing.

    Endpoints raise nothing. With a middleware, every request passes it. A slash at the end of a path has no meaning.
    """

    def __init__(
        self, *, routes: Sequence[Route | WebSocketRoute], middleware: Sequence[Middleware], hosts: Sequence[str]
    ) -> None:
        super().__init__(routes=routes, middleware=middleware)
        self._hosts = frozenset(map(str.lower, hosts))
        self._direct: dict[tuple[str, str], Callable[[Request], Awaitable[Response]]] = {}
        for route in () if middleware else routes:
            if isinstance(route, WebSocketRoute):
                continue
            for method in () if route.param_convertors else route.methods or ():
                self._direct.setdefault((method, route.path), route.endpoint)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._is_allowed(scope):
            return await _wrong_host(scope, receive, send)
        if scope["path"].endswith("/"):
            scope["path"] = scope["path"].rstrip("/") or "/"
        endpoint = self._direct.get((scope.get("method", ""), scope["path"]))  # a WebSocket has no method
        if endpoint is None:
            return await super().__call__(scope, receive, send)
        scope["app"], scope["router"] = self, self.router  # for url_for
        response = await endpoint(Request(scope, receive, send))
        await response(scope, receive, send)
        return None

    def _is_allowed(self, scope: Scope) -> bool:
        """Return whether the header Host is missing or names this gateway.

        The owner of any domain can resolve it to this machine. This gateway is then the origin of pages of that domain.
        """
        if "*" in self._hosts:
            return True
        written = next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin-1")
        host = _PORT.sub("", written.lower())
        return host in ("", "localhost") or host.endswith(".localhost") or host in self._hosts or _is_address(host)


def build(backend: Backend, metrics: GatewayMetrics, options: GatewayOptions, documents: Documents) -> Starlette:
    """Return the application."""
    budget = BodyBudget(options.limits.together)
    endpoints = Endpoints(backend, KnownCallers(backend), metrics, options.limits, budget, options.cors)
    routes: list[Route | WebSocketRoute] = []
    for name in options.apis:
        routes += APIS[name](documents).routes(endpoints)
    if "lingon" in options.apis:
        routes += LiveEndpoint(endpoints).routes()
    if options.page and "lingon" in options.apis:
        routes += [_page_route(path, *each) for path, each in PAGE.items()]
    cors = [Middleware(CORSMiddleware, allow_origins=list(options.cors), allow_methods=["*"], allow_headers=["*"])]
    app = _Application(routes=routes, middleware=cors if options.cors else [], hosts=options.hosts)
    app.add_exception_handler(HTTPException, _without_route)
    return app


def _page_route(path: str, name: str, kind: str) -> Route:
    content = (FOLDER / name).read_bytes().replace(b"KINDS", ",".join(SUFFIXES).encode())
    headers = {
        "content-security-policy": POLICY,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-cache",
    }

    async def send(request: Request) -> Response:
        return Response(content, headers=headers, media_type=kind)

    return Route(path, send, methods=["GET"])


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


async def _wrong_host(scope: Scope, receive: Receive, send: Send) -> None:
    message = "the server may not be called by this name: --http-hosts does not list it"
    content = {"error": {"code": 403, "message": message}, "message": message}
    await JSONResponse(content, 403)(scope, receive, send)


async def _without_route(request: Request, error: Exception) -> Response:
    """Answer a request whose path has no route."""
    assert isinstance(error, HTTPException)
    message = "no such path" if error.status_code == 404 else str(error.detail)
    content = {"error": {"code": error.status_code, "message": message}, "message": message}
    return JSONResponse(content, error.status_code, headers=error.headers)


CALL_SECONDS = 120.0  # seconds; longest duration of a call for a request


class ServerSettings(Protocol):
    """The settings of a server for its HTTP port; see lingon.serving.settings."""

    http_host: str
    http_port: int | None
    http_apis: tuple[str, ...]
    http_page: bool
    http_data_dir: Path | None
    http_cors: tuple[str, ...]
    http_hosts: tuple[str, ...]
    http_trusted_proxies: str
    tls_certificate: Path | None
    tls_key: Path | None
    drain_seconds: float


@asynccontextmanager
async def in_server(
    channel: Any,
    registry: CollectorRegistry,
    settings: ServerSettings,
    *,
    max_connections: int,
    held_bytes: int,
    document_processes: int,
    document_bytes: int,
) -> AsyncIterator[Listening]:
    """Open the HTTP port of a server in its event loop.

    channel: a channel to its gRPC services, see Backend; registry: for the metrics
    max_connections: see HttpOptions
    held_bytes: bound of the bodies of all open requests, and of the bytes that all connections hold
    document_processes, document_bytes: see DocumentLimits
    """
    assert settings.http_port is not None
    http = HttpOptions(
        host=settings.http_host,
        port=settings.http_port,
        certificate=settings.tls_certificate,
        key=settings.tls_key,
        max_connections=max_connections,
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
    async with _open(Backend(channel, CALL_SECONDS), registry, http, options, documents) as opened:
        yield opened


def default_hosts(http: HttpOptions) -> Sequence[str]:
    """Return the names in the header Host that are accepted by default.

    On loopback only this machine calls the gateway, unless a proxy forwards requests of others.
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

    target: address of the server; tls: as for a client; announce: called with one line when the port is open
    insecure: whether keys of callers may be sent without TLS to another machine; if not, raises SettingsError
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
