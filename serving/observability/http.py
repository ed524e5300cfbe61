"""The HTTP port for operators: /metrics for Prometheus, /healthz for load balancers and probes."""

from __future__ import annotations

import errno
import logging
import math
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.openmetrics import exposition

from lingon.errors import LingonError
from lingon.serving.observability.logs import fault

CLOSE_TIMEOUT = 1.0  # seconds for the thread of a closed connection to end
RETRY_PAUSE = 0.1  # seconds between two tries to accept a connection if no file descriptor is free
PAUSE = 0.25  # seconds; shortest pause between two renderings of the metrics
PAUSE_FACTOR = 9  # ratio of the pause to the duration of a rendering, so that renderings take a tenth of a core
MAX_PAUSE = 1.0  # seconds; scrapers give up after a few seconds
MAX_CONNECTIONS = 128  # connections; each has a thread, and a process can run out of threads
_ERRORS_OF_PORTS = (errno.EADDRINUSE, errno.EACCES)  # other errors of binding are caused by the host
logger = logging.getLogger(__name__)


class HttpEndpoint:
    """The server of the HTTP port. It answers on separate threads, so that a slow scrape delays no translation."""

    def __init__(
        self,
        host: str,
        port: int,
        registry: CollectorRegistry,
        ready: Callable[[], bool],
        update: Callable[[], None] = lambda: None,
    ) -> None:
        """Bind the port, or with 0 a free one. Raises LingonError if the port cannot be bound.

        ready: whether the server serves
        update: called before the metrics are rendered, to set those with another source
        """
        self._ending = threading.Event()
        try:
            self._server = _Server((host, port), _handler(registry, ready, update, self._ending))
        except OSError as error:
            address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            advice = "; set --metrics-port" if error.errno in _ERRORS_OF_PORTS else "; set --metrics-host"
            raise LingonError(f"metrics port {address}: {error.strerror or error}{advice}") from None
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="metrics", daemon=True)

    def __enter__(self) -> HttpEndpoint:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._open: dict[socket.socket, None] = {}  # oldest first
        self._lock = threading.Lock()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6  # the address :: accepts IPv4 too
        super().__init__(address, handler)

    def get_request(self) -> tuple[Any, Any]:
        """Return the next connection, after a pause if no file descriptor is free."""
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                time.sleep(RETRY_PAUSE)  # the connection stays in the kernel's queue, and select would return at once
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer on a thread. If all slots are used, the oldest connection is closed, because a probe is short."""
        if not self._slots.acquire(blocking=False):
            self._close_oldest()
            if not self._slots.acquire(timeout=CLOSE_TIMEOUT):
                self.shutdown_request(request)
                return
        with self._lock:
            self._open[request] = None
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, on the thread of the connection, and free its slot."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def _close_oldest(self) -> None:
        with self._lock:
            oldest = next(iter(self._open), None)
            if oldest is not None:
                del self._open[oldest]
        if oldest is not None:
            with suppress(OSError):  # the peer may have closed the connection
                oldest.shutdown(socket.SHUT_RDWR)  # ends the thread of the connection

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log one line instead of the standard library's traceback, or nothing if the peer disconnected."""
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, OSError):
            fault(logger, "the metrics port failed to answer", error)


class MetricsPage:
    """The rendered metrics in one format. Every reader gets a page that was rendered after its request.

    Rendering takes time from the decoding threads. It is therefore limited for any number of scrapers: readers that
    wait at the same time share one page, and a pause follows each rendering.
    """

    def __init__(self, render: Callable[[], bytes], ending: threading.Event | None = None) -> None:
        """ending: set when the server ends; readers then do not wait."""
        self._render, self._lock, self._ending = render, threading.Lock(), ending or threading.Event()
        self._page, self._begun, self._pause_end = b"", -math.inf, -math.inf

    def read(self) -> bytes:
        """Wait for a rendering, and for the pause before it, and return the page."""
        asked = time.monotonic()
        with self._lock:
            if self._begun <= asked:
                self._ending.wait(self.seconds_to_wait())
                begun, worked = time.monotonic(), time.thread_time()
                self._page = self._render()
                self._begun = begun  # set after the rendering, because it may fail
                worked = time.thread_time() - worked  # without the time in which the thread waited for a core
                self._pause_end = time.monotonic() + min(max(PAUSE, PAUSE_FACTOR * worked), MAX_PAUSE)
            return self._page

    def seconds_to_wait(self) -> float:
        """Return the seconds until the pause after the last rendering ends."""
        return max(self._pause_end - time.monotonic(), 0.0)


def _prefers_openmetrics(accepted: str) -> bool:
    """Return whether an Accept header prefers OpenMetrics to the text format."""
    qualities = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for each in accepted.split(","):
        kind, *parameters = (part.strip() for part in each.split(";"))
        if kind in qualities:
            found = next((part[2:] for part in parameters if part.startswith("q=")), "1")
            with suppress(ValueError):
                qualities[kind] = max(qualities[kind], float(found))
    return qualities["application/openmetrics-text"] > qualities["text/plain"]


class _Handler(BaseHTTPRequestHandler):
    """The handler of one request. `_handler` sets the answers."""

    timeout = 10  # seconds; a client that sends nothing blocks a thread for so long at most
    text: MetricsPage
    openmetrics: MetricsPage
    ready: Callable[[], bool]

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            if _prefers_openmetrics(self.headers.get("Accept", "")):
                self._answer(200, exposition.CONTENT_TYPE_LATEST, self.openmetrics.read())
            else:
                self._answer(200, CONTENT_TYPE_PLAIN_0_0_4, self.text.read())
        elif path == "/healthz":
            serving = self.ready()
            self._answer(200 if serving else 503, "text/plain", b"SERVING\n" if serving else b"NOT_SERVING\n")
        else:
            self._answer(404, "text/plain", b"not found; try /metrics or /healthz\n")

    do_HEAD = do_GET  # some load balancers check health with HEAD

    def do_OPTIONS(self) -> None:
        if self.path in ("/", "*"):  # HAProxy's health check without a path
            self.path = "/healthz"
        self.do_GET()

    def _refuse(self) -> None:
        self._answer(405, "text/plain", b"method not allowed; use GET\n")

    do_POST = do_PUT = do_DELETE = do_PATCH = do_TRACE = do_CONNECT = _refuse

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body) if self.command != "OPTIONS" else 0))
        if status == 405 or self.command == "OPTIONS":
            self.send_header("Allow", "GET, HEAD, OPTIONS")
        self.end_headers()
        if self.command not in ("HEAD", "OPTIONS"):
            self.wfile.write(body)

    def version_string(self) -> str:
        """Return the Server header, without the versions of Python and its library."""
        return "lingon"

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing, because probes would fill the log."""


def _handler(
    registry: CollectorRegistry, is_ready: Callable[[], bool], update: Callable[[], None], ending: threading.Event
) -> type[BaseHTTPRequestHandler]:
    """Return the handler class of one port; see HttpEndpoint."""

    def page(generate: Callable[[CollectorRegistry], bytes]) -> MetricsPage:
        def render() -> bytes:
            update()
            return generate(registry)

        return MetricsPage(render, ending)

    class Handler(_Handler):
        text, openmetrics = page(generate_latest), page(exposition.generate_latest)
        ready = staticmethod(is_ready)

    return Handler
