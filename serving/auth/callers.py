"""The caller of a call, and its admission by API key, client certificate and address.

A caller is identified by its API key, else by its client certificate, else by its address. The key and the
certificate of every call are checked, except for health checks.
"""

from __future__ import annotations

import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import Any, TypeAlias
from urllib.parse import unquote

import grpc
from grpc_health.v1 import health

from lingon.client.connection import block_of
from lingon.errors import AuthenticationUnavailable, Forbidden, RequestError, Unauthenticated
from lingon.pem import CertificateId, certificate_ids
from lingon.serving.auth.api_keys import ApiKey, ApiKeyFile
from lingon.serving.auth.charges import Account, ModelsOf, account
from lingon.serving.auth.tls import TlsFiles
from lingon.serving.engine.cost import UNKNOWN_MODEL
from lingon.status import CLIENT_ADDRESS

Context = grpc.aio.ServicerContext[Any, Any]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Metadata = Iterable[tuple[str, str | bytes]]

OWN_GATEWAY = "in-process"  # peer of calls by the server's own gateway
PORTS = ("address", "http")  # prefixes of callers identified by address: on the gRPC port, on the HTTP port
KEY = "key/"  # prefix of callers identified by an API key
AUTHORIZATION = "authorization"
SHOWN = 128  # characters of a name in an error message
_NO_KEY_NEEDED = f"/{health.SERVICE_NAME}/"  # prefix of the methods that need no key

presented_key: ContextVar[ApiKey | None] = ContextVar("presented_key", default=None)
"""The known key that the call of this task sent, even if the call is refused; else None.

gRPC passes no arguments of an interceptor to a method.
"""

_repeated: ContextVar[tuple[Callable[[Context], None], ...]] = ContextVar("repeated", default=())
"""The checks of the key and of the certificate of the call that this task serves; see `check_again`.

They do not hold the context of the call, which holds this task: a call would be freed by a garbage collection alone.
"""


def check_again(context: Context) -> None:
    """Check the caller of a call that stays open again. Raises the error with which a new call would end."""
    for check in _repeated.get():
        check(context)


known_caller: ContextVar[str | None] = ContextVar("known_caller", default=None)
"""The caller of the call that this task serves, cached because certificates take long to read; None before."""


def caller_of(context: Context) -> str:
    """Return the identity of the caller of the call that this task serves; see `find_caller`."""
    caller = known_caller.get()
    if caller is None:
        known_caller.set(caller := find_caller(context))
    return caller


def find_caller(context: Context) -> str:
    """Return the identity of the caller: the name of its key, else of its certificate, else the `block_of` its address.

    A prefix separates the kinds, so that no caller can imitate another one. The identity is for fair queuing, logs and
    traces, not for labels of metrics. An address is a different caller on each port, because behind a proxy one address
    has many clients. HTTP clients without a deadline would otherwise fill the queue for gRPC clients.
    """
    key = presented_key.get()
    if key is not None:
        return KEY + key.name
    for name in certificate_names(context):
        return f"certificate/{name}"
    peer: str = context.peer()
    if peer != OWN_GATEWAY:
        return _block_of_peer(peer, PORTS[0])
    return _block_of_peer(_client_of(context.invocation_metadata() or ()), PORTS[1])


def is_of_own_gateway(context: Context) -> bool:
    """Return whether the server's own gateway makes the call for an HTTP client."""
    return bool(context.peer() == OWN_GATEWAY)


def on_other_port(caller: str) -> str:
    """Return the identity of a caller's address on the other port, or "" for a caller with a key or certificate."""
    port, _, address = caller.partition("/")
    return f"{PORTS[1 - PORTS.index(port)]}/{address}" if port in PORTS else ""


def certificate_names(context: Context) -> list[str]:
    """Return the names of the client certificate: its common name, then its alternative names. Empty without one."""
    fields: Any = context.auth_context()
    names = [name for field in ("x509_common_name", "x509_subject_alternative_name") for name in fields.get(field, ())]
    return [name.decode("utf-8", "replace") for name in names if name]


def certificate_ids_of(context: Context) -> frozenset[CertificateId]:
    """Return the issuers and serial numbers of the client certificate and of its chain."""
    fields: Any = context.auth_context()
    return _ids(b"".join(part for name in ("x509_pem_cert", "x509_pem_cert_chain") for part in fields.get(name, ())))


@functools.lru_cache(maxsize=256)
def _ids(pem: bytes) -> frozenset[CertificateId]:
    return frozenset(certificate_ids(pem))


def address_of(peer: str, metadata: Metadata) -> str:
    """Return the address of the caller of a call without the port, for logs."""
    return f"address/{_address_of(_client_of(metadata) if peer == OWN_GATEWAY else peer)}"


def _client_of(metadata: Metadata) -> str:
    """Return the peer that a client of the server's own gateway would have on a port."""
    sent = (value for name, value in metadata if name == CLIENT_ADDRESS)
    address = str(next(sent, ""))
    return f"ipv6:%5B{address}%5D:0" if ":" in address else f"ipv4:{address}:0"


@functools.lru_cache(maxsize=1024)
def _block_of_peer(peer: str, port: str) -> str:
    return f"{port}/{block_of(_address_of(peer))}"


@functools.lru_cache(maxsize=1024)
def _address_of(peer: str) -> str:
    """Return the address of a peer: ipv4:127.0.0.1:5000, ipv6:%5B::1%5D:5000 or unix:path."""
    kind, _, address = peer.partition(":")
    return unquote(address.rpartition(":")[0]).strip("[]") if kind.startswith("ip") else address


class ApiKeyInterceptor(grpc.aio.ServerInterceptor):
    """A check of the key before anything of a call is read, even for unknown methods.

    The returned handler raises the error, so that another interceptor converts it to a status.
    """

    def __init__(
        self, key_file: ApiKeyFile, *, admin: bool = False, models_of: ModelsOf = lambda request: [UNKNOWN_MODEL]
    ) -> None:
        """admin: accept only keys with access to the admin port; models_of: for the charges of quotas."""
        self._key_file, self._admin, self._models_of = key_file, admin, models_of

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Return the handler of a call, or one that raises the error."""
        if handler_call_details.method.startswith(_NO_KEY_NEEDED):
            return await continuation(handler_call_details)
        try:
            self.check(handler_call_details.invocation_metadata or ())
        except RequestError as error:
            return grpc.stream_stream_rpc_method_handler(_raising(error))
        return await continuation(handler_call_details)

    def check(self, metadata: Metadata) -> None:
        """Check the key of the call that this task serves. Raises Unauthenticated or Forbidden."""
        self._accept(metadata)
        _repeated.set((lambda context: self._accept(metadata),))

    def _accept(self, metadata: Metadata) -> None:
        key = self._key_file.identify(_key_in(metadata))
        presented_key.set(key)  # also for a refused key, so that the log names it
        quota = self._key_file.accept(key, admin=self._admin)
        account.set(Account(key.name, quota, self._key_file.usage, self._models_of))


class CertificateCheck:
    """A check of the client certificate of a call, after its signature, and that the API key belongs to it.

    It is no interceptor, because gRPC does not pass the peer to interceptors.
    """

    def __init__(self, tls: TlsFiles | None, names: Sequence[str] | None = None) -> None:
        """tls: authorities and revocations; names: admitted certificates, see `tls_client_names`, or None for all."""
        self._tls, self._names = tls, names

    def check(self, method: str, context: Context) -> None:
        """Check the certificate of a call. Raises Unauthenticated or Forbidden."""
        if method.startswith(_NO_KEY_NEEDED):
            return
        self._check(context)
        _repeated.set((*_repeated.get(), self._check))
        accepted = account.get()
        if accepted is not None and accepted.usage is not None:
            accepted.usage.accepted(accepted.key, time.time())

    def _check(self, context: Context) -> None:
        if self._tls is not None:
            _check_revocation(self._tls, context)
        key = presented_key.get()
        bound = self._names is not None or (key is not None and key.certificate is not None)
        names = certificate_names(context) if bound else []
        if self._names is not None and not any(admits(pattern, name) for pattern in self._names for name in names):
            raise Forbidden(f"the server does not admit the client certificate {_shown(names)}")
        if key is not None and key.certificate is not None and key.certificate not in names:
            raise Unauthenticated(f"the API key is not valid with the client certificate {_shown(names)}")


def _check_revocation(tls: TlsFiles, context: Context) -> None:
    """Raise Unauthenticated if a certificate of the client's chain is revoked or cannot be checked."""
    for files, what in ((tls.authorities, "client authorities"), (tls.revocations, "revoked certificates")):
        if files is not None and files.expired:
            raise AuthenticationUnavailable(
                f"the server's file of {what} is unusable; no certificate is valid meanwhile"
            )
    if tls.revocations is not None and not certificate_ids_of(context).isdisjoint(tls.revocations.value.revoked):
        raise Unauthenticated("the client certificate is revoked")


def admits(pattern: str, name: str) -> bool:
    """Return whether a pattern of `tls_client_names` admits a name: both are equal, or *. stands for one label."""
    if not pattern.startswith("*."):
        return name == pattern
    label, dot, rest = name.partition(".")
    return bool(label) and dot + rest == pattern[1:]


def _shown(names: Sequence[str]) -> str:
    """Return the names of a certificate for an error message."""
    return ", ".join(repr(name[:SHOWN]) for name in names[:3]) or "'' (there is none)"


def _key_in(metadata: Metadata) -> str:
    """Return the key in the metadata of a call. Raises Unauthenticated."""
    values = [value for name, value in metadata if name == AUTHORIZATION]
    if len(values) != 1 or not isinstance(values[0], str):
        raise Unauthenticated("an API key is needed: send it as metadata, authorization: Bearer KEY")
    scheme, _, key = values[0].strip().partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        raise Unauthenticated("the authorization of a call must be: Bearer KEY")
    return key.strip()


def _raising(error: RequestError) -> Any:
    async def fail(requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        raise error
        yield b""  # makes the function an async generator, which a streaming method must be

    return fail
