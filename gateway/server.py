"""The HTTP server: uvicorn in the event loop of the caller, with additional bounds."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import socket
import ssl
import time
from collections.abc import AsyncIterator, Generator, Iterable, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute

from lingon.errors import LingonError, SettingsError
from lingon.gateway.connection import HEADER_SECONDS, Connection, Network, OpenConnections
from lingon.gateway.metrics import GatewayMetrics
from lingon.gateway.web_socket import MESSAGE_BYTES, PING_SECONDS
from lingon.line_limit import LimitedLines
from lingon.pem import load_pair

CUT_SECONDS = 2.0  # seconds for cancelled requests to send their replies
LATE_SECONDS = 1.0  # seconds between two checks of the time limits of connections
FILES_SECONDS = 1.0  # seconds between two checks of the files of the certificate
BACKLOG = 2048
ACCEPTED = 8  # connections per iteration of the event loop; uvloop accepts one for each descriptor of the socket
ANY = ("0.0.0.0/0", "::/0")  # the networks of all addresses
logger = logging.getLogger(__name__)
logging.getLogger("uvicorn").setLevel(logging.WARNING)  # its other lines repeat the line "ready"
LIMITED_LOGGERS = ("uvicorn.error", "lingon.gateway.connection", "lingon.gateway.endpoint", "lingon.gateway.documents")
for name in LIMITED_LOGGERS:
    logging.getLogger(name).addFilter(LimitedLines())


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpOptions:
    """Options of the HTTP port.

    port: 0 takes a free one
    certificate, key: PEM files, for HTTPS; reloaded when they change
    max_connections: above it, and above half of it from one address, a connection is answered with 503
    held_bytes: bound for headers, early requests and unsent replies of all connections
    trusted_proxies: addresses with a trusted X-Forwarded-For, separated by commas; they may have all connections
    drain_seconds: time limit of open requests when the server stops
    flags: prefix of the options host, port and trusted proxies, for messages
    """

    host: str = "127.0.0.1"
    port: int = 8080
    certificate: Path | None = None
    key: Path | None = None
    max_connections: int = 4096
    held_bytes: int = 64 << 20
    trusted_proxies: str = ""
    drain_seconds: float = 30.0
    flags: str = "--"

    def __post_init__(self) -> None:
        try:
            self.trusted_networks()
        except ValueError as error:
            expected = f"{self.flags}trusted-proxies must be addresses, networks such as 10.0.0.0/8, or *"
            raise SettingsError(f"{expected}; got {str(error)[:60]!r}") from None

    def trusted_networks(self) -> Sequence[Network]:
        """Return the networks of trusted proxies. Raises ValueError with the invalid part."""
        found: list[Network] = []
        for each in filter(None, map(str.strip, self.trusted_proxies.split(","))):
            try:
                found += map(ipaddress.ip_network, ANY) if each == "*" else [ipaddress.ip_network(each, strict=False)]
            except ValueError:
                raise ValueError(each) from None
        return found


class _Server(uvicorn.Server):
    """A server that leaves signals to the process. The time limit of headers also bounds a TLS handshake."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        seconds = HEADER_SECONDS if self.config.ssl else None
        made: Any = self.config.http_protocol_class
        connect = partial(made, config=self.config, server_state=self.server_state, app_state={})
        self.servers = [
            await asyncio.get_running_loop().create_server(
                connect,
                sock=each.dup(),
                ssl=self.config.ssl,
                backlog=BACKLOG,
                ssl_handshake_timeout=seconds,
                ssl_shutdown_timeout=seconds,
            )
            for each in sockets or ()
            for _ in range(ACCEPTED)
        ]
        self.started = True

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class Listening:
    """An open HTTP port."""

    def __init__(self, server: _Server, port: int) -> None:
        self._server, self.port = server, port
        self._end: float | None = None  # seconds of time.monotonic; end of the requests

    def stop(self, seconds: float) -> None:
        """Accept no more connections and requests. Open requests are cancelled after so many seconds.

        A second call changes nothing.
        """
        if self._end is None:
            self._end = time.monotonic() + seconds
            self._server.config.timeout_graceful_shutdown = max(int(seconds), 1)
            self._server.should_exit = True

    @property
    def seconds_left(self) -> float:
        """Seconds until all requests have ended."""
        return max((self._end or 0.0) - time.monotonic(), 0.0) + CUT_SECONDS


@asynccontextmanager
async def listening(app: Starlette, metrics: GatewayMetrics, options: HttpOptions) -> AsyncIterator[Listening]:
    """Serve an application until the block ends. Its requests then have drain_seconds to end.

    Raises LingonError if the port cannot be bound, SettingsError for an invalid certificate.
    """
    server = _Server(_config(app, metrics, options))
    bound = _bind(options)
    opened = Listening(server, int(bound.getsockname()[1]))
    task = asyncio.create_task(server.serve(sockets=[bound]))
    watches = (
        asyncio.create_task(_watch_certificate(server.config, options)),
        asyncio.create_task(_end_late_ones(server.server_state.connections)),
    )
    try:
        while not server.started:
            if task.done():
                task.result()
                raise LingonError("the HTTP server did not start")
            await asyncio.sleep(0.005)
        yield opened
    finally:
        opened.stop(options.drain_seconds)
        await asyncio.wait({task}, timeout=opened.seconds_left)
        for watch in watches:
            watch.cancel()
        bound.close()


def _config(app: Starlette, metrics: GatewayMetrics, options: HttpOptions) -> uvicorn.Config:
    networks = options.trusted_networks()
    connections = OpenConnections(options.max_connections, networks, options.held_bytes, metrics)
    sockets = {route.path.encode() for route in app.routes if isinstance(route, WebSocketRoute)}
    config = uvicorn.Config(
        app,
        loop="none",
        http=partial(Connection, connections=connections, sockets=sockets),  # type: ignore[arg-type]
        ws="none",  # Connection makes its own
        ws_max_size=MESSAGE_BYTES,
        ws_ping_interval=PING_SECONDS,
        ws_ping_timeout=None,
        ws_per_message_deflate=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(networks),
        forwarded_allow_ips=[str(network) for network in networks],
        timeout_graceful_shutdown=max(int(options.drain_seconds), 1),
        ssl_certfile=options.certificate,
        ssl_keyfile=options.key,
    )
    _load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), options)  # uvicorn would ask for a passphrase
    config.load()
    return config


def _load_certificate(context: ssl.SSLContext, options: HttpOptions) -> None:
    """Load the certificate, if there is one. Raises SettingsError."""
    if options.certificate is None or options.key is None:
        return
    try:
        contents = options.certificate.read_bytes(), options.key.read_bytes()
    except OSError as error:
        raise SettingsError(f"{error.filename}: {error.strerror}") from None
    names = str(options.certificate), str(options.key)
    load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), *contents, *names)
    load_pair(context, *contents, *names)


def _bind(options: HttpOptions) -> socket.socket:
    """Return a listening socket. It has no SO_REUSEPORT, so that no second server shares the port."""
    host, port = options.host, options.port
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(where)
        found.listen(BACKLOG)
    except socket.gaierror:
        raise LingonError(f"cannot listen on {address}: no such host is known; set {options.flags}host") from None
    except OSError as error:
        name = "host" if error.errno == errno.EADDRNOTAVAIL else "port"
        raise LingonError(f"cannot listen on {address}: {error.strerror}; set {options.flags}{name}") from None
    return found


async def _end_late_ones(connections: Iterable[Any]) -> None:
    """Close each Connection whose client is late to send or read."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(LATE_SECONDS)
        for each in tuple(connections):
            each.end_if_late(loop.time())


async def _watch_certificate(config: uvicorn.Config, options: HttpOptions) -> None:
    """Reload the certificate when its files change, for new connections."""
    if options.certificate is None or options.key is None or config.ssl is None:
        return
    known = _times(options.certificate, options.key)
    while True:
        await asyncio.sleep(FILES_SECONDS)
        times = _times(options.certificate, options.key)
        if times is not None and times != known:
            known = times
            try:
                _load_certificate(config.ssl, options)
                logger.info("the HTTP port has a new certificate")
            except SettingsError as error:
                logger.error("the HTTP port keeps its certificate: %s", error)


def _times(*paths: Path) -> tuple[int, ...] | None:
    try:
        return tuple(path.stat().st_mtime_ns for path in paths)
    except OSError:
        return None
