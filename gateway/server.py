"""The HTTP server: uvicorn within the event loop of the caller, with bounds that it does not have by itself."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from lingon.errors import LingonError, SettingsError
from lingon.gateway.metrics import GatewayMetrics
from lingon.gateway.requests.endpoint import WATCH_CLIENT
from lingon.pem import load_pair

HEADER_SECONDS = 10.0  # for the headers of a request to arrive
HEADER_BYTES = 65_536  # of headers that have not all arrived
IDLE_SECONDS = 75  # for which a connection without a request stays open
CUT_SECONDS = 2.0  # for requests that are cut off to be answered
FILES_SECONDS = 1.0  # between two checks of the files of the certificate
BACKLOG = 2048
logger = logging.getLogger(__name__)
logging.getLogger("uvicorn").setLevel(logging.WARNING)  # its other lines say what the line "ready" says


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpOptions:
    """Where and how the HTTP port listens.

    port: 0 takes a free one
    certificate, key: PEM files, for HTTPS; read again when they change
    max_connections: above it a connection is answered with 503
    trusted_proxies: addresses whose X-Forwarded-For is believed, separated by commas
    drain_seconds: for requests to end when the server stops
    flags: start of the names of the options host, port and trusted proxies, for messages
    """

    host: str = "127.0.0.1"
    port: int = 8080
    certificate: Path | None = None
    key: Path | None = None
    max_connections: int = 4096
    trusted_proxies: str = ""
    drain_seconds: float = 30.0
    flags: str = "--"

    def __post_init__(self) -> None:
        for each in filter(None, map(str.strip, self.trusted_proxies.split(","))):
            try:
                if each != "*":
                    ipaddress.ip_network(each, strict=False)
            except ValueError:
                expected = f"{self.flags}trusted-proxies must be addresses, networks such as 10.0.0.0/8, or *"
                raise SettingsError(f"{expected}; got {each[:60]!r}") from None


class _Protocol(HttpToolsProtocol):
    """Closes a connection whose headers do not arrive or do not end, and counts connections.

    Replies to earlier requests of the connection are sent first, and meanwhile not much of such headers is read.
    """

    _awaits_headers = False
    _late: asyncio.TimerHandle | None = None  # while headers are awaited and no earlier reply is open
    _arrived = 0  # bytes of the headers
    _request_ended = False  # in the bytes that arrived last, some of which are thus not of the headers

    def __init__(self, *args: Any, metrics: GatewayMetrics, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._metrics = metrics
        self._leaving: dict[Callable[[], None], None] = {}  # called when the client disconnects

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._metrics.connections.inc()
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._headers_came()
        self._metrics.connections.dec()
        super().connection_lost(exc)
        for leave in tuple(self._leaving):
            leave()
        self._leaving.clear()

    def data_received(self, data: bytes) -> None:
        self._request_ended = False
        super().data_received(data)
        if self._awaits_headers and not self._request_ended:
            self._arrived += len(data)
            self._check_headers()

    def _check_headers(self) -> None:
        """Refuse headers that have too many bytes, or read no more of them while an earlier reply is open."""
        if self._arrived <= HEADER_BYTES or self.transport.is_closing():
            return
        if self._is_replying:
            self.flow.pause_reading()
        else:
            self._refuse_headers()

    @property
    def _is_replying(self) -> bool:
        """Whether a request whose headers have arrived is not answered."""
        # The cycle is that of the latest request, and None before the first one.
        return self.cycle is not None and not self.cycle.response_complete  # type: ignore[redundant-expr]

    def _refuse_headers(self) -> None:
        self._headers_came()
        message = f"the address and the headers may have {HEADER_BYTES:,} bytes at most"
        self.transport.write(
            b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n"
            b"content-type: text/plain; charset=utf-8\r\n"
            b"content-length: %d\r\n\r\n%s" % (len(message), message.encode())
        )
        self.transport.close()

    def on_message_begin(self) -> None:
        self._await_headers()
        super().on_message_begin()
        self.scope[WATCH_CLIENT] = self._watch_client  # type: ignore[literal-required]

    def _watch_client(self, leave: Callable[[], None]) -> Callable[[], None]:
        """See lingon.gateway.requests.endpoint.WatchClient."""
        if self.transport.is_closing():
            self.loop.call_soon(leave)
            return lambda: None
        self.flow.resume_reading()  # a long body pauses it, and the protocol then does not see that the client leaves
        self._leaving[leave] = None
        return partial(self._leaving.pop, leave, None)

    def on_headers_complete(self) -> None:
        self._headers_came()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._request_ended = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._awaits_headers and not self._is_replying and not self.transport.is_closing():
            self._start_timer()
            self._check_headers()

    def _await_headers(self) -> None:
        self._headers_came()
        self._awaits_headers, self._arrived = True, 0
        if not self._is_replying:
            self._start_timer()

    def _start_timer(self) -> None:
        self._late = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def _headers_came(self) -> None:
        self._awaits_headers = False
        if self._late is not None:
            self._late.cancel()
            self._late = None


class _Server(uvicorn.Server):
    """Leaves the signals to the process."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class Listening:
    """An HTTP port that is open."""

    def __init__(self, server: _Server, port: int) -> None:
        self._server, self.port = server, port
        self._end: float | None = None  # of the requests, in seconds of time.monotonic

    def stop(self, seconds: float) -> None:
        """Take no more connections and requests; those under way have so many seconds, then they are cut off.

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
    """Serve an application until the block ends; its requests have drain_seconds to end.

    Raises LingonError if the port cannot be bound, SettingsError for a certificate that cannot be used.
    """
    server = _Server(_config(app, metrics, options))
    bound = _bind(options)
    opened = Listening(server, int(bound.getsockname()[1]))
    task = asyncio.create_task(server.serve(sockets=[bound]))
    watch = asyncio.create_task(_watch_certificate(server.config, options))
    try:
        while not server.started:
            if task.done():
                task.result()
                raise LingonError("the HTTP server did not start")
            await asyncio.sleep(0.005)
        yield opened
    finally:
        watch.cancel()
        opened.stop(options.drain_seconds)
        await asyncio.wait({task}, timeout=opened.seconds_left)
        bound.close()


def _config(app: Starlette, metrics: GatewayMetrics, options: HttpOptions) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        loop="none",
        http=partial(_Protocol, metrics=metrics),  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(options.trusted_proxies),
        forwarded_allow_ips=options.trusted_proxies or None,
        limit_concurrency=options.max_connections + 1,  # uvicorn refuses the connection that reaches it
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=max(int(options.drain_seconds), 1),
        ssl_certfile=options.certificate,
        ssl_keyfile=options.key,
    )
    _load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), options)  # uvicorn would ask for a passphrase
    config.load()
    return config


def _load_certificate(context: ssl.SSLContext, options: HttpOptions) -> None:
    """Load the files of the certificate, if there is one; raises SettingsError."""
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
    """Return a socket that listens; without SO_REUSEPORT, so that no second server shares the port."""
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


async def _watch_certificate(config: uvicorn.Config, options: HttpOptions) -> None:
    """Read the files of the certificate again when they change; new connections use it."""
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
