"""The gRPC ports of a server: what they take at most, whom they let in, and where they listen."""

from __future__ import annotations

import logging
import resource
from collections.abc import Sequence

import grpc

from lingon.errors import LingonError
from lingon.serving.auth.api_keys import ApiKeyFile
from lingon.serving.auth.interceptor import ApiKeyInterceptor
from lingon.serving.auth.tls import server_credentials
from lingon.serving.observability.logs import event
from lingon.serving.rpc.unknown_methods import make_server
from lingon.serving.settings import LOOPBACK, Settings

PENDING = 10_000
"""Calls that may wait for the event loop, a flood of them that are begun and reset. From here on gRPC drops anybody's.

Its own 1,000 are 0.2 s of work. A bound on the calls of one connection (`grpc.max_concurrent_streams`) keeps a flood
out too, but of 1,000 calls that a client begins at once two thirds then end with UNAVAILABLE.
"""

logger = logging.getLogger(__name__)


def allow_many_files() -> None:
    """Raise the limit of open files as far as it goes: each connection is one, and the usual 1,024 are soon taken."""
    usual, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except (ValueError, OSError):  # that is further than the system allows
        event(logger, logging.WARNING, "the limit of open files stays", limit=usual)


class PortSecurity:
    """What the ports of a server ask of those who come: TLS, a certificate, an API key; all as the settings say."""

    def __init__(self, settings: Settings) -> None:
        """Read what is needed; raises SettingsError."""
        self._settings = settings
        self._keyring = ApiKeyFile(settings.api_keys) if settings.api_keys is not None else None
        open_to_all = settings.host not in LOOPBACK or (
            settings.admin_port is not None and settings.admin_host not in LOOPBACK
        )
        if settings.api_keys is not None and settings.tls_certificate is None and open_to_all:
            event(logger, logging.WARNING, "API keys travel in the clear: without TLS here, there must be some before")

    def credentials(self) -> grpc.ServerCredentials | None:
        """For one port: gRPC asks each for new files apart."""
        return server_credentials(self._settings)

    def interceptors(self, *, admin: bool = False) -> list[grpc.aio.ServerInterceptor]:
        """What calls pass before they are read; admin: on the admin port."""
        return [ApiKeyInterceptor(self._keyring, admin=admin)] if self._keyring is not None else []


def grpc_server(settings: Settings, interceptors: Sequence[grpc.aio.ServerInterceptor]) -> grpc.aio.Server:
    """A server without services or ports yet."""
    options = [
        ("grpc.so_reuseport", 0),  # else a second server binds the same port and takes half of the calls
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.keepalive_time_ms", 60_000),  # clients that vanished without a word are found within these two
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.server.max_pending_requests", PENDING),
        ("grpc.server.max_pending_requests_hard_limit", 2 * PENDING),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    ]
    if settings.max_connection_age_seconds:
        options.append(("grpc.max_connection_age_ms", int(settings.max_connection_age_seconds * 1000)))
    doorkeepers = [each for each in interceptors if isinstance(each, ApiKeyInterceptor)]
    return make_server(interceptors, options, lambda metadata: [each.check(metadata) for each in doorkeepers])


def bind(
    server: grpc.aio.Server, host: str, port: int, credentials: grpc.ServerCredentials | None = None, flag: str = "port"
) -> int:
    """Listen; returns the port, a free one where it is 0.

    flag: of the setting to change where the port is taken
    """
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        if credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, credentials)
    except RuntimeError:
        hosts = "--host or --port" if flag == "port" else "--admin-host or --admin-port"
        raise LingonError(f"cannot listen on {address}: it is in use or not allowed; set {hosts}") from None
