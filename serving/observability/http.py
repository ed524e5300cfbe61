"""The HTTP port for operators: /metrics for Prometheus, /healthz for whoever asks whether to send requests here."""

from __future__ import annotations

import errno
import logging
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
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from lingon.errors import LingonError
from lingon.serving.observability.logs import fault

FAREWELL = 1.0  # seconds for a thread whose peer was hung up on to end
PAUSE = 0.1  # seconds between two tries to have a file for a connection
logger = logging.getLogger(__name__)


class HttpEndpoint:
    """Answers on threads of its own, so that a slow scrape holds up no translation."""

    def __init__(self, host: str, port: int, registry: CollectorRegistry, ready: Callable[[], bool]) -> None:
        """Bind at once; port 0 takes a free one."""
        try:
            self._server = _Server((host, port), _handler(registry, ready))
        except OSError as error:
            raise LingonError(f"metrics port {host}:{port}: {error.strerror or error}; set --metrics-port") from None
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="metrics", daemon=True)

    def __enter__(self) -> HttpEndpoint:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    most = 128  # connections, each of which has a thread: of more the engine might find none

    def __init__(self, *arguments: Any) -> None:
        self._places = threading.BoundedSemaphore(self.most)
        self._open: dict[socket.socket, None] = {}  # oldest first
        self._changing = threading.Lock()
        super().__init__(*arguments)

    def get_request(self) -> tuple[Any, Any]:
        """The next connection; where the process has no file left for it, not at once again."""
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                time.sleep(PAUSE)  # it stays in the kernel's queue, which would wake this thread again and again
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer on a thread; who has been here longest gives his place to who comes, for a probe takes no time."""
        if not self._places.acquire(blocking=False):
            self._hang_up_on_the_oldest()
            if not self._places.acquire(timeout=FAREWELL):
                self.shutdown_request(request)
                return
        with self._changing:
            self._open[request] = None
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """What that thread does."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def shutdown_request(self, request: Any) -> None:
        """It was answered, or cannot be."""
        with self._changing:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def _hang_up_on_the_oldest(self) -> None:
        with self._changing:
            oldest = next(iter(self._open), None)
            if oldest is not None:
                del self._open[oldest]
        if oldest is not None:
            with suppress(OSError):  # it has just gone by itself
                oldest.shutdown(socket.SHUT_RDWR)  # which ends its thread

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Of a peer that went there is nothing to say; of others one line, where the standard library prints many."""
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, OSError):
            fault(logger, "the metrics port failed to answer", error)


def _handler(registry: CollectorRegistry, ready: Callable[[], bool]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # seconds; a client that says nothing holds no thread for longer

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(200, CONTENT_TYPE_LATEST, generate_latest(registry))
            elif path == "/healthz":
                serving = ready()
                self._answer(200 if serving else 503, "text/plain", b"SERVING\n" if serving else b"NOT_SERVING\n")
            else:
                self._answer(404, "text/plain", b"here are /metrics and /healthz\n")

        def _answer(self, status: int, content_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: a probe every second is no news."""

    return Handler
