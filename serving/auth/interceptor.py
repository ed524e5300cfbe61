"""Who may come in: where keys are on, every method of every service but health needs one; and who it was that came."""

from __future__ import annotations

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
_OPEN = f"/{health.SERVICE_NAME}/"
_CHARGED = (pb.TranslateRequest, pb.TranslateStreamRequest, pb.ScoreRequest)
_NOT_SERVED = (code_pb2.UNAVAILABLE, code_pb2.RESOURCE_EXHAUSTED)

Context = grpc.aio.ServicerContext[Any, Any]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Metadata = Iterable[tuple[str, str | bytes]]

_shown: ContextVar[tuple[ApiKey, Quota] | None] = ContextVar("shown", default=None)
"""The key of the call that is served in this task: gRPC lets no argument of ours through to a method."""


class ApiKeyInterceptor(grpc.aio.ServerInterceptor):
    """Asks for a key before anything of a call is read, unknown methods included.

    It raises inside the handler that it gives: whoever guards the port makes the error a status.
    """

    def __init__(self, keyring: ApiKeyFile, *, admin: bool = False) -> None:
        """admin: only keys of that kind open this port."""
        self._keyring, self._admin = keyring, admin

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """The handler of a call, or one that refuses."""
        if handler_call_details.method.startswith(_OPEN):
            return await continuation(handler_call_details)
        try:
            shown = self.check(handler_call_details.invocation_metadata or ())
        except RequestError as error:
            return grpc.stream_stream_rpc_method_handler(_refusing(error))
        _shown.set(shown)
        return await continuation(handler_call_details)

    def check(self, metadata: Metadata) -> tuple[ApiKey, Quota]:
        """The key that a call shows, and its quota; raises Unauthenticated or Forbidden."""
        shown = self._keyring.find(_presented(metadata))
        if self._admin and not shown[0].admin:
            raise Forbidden("the API key does not open the admin port")
        return shown


def caller_of(context: Context) -> str:
    """Who calls: by the name of the key, else by the client's certificate, else by its address without the port.

    Of each kind apart, so that nobody takes the name of another. For queues, not for the labels of metrics.
    """
    shown = _shown.get()
    if shown is not None:
        return f"key/{shown[0].name}"
    proven: Any = context.auth_context()
    for kind in ("x509_common_name", "x509_subject_alternative_name"):
        names = [name for name in proven.get(kind, ()) if name]
        if names:
            return f"certificate/{names[0].decode('utf-8', 'replace')}"
    kind, _, address = context.peer().partition(":")  # ipv4:127.0.0.1:5000, ipv6:%5B::1%5D:5000, unix:path
    return f"address/{unquote(address.rpartition(':')[0]).strip('[]') if kind.startswith('ip') else address}"


@contextmanager
def charged(request: Any) -> Iterator[None]:
    """Take a request out of the quota of its caller's key, before work is done; what is not served is given back.

    To ask which models there are costs nothing: clients do it by themselves.
    """
    shown = _shown.get()
    if shown is None or not isinstance(request, _CHARGED):
        yield
        return
    quota, served = shown[1], True
    charges = quota.take(_characters(request), time.monotonic_ns())
    try:
        yield
    except RequestError as error:
        served = error.code not in _NOT_SERVED and not isinstance(error, NotBegun)
        raise
    finally:
        quota.settle(charges, served=served)


def _characters(request: Any) -> int:
    """Code points of what is to be read by a model.

    Of a request with more texts than any server takes, which will be refused, it is the bytes: a message of 4 MB has
    room for two million texts, and nobody else is served while they are looked at one by one.
    """
    scores = isinstance(request, pb.ScoreRequest)
    if len(request.pairs if scores else request.texts) > MAX_TEXTS:
        return int(request.ByteSize())
    if scores:
        return sum(len(pair.source) + len(pair.target) for pair in request.pairs)
    return sum(map(len, request.texts))


def _presented(metadata: Metadata) -> str:
    """The key that a call shows."""
    values = [value for name, value in metadata if name == AUTHORIZATION]
    if len(values) != 1 or not isinstance(values[0], str):
        raise Unauthenticated("an API key is needed: send it as metadata, authorization: Bearer KEY")
    scheme, _, key = values[0].strip().partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        raise Unauthenticated("the authorization of a call must be: Bearer KEY")
    return key.strip()


def _refusing(error: RequestError) -> Any:
    async def refuse(requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        raise error
        yield b""  # which makes it a stream, of nothing

    return refuse
