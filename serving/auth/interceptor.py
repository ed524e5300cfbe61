"""Checks the API key of every call except health checks, identifies callers, and charges requests to quotas."""

from __future__ import annotations

import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias
from urllib.parse import unquote

import grpc
from google.rpc import code_pb2
from grpc_health.v1 import health

from lingon.errors import Forbidden, NotBegun, RequestError, Unauthenticated
from lingon.serving.auth.api_keys import ApiKey, ApiKeyFile
from lingon.serving.auth.quota import Quota
from lingon.serving.settings import MAX_TEXTS
from lingon.translation.v1 import translation_pb2 as pb

AUTHORIZATION = "authorization"
_NO_KEY_NEEDED = f"/{health.SERVICE_NAME}/"  # start of the methods that are open to all
_CHARGED = (pb.TranslateRequest, pb.TranslateStreamRequest, pb.ScoreRequest)
_NOT_SERVED = (code_pb2.UNAVAILABLE, code_pb2.RESOURCE_EXHAUSTED)

Context = grpc.aio.ServicerContext[Any, Any]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Metadata = Iterable[tuple[str, str | bytes]]

_presented_key: ContextVar[tuple[ApiKey, Quota] | None] = ContextVar("presented_key", default=None)
"""The key of the call that this task serves, and its quota. gRPC passes no arguments of an interceptor to a method."""


class ApiKeyInterceptor(grpc.aio.ServerInterceptor):
    """Checks the key before anything of a call is read; this includes calls of unknown methods.

    The error is raised in the handler that it returns, so that another interceptor turns it into a status.
    """

    def __init__(self, key_file: ApiKeyFile, *, admin: bool = False) -> None:
        """admin: accept only keys with access to the admin port."""
        self._key_file, self._admin = key_file, admin

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """The handler of a call, or one that raises the error."""
        if handler_call_details.method.startswith(_NO_KEY_NEEDED):
            return await continuation(handler_call_details)
        try:
            presented = self.check(handler_call_details.invocation_metadata or ())
        except RequestError as error:
            return grpc.stream_stream_rpc_method_handler(_raising(error))
        _presented_key.set(presented)
        return await continuation(handler_call_details)

    def check(self, metadata: Metadata) -> tuple[ApiKey, Quota]:
        """The key of a call and its quota; raises Unauthenticated or Forbidden."""
        presented = self._key_file.find(_key_in(metadata))
        if self._admin and not presented[0].admin:
            raise Forbidden("the API key has no access to the admin port")
        return presented


def caller_of(context: Context) -> str:
    """The identity of the caller: the key's name, else the client certificate's, else the address without the port.

    A prefix keeps the three kinds apart, so that one cannot imitate another. It is for fair queuing, not for labels of
    metrics.
    """
    presented = _presented_key.get()
    if presented is not None:
        return f"key/{presented[0].name}"
    certificate: Any = context.auth_context()
    for field in ("x509_common_name", "x509_subject_alternative_name"):
        names = [name for name in certificate.get(field, ()) if name]
        if names:
            return f"certificate/{names[0].decode('utf-8', 'replace')}"
    return _address_of(context.peer())


@functools.lru_cache(maxsize=1024)
def _address_of(peer: str) -> str:
    """The identity of a peer: ipv4:127.0.0.1:5000, ipv6:%5B::1%5D:5000 or unix:path."""
    kind, _, address = peer.partition(":")
    return f"address/{unquote(address.rpartition(':')[0]).strip('[]') if kind.startswith('ip') else address}"


@contextmanager
def charged(request: Any) -> Iterator[None]:
    """Charge a request to the quota of the caller's key before it is served; refund it if it is not served.

    ListModels is free, because clients call it on their own.
    """
    presented = _presented_key.get()
    if presented is None or not isinstance(request, _CHARGED):
        yield
        return
    quota, served = presented[1], True
    charges = quota.take(_characters(request), time.monotonic_ns())
    try:
        yield
    except RequestError as error:
        served = error.code not in _NOT_SERVED and not isinstance(error, NotBegun)
        raise
    finally:
        quota.settle(charges, served=served)


def _characters(request: Any) -> int:
    """Characters (code points) of all texts of a request.

    For a request with more than MAX_TEXTS texts, which no server accepts, it is the size in bytes: a message of 4 MB
    can hold two million texts, and counting them one by one would block the event loop.
    """
    scores = isinstance(request, pb.ScoreRequest)
    if len(request.pairs if scores else request.texts) > MAX_TEXTS:
        return int(request.ByteSize())
    if scores:
        return sum(len(pair.source) + len(pair.target) for pair in request.pairs)
    return sum(map(len, request.texts))


def _key_in(metadata: Metadata) -> str:
    """The key in the metadata of a call; raises Unauthenticated."""
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
        yield b""  # makes the function an async generator, as a streaming method must be

    return fail
