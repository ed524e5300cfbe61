"""Checks the API key and the client certificate of every call except health checks."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeAlias

import grpc
from grpc_health.v1 import health

from lingon.errors import AuthenticationUnavailable, Forbidden, RequestError, Unauthenticated
from lingon.serving.auth.api_keys import ApiKeyFile
from lingon.serving.auth.callers import Context, certificate_ids_of, certificate_names, presented_key
from lingon.serving.auth.charges import NO_DEFAULTS, Account, DefaultsOf, account
from lingon.serving.auth.tls import TlsFiles

AUTHORIZATION = "authorization"
SHOWN = 128  # characters of a name that an error message shows
_NO_KEY_NEEDED = f"/{health.SERVICE_NAME}/"  # start of the methods that are open to all

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Metadata = Iterable[tuple[str, str | bytes]]


class ApiKeyInterceptor(grpc.aio.ServerInterceptor):
    """Checks the key before anything of a call is read; this includes calls of unknown methods.

    The error is raised in the handler that it returns, so that another interceptor turns it into a status.
    """

    def __init__(
        self, key_file: ApiKeyFile, *, admin: bool = False, defaults_of: DefaultsOf = lambda request: [NO_DEFAULTS]
    ) -> None:
        """admin: accept only keys with access to the admin port; defaults_of: for the charges of quotas."""
        self._key_file, self._admin, self._defaults_of = key_file, admin, defaults_of

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """The handler of a call, or one that raises the error."""
        if handler_call_details.method.startswith(_NO_KEY_NEEDED):
            return await continuation(handler_call_details)
        try:
            self.check(handler_call_details.invocation_metadata or ())
        except RequestError as error:
            return grpc.stream_stream_rpc_method_handler(_raising(error))
        return await continuation(handler_call_details)

    def check(self, metadata: Metadata) -> None:
        """Check the key of the call that this task serves; raises Unauthenticated or Forbidden."""
        key = self._key_file.identify(_key_in(metadata))
        presented_key.set(key)  # before the key is refused, so that the log names it
        quota = self._key_file.accept(key, admin=self._admin)
        account.set(Account(key.name, quota, self._key_file.usage, self._defaults_of))


class CertificateCheck:
    """Checks the client certificate of a call, whose signature gRPC has checked, and that its key belongs to it.

    An interceptor cannot: gRPC does not tell it who is connected.
    """

    def __init__(self, tls: TlsFiles | None, names: Sequence[str] | None = None) -> None:
        """tls: its authorities and revocations; names: admitted certificates, see `tls_client_names`; None for all."""
        self._tls, self._names = tls, names

    def check(self, method: str, context: Context) -> None:
        """Check the certificate of a call; raises Unauthenticated or Forbidden."""
        if method.startswith(_NO_KEY_NEEDED):
            return
        if self._tls is not None:
            _check_revocation(self._tls, context)
        key = presented_key.get()
        bound = self._names is not None or (key is not None and key.certificate is not None)
        names = certificate_names(context) if bound else []
        if self._names is not None and not any(admits(pattern, name) for pattern in self._names for name in names):
            raise Forbidden(f"the server does not admit the client certificate {_shown(names)}")
        if key is not None and key.certificate is not None and key.certificate not in names:
            raise Unauthenticated(f"the API key is not valid with the client certificate {_shown(names)}")
        accepted = account.get()
        if accepted is not None and accepted.usage is not None:
            accepted.usage.accepted(accepted.key, time.time())


def _check_revocation(tls: TlsFiles, context: Context) -> None:
    """Raise Unauthenticated if the client's certificate, or one that signed it, is revoked or cannot be checked."""
    for files, what in ((tls.authorities, "client authorities"), (tls.revocations, "revoked certificates")):
        if files is not None and files.expired:
            raise AuthenticationUnavailable(
                f"the server's file of {what} is unusable; no certificate is valid meanwhile"
            )
    if tls.revocations is not None and not certificate_ids_of(context).isdisjoint(tls.revocations.value.revoked):
        raise Unauthenticated("the client certificate is revoked")


def admits(pattern: str, name: str) -> bool:
    """Whether a pattern of `tls_client_names` admits a name: both are equal, or *. stands for one label."""
    if not pattern.startswith("*."):
        return name == pattern
    label, dot, rest = name.partition(".")
    return bool(label) and dot + rest == pattern[1:]


def _shown(names: Sequence[str]) -> str:
    """The names of a certificate for an error message."""
    return ", ".join(repr(name[:SHOWN]) for name in names[:3]) or "'' (there is none)"


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
