"""Who calls: the name of the API key, else of the client certificate, else the address."""

from __future__ import annotations

import functools
from contextvars import ContextVar
from typing import Any
from urllib.parse import unquote

import grpc

from lingon.client.address import block_of
from lingon.pem import CertificateId, certificate_ids
from lingon.serving.auth.api_keys import ApiKey
from lingon.status import CLIENT_ADDRESS

Context = grpc.aio.ServicerContext[Any, Any]

OWN_GATEWAY = "in-process"  # peer of the calls that the server's own gateway makes for its clients
PORTS = ("address", "http")  # starts of the identities of callers by their address: of the gRPC port, of HTTP
KEY = "key/"  # start of the identity of a caller with an API key

presented_key: ContextVar[ApiKey | None] = ContextVar("presented_key", default=None)
"""The key of the file that the call of this task sent, also if the call is refused; None for no key or an unknown one.

gRPC passes no arguments of an interceptor to a method.
"""

known_caller: ContextVar[str | None] = ContextVar("known_caller", default=None)
"""The caller of the call that this task serves, once it was found: certificates take long to read."""


def caller_of(context: Context) -> str:
    """Return the identity of the caller of the call that this task serves; see `find_caller`."""
    caller = known_caller.get()
    if caller is None:
        known_caller.set(caller := find_caller(context))
    return caller


def find_caller(context: Context) -> str:
    """The identity of the caller: the key's name, else the client certificate's, else the address as `block_of` has it.

    A prefix keeps the kinds apart, so that one cannot imitate another. It is for fair queuing, logs and traces, not for
    labels of metrics. An address is a caller of its own on each port: behind a proxy one address has many clients, and
    those of HTTP that do not say how long they wait would fill the queue for those of gRPC.
    """
    key = presented_key.get()
    if key is not None:
        return KEY + key.name
    for name in certificate_names(context):
        return f"certificate/{name}"
    return _block_of_peer(_peer_of(context), PORTS[is_of_own_gateway(context)])


def is_of_own_gateway(context: Context) -> bool:
    """Whether the server's own gateway makes a call, for a client of HTTP."""
    return bool(context.peer() == OWN_GATEWAY)


def on_other_port(caller: str) -> str:
    """Return the identity that the address of a caller has on the other port; empty for a caller with a name."""
    port, _, address = caller.partition("/")
    return f"{PORTS[1 - PORTS.index(port)]}/{address}" if port in PORTS else ""


def certificate_names(context: Context) -> list[str]:
    """The names of the client certificate: its common name, then its alternative names. Empty without one."""
    fields: Any = context.auth_context()
    names = [name for field in ("x509_common_name", "x509_subject_alternative_name") for name in fields.get(field, ())]
    return [name.decode("utf-8", "replace") for name in names if name]


def certificate_ids_of(context: Context) -> frozenset[CertificateId]:
    """The issuers and serial numbers of the client certificate and of those that it sent with it."""
    fields: Any = context.auth_context()
    return _ids(b"".join(part for name in ("x509_pem_cert", "x509_pem_cert_chain") for part in fields.get(name, ())))


@functools.lru_cache(maxsize=256)
def _ids(pem: bytes) -> frozenset[CertificateId]:
    return frozenset(certificate_ids(pem))


def address_of(context: Context) -> str:
    """The address of a caller without the port, for logs."""
    return f"address/{_address_of(_peer_of(context))}"


def _peer_of(context: Context) -> str:
    """The peer of a call; of one by the server's own gateway, in this process, the client of the gateway.

    No call by a port has the peer of those.
    """
    peer: str = context.peer()
    if peer != OWN_GATEWAY:
        return peer
    sent = (value for name, value in context.invocation_metadata() or () if name == CLIENT_ADDRESS)
    address = str(next(sent, ""))
    return f"ipv6:%5B{address}%5D:0" if ":" in address else f"ipv4:{address}:0"


@functools.lru_cache(maxsize=1024)
def _block_of_peer(peer: str, port: str) -> str:
    return f"{port}/{block_of(_address_of(peer))}"


@functools.lru_cache(maxsize=1024)
def _address_of(peer: str) -> str:
    """The address of a peer: ipv4:127.0.0.1:5000, ipv6:%5B::1%5D:5000 or unix:path."""
    kind, _, address = peer.partition(":")
    return unquote(address.rpartition(":")[0]).strip("[]") if kind.startswith("ip") else address
