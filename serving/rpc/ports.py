"""The gRPC ports of a server: their limits, their security and their addresses."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import grpc
from grpc_health.v1 import health

from lingon.errors import LingonError
from lingon.pem import RevocationLists
from lingon.serving.auth.api_keys import ApiKeyFile
from lingon.serving.auth.callers import KEY, ApiKeyInterceptor, CertificateCheck
from lingon.serving.auth.charges import ModelsOf
from lingon.serving.auth.tls import Certificates, TlsFiles
from lingon.serving.auth.watched_files import WatchedFiles
from lingon.serving.engine.cost import UNKNOWN_MODEL
from lingon.serving.observability.logs import event, fault
from lingon.serving.observability.metrics import Metrics
from lingon.serving.rpc.admission import CallLimits
from lingon.serving.rpc.arrival import Arrivals, EarlyRefusal, LoadShedder
from lingon.serving.rpc.calls import SERVICE, Metadata
from lingon.serving.rpc.grpc_server import make_server
from lingon.serving.rpc.interceptors import CallInterceptor, ErrorInterceptor
from lingon.serving.rpc.standard_services import V1, V1ALPHA
from lingon.serving.settings import HELD_BYTES, HTTP_CONNECTIONS, LOOPBACK, SLOW_BYTES, Settings

SPARE_FILES = 256  # files beside connections: graphs, libraries, logs, health checks
PENDING = 10_000
"""Calls that gRPC holds until the event loop accepts them. Above this number it drops calls of any caller. As many may
then wait to be read.

gRPC's default of 1,000 is 0.2 s of work. A flood of calls that are started and reset reaches it at once. A limit on the
calls of one connection (`grpc.max_concurrent_streams`) also stops such a flood, but then two thirds of 1,000 calls
that one client starts at once end with UNAVAILABLE. MAX_CALLS bounds the calls of all connections instead.
"""

MAX_CONNECTIONS = 8192  # connections to a gRPC port; above it new ones are closed
MAX_CALL_SECONDS = 600.0  # seconds; longest duration of a call, with or without a deadline
MAX_CALLS = 2048  # open calls, without health and reflection
RECEIVE_SECONDS = 30.0  # seconds for a request to arrive whole
IDLE_SECONDS = 900.0  # seconds without a call until a connection is closed
WATCH_SECONDS = 0.25  # seconds between two checks of the files of keys and certificates
HEALTH_BYTES = 4096  # bytes of a health or reflection request
ADMIN_BYTES = 65_536  # bytes of a request of the admin port, which holds a path or a name
HANDSHAKE_SECONDS = 20  # seconds for a new connection to begin HTTP/2
SILENT_SECONDS = 60  # seconds without data of a client until it is pinged
PING_SECONDS = 20  # seconds for it to answer; gRPC's default is a minute

SLOW_CALLS = 32  # calls with slow requests, if their requests have at most SLOW_BYTES

HEALTH_CALLS = CallLimits(kind="health", max_calls=1024, max_seconds=60, receive_seconds=5, request_bytes=HEALTH_BYTES)
WATCH_CALLS = CallLimits(kind="watch", max_calls=1024, max_seconds=None, receive_seconds=5, request_bytes=HEALTH_BYTES)
"""Watch calls of the health service last as long as their clients want, and must not exclude its other calls."""

REFLECTION_CALLS = CallLimits(
    kind="reflection", max_calls=32, max_seconds=60, receive_seconds=5, request_bytes=HEALTH_BYTES
)
SILENT_SPEAKER_SECONDS = 600.0  # seconds without a message until the call of a speaker ends
SPEAKER_BYTES = 1 << 19  # bytes of a message of a speaker: 1,000 words of 64 characters, of up to 4 bytes each

ADMIN_CALLS = CallLimits(kind="admin", max_calls=64, max_seconds=None, receive_seconds=10, request_bytes=ADMIN_BYTES)

logger = logging.getLogger(__name__)


def call_limits(settings: Settings) -> dict[str, CallLimits]:
    """Return the limits of the calls of each service, by the prefix of its path. "" is for all others."""
    calls = CallLimits(
        kind="translation",
        max_calls=MAX_CALLS,
        max_seconds=MAX_CALL_SECONDS,
        receive_seconds=RECEIVE_SECONDS,
        message_seconds=RECEIVE_SECONDS,
        request_bytes=settings.max_message_bytes,
        slow_calls=max(min(SLOW_CALLS, SLOW_BYTES // settings.max_message_bytes), 4),
        held_bytes=max(HELD_BYTES, 2 * settings.max_message_bytes),
    )
    speakers = CallLimits(
        kind="live",
        max_calls=settings.live_speakers,
        max_seconds=None,
        receive_seconds=RECEIVE_SECONDS,
        message_seconds=SILENT_SPEAKER_SECONDS,
        request_bytes=min(SPEAKER_BYTES, settings.max_message_bytes),
    )
    reflection = dict.fromkeys((f"/{name}/" for name in (V1, V1ALPHA)), REFLECTION_CALLS)
    checks = {f"/{health.SERVICE_NAME}/": HEALTH_CALLS, f"/{health.SERVICE_NAME}/Watch": WATCH_CALLS}
    return {"": calls, f"{SERVICE}TranslateLive": speakers, **checks, **reflection}


def allow_many_files() -> None:
    """Raise the limit of open files to the maximum, because each connection is a file and the usual limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):  # the system does not allow the maximum
        event(logger, logging.WARNING, "the limit of open files cannot be raised", limit=soft)


class Connections(NamedTuple):
    """Bounds of the connections to the ports."""

    grpc: int
    http: int


def most_connections() -> Connections:
    """Return the largest bounds of the connections."""
    return Connections(MAX_CONNECTIONS, HTTP_CONNECTIONS)


def fitting_connections(*, http: bool) -> Connections:
    """Return the connections that fit in the limit of open files, and log a warning if they are fewer than the most.

    Without a file for its next connection a port answers no client and no health check.

    http: whether there is an HTTP port
    """
    most = most_connections()
    files, total = resource.getrlimit(resource.RLIMIT_NOFILE)[0], most.grpc + (most.http if http else 0)
    room = files - min(SPARE_FILES, files // 2)
    if files == resource.RLIM_INFINITY or total <= room:
        return most
    found = Connections(*(max(each * room // total, 1) for each in most))
    fewer = found._asdict() if http else {"grpc": found.grpc}
    event(logger, logging.WARNING, "the limit of open files allows fewer connections", limit=files, **fewer)
    return found


class PortSecurity:
    """The checks of a server's ports for their callers: TLS, client certificates, API keys."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        """Read the files of keys and certificates. Raises SettingsError."""
        grace = settings.credential_grace_seconds
        self._keys = ApiKeyFile(settings.api_keys, grace=grace, usage=metrics.keys) if settings.api_keys else None
        self._tls = TlsFiles(settings) if settings.tls_certificate is not None else None
        self.admit = CertificateCheck(self._tls, settings.tls_client_names).check  # for the calls of all ports
        self._show_files(metrics)
        hosts = [settings.host]
        hosts += [settings.admin_host] if settings.admin_port is not None else []
        hosts += [settings.http_host] if settings.http_port is not None else []
        reachable = any(host not in LOOPBACK for host in hosts)
        if settings.api_keys is not None and settings.tls_certificate is None and reachable:
            event(
                logger,
                logging.WARNING,
                "API keys are sent unencrypted; set tls_certificate and tls_key, or terminate TLS in a proxy",
            )

    def second_hourly(self, caller: str) -> int | None:
        """Return how many sentences of a caller go to the second translator in an hour, None if its key does not say.

        caller: see `find_caller`
        """
        name = caller.removeprefix(KEY)
        key = self._keys.named(name) if self._keys is not None and name != caller else None
        return None if key is None else key.second_per_hour

    def credentials(self) -> grpc.ServerCredentials | None:
        """Return the credentials of one port. Every port needs its own, because gRPC reloads the files for each."""
        return self._tls.credentials() if self._tls is not None else None

    async def watch_files(self) -> None:
        """Check the files without end, because the metrics must show an unusable file before the next call."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            self.check_files()

    def check_files(self) -> None:
        """Reload the files that changed. Never raises."""
        try:
            for files in (self._keys, self._tls):
                if files is not None:
                    files.reload_if_changed()
        except Exception as error:  # the next check may succeed
            fault(logger, "the files of keys and certificates were not checked", error)

    def _show_files(self, metrics: Metrics) -> None:
        """Let the metrics read the state of the files at every scrape."""
        if self._keys is not None:
            _show_state(metrics, self._keys.file)
        if self._tls is not None:
            for files in self._tls.all:
                _show_state(metrics, files)
                metrics.tls_not_after.labels(files.name).set_function(partial(_not_after, files))

    def interceptors(
        self, *, admin: bool = False, models_of: ModelsOf = lambda request: [UNKNOWN_MODEL]
    ) -> list[grpc.aio.ServerInterceptor]:
        """Return the interceptors that check the callers of a port; admin: whether it is the admin port.

        models_of: returns the models that serve a request, for quotas
        """
        if self._keys is None:
            return []
        return [ApiKeyInterceptor(self._keys, admin=admin, models_of=models_of)]


def _show_state(metrics: Metrics, files: WatchedFiles[Any]) -> None:
    metrics.file_unusable.labels(files.name).set_function(lambda: files.unusable)


def _not_after(files: WatchedFiles[Certificates] | WatchedFiles[RevocationLists]) -> float:
    return files.value.not_after


def grpc_server(
    settings: Settings,
    interceptors: Sequence[grpc.aio.ServerInterceptor],
    max_message_bytes: int,
    connections: int,
    shedder: LoadShedder | None = None,
) -> grpc.aio.Server:
    """Return a server without services and ports.

    max_message_bytes: size of the largest request; connections: bound of the connections to the port
    shedder: refuses calls before they are read; the first interceptor must then be a CallInterceptor
    """
    (errors,) = (each for each in interceptors if isinstance(each, ErrorInterceptor))
    key_checks = [each for each in interceptors if isinstance(each, ApiKeyInterceptor)]

    def check(metadata: Metadata) -> None:
        for each in key_checks:
            each.check(metadata)

    options = [
        ("grpc.so_reuseport", 0),  # otherwise a second server could bind the same port and receive half of the calls
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.http2.bdp_probe", 0),  # otherwise every call may send 4 MiB before the server reads its request
        ("grpc.max_allowed_incoming_connections", connections),
        ("grpc.max_connection_idle_ms", int(IDLE_SECONDS * 1000)),  # clients reconnect with their next call
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_SECONDS * 1000),
        ("grpc.keepalive_time_ms", SILENT_SECONDS * 1000),  # these three find clients that disappeared silently
        ("grpc.keepalive_timeout_ms", PING_SECONDS * 1000),  # for the machine of the client to acknowledge data
        ("grpc.http2.ping_timeout_ms", PING_SECONDS * 1000),  # for the client to answer
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),  # otherwise these three apply only during a call
        ("grpc.server.max_pending_requests", PENDING),
        ("grpc.server.max_pending_requests_hard_limit", 2 * PENDING),
    ]
    if settings.max_connection_age_seconds:
        options.append(("grpc.max_connection_age_ms", int(settings.max_connection_age_seconds * 1000)))
        options.append(("grpc.max_connection_age_grace_ms", int(settings.drain_seconds * 1000)))
    refuse_unknown = partial(errors.refuse_unknown_method, check)
    if shedder is None:
        return make_server(interceptors, options, refuse_unknown)
    assert isinstance(errors, CallInterceptor)
    refusal = EarlyRefusal(shedder, errors, check if key_checks else None)
    arrivals = Arrivals(refusal, PENDING, errors.metrics.call_wait.observe, shedder.gate)
    errors.metrics.waiting_calls.set_function(lambda: arrivals.count)
    return make_server(interceptors, options, refuse_unknown, arrivals.arrive, arrivals.refusal)


def bind(
    server: grpc.aio.Server, host: str, port: int, credentials: grpc.ServerCredentials | None = None, flag: str = "port"
) -> int:
    """Listen on an address and return the port. With `port` 0 it is a free one.

    flag: the setting to change if the port is taken
    """
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        if credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, credentials)
    except RuntimeError:
        why = _why_not(host, port, "" if flag == "port" else "admin-")
        raise LingonError(f"cannot listen on {address}: {why}") from None


def _why_not(host: str, port: int, prefix: str) -> str:
    """Return why an address cannot be bound, which gRPC does not report; prefix: start of the port's flags."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as gRPC sets it
            probe.bind(address)
            probe.listen()
    except socket.gaierror:
        return f"no such host is known; set --{prefix}host"
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            return f"this machine does not have that address; set --{prefix}host"
        if error.errno == errno.EADDRINUSE:
            return f"it is in use; set --{prefix}port"
        return f"{error.strerror}; set --{prefix}host or --{prefix}port"
    return f"it is in use or not allowed; set --{prefix}host or --{prefix}port"
