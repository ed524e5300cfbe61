"""The server behind the gateway: the methods of its gRPC service, called for one caller, and the keys that it accepts.

A key is checked before a body is read. The result is cached, so that not each check is a call.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import logging
import re
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

import grpc
from google.protobuf import wrappers_pb2
from google.protobuf.message import Message
from google.rpc import code_pb2

from lingon.client.client import CHANNEL_OPTIONS, AsyncCallTalk
from lingon.client.connection import AUTHORIZATION, NO_PROXY, Proxy, block_of, proxy_of, proxy_options, unavailable
from lingon.client.protocol import MODELS_SECONDS
from lingon.client.steps import (
    DETECT_LANGUAGES,
    HEALTH,
    HEALTH_STATES,
    LIST_MODELS,
    TRANSLATE,
    Exchange,
    Method,
    Send,
    Sleep,
    drive_async,
)
from lingon.errors import RequestError, ServerError
from lingon.status import CLIENT_ADDRESS, DEFAULT_DEADLINE, REQUEST_ID, call_error, retry_milliseconds
from lingon.translation.v1 import stores_pb2_grpc as stores_grpc
from lingon.translation.v1 import translation_pb2 as pb
from lingon.translation.v1 import translation_pb2_grpc as pb_grpc

Result = TypeVar("Result")
logger = logging.getLogger(__name__)
KEY = re.compile(r"[\x21-\x7e]{1,4096}")
SERVING = HEALTH_STATES.index("SERVING")


class Refusal(Protocol):
    """See lingon.serving.rpc.local_channel.LocalChannel.refusal."""

    def __call__(self, path: str, *, timeout: float, metadata: tuple[tuple[str, str], ...]) -> RequestError | None: ...


def _unknown_refusal(path: str, *, timeout: float, metadata: tuple[tuple[str, str], ...]) -> None:
    pass


def digest_of(secret: str) -> str:
    """Return the SHA-256 of a key or another secret."""
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


BESIDE = ".models"  # suffix of the id of a call for models or for the check of a key, made for a request of a client


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a call, a client of the gateway.

    key: API key, or None; address: IP address of the client; request_id: id for logs
    deadline: the time until which the client waits, on the clock of `time.monotonic`; None if it is not known
    in_background: whether no client waits; a full queue then delays the calls
    """

    key: str | None
    address: str
    request_id: str
    deadline: float | None = None
    in_background: bool = False

    def background(self) -> Caller:
        """Return the caller for work that continues after the reply to its request."""
        return replace(self, deadline=None, in_background=True)

    def beside(self) -> Caller:
        """Return the caller for a call that its client did not request. Its own request id keeps logs apart."""
        return replace(self, request_id=f"{self.request_id}{BESIDE}")

    def seconds(self, most: float) -> float:
        """Return the time limit of a call, at most `most`. Raises ServerError if the client no longer waits."""
        if self.deadline is None:
            return most
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise ServerError("the client waits no longer for the reply", code_pb2.DEADLINE_EXCEEDED)
        return min(left, most)

    @property
    def owner(self) -> str:
        """The owner of files and queue slots: a digest of the key, or the address without a key."""
        if self.key is None:
            return block_of(self.address)
        return digest_of(self.key)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the metadata of a call. Raises ServerError for an invalid key."""
        found = [(CLIENT_ADDRESS, self.address), (REQUEST_ID, self.request_id)]
        if self.deadline is None:
            found.append((DEFAULT_DEADLINE, "1"))
        if self.key is not None:
            if not KEY.fullmatch(self.key):
                raise ServerError("the API key has characters that a key cannot have", code_pb2.UNAUTHENTICATED)
            found.append((AUTHORIZATION, f"Bearer {self.key}"))
        return tuple(found)


class Backend:
    """A client of a server. Errors of calls are raised as ServerError. Cancelling a task cancels its call."""

    def __init__(
        self,
        channel: Any,
        timeout: float = 60.0,
        *,
        target: str = "this process",
        tls: bool = False,
        proxy: Proxy | None = None,
    ) -> None:
        """channel: a grpc.aio.Channel, or an object with its methods; timeout: seconds of a call; others: for logs."""
        self._proxy = proxy
        self._channel, self._target, self.timeout, self._tls = channel, target, timeout, tls
        self._stub: Any = pb_grpc.TranslationServiceStub(self._channel)
        self._health: Any = self._channel.unary_unary(
            HEALTH.path,
            request_serializer=wrappers_pb2.StringValue.SerializeToString,
            response_deserializer=HEALTH.parse,
        )
        self._methods = {TRANSLATE.path: self._stub.Translate, DETECT_LANGUAGES.path: self._stub.DetectLanguages}
        self._models: tuple[float, pb.ListModelsResponse] | None = None
        # A server in another process decides only when the call arrives there.
        self._refusal: Refusal = getattr(channel, "refusal", _unknown_refusal)

    @classmethod
    def connect(
        cls,
        target: str,
        credentials: grpc.ChannelCredentials | None = None,
        timeout: float = 60.0,
        *,
        proxy: bool = False,
    ) -> Backend:
        """Return a backend that calls another process.

        target: its address in gRPC's syntax; proxy: whether calls without TLS may pass a proxy, which can read keys
        """
        options = (*CHANNEL_OPTIONS, *(proxy_options(target) if proxy or credentials is not None else (NO_PROXY,)))
        channel = (
            grpc.aio.insecure_channel(target, options)
            if credentials is None
            else grpc.aio.secure_channel(target, credentials, options)
        )
        found = None if NO_PROXY in options else proxy_of(target)
        return cls(channel, timeout, target=target, tls=credentials is not None, proxy=found)

    def check_load(self, method: Method[Any], caller: Caller) -> None:
        """Raise the ServerError of a call that a server in this process would refuse now, whatever its request is."""
        seconds = caller.seconds(self.timeout)
        error = self._refusal(method.path, timeout=seconds, metadata=caller.metadata())
        if error is not None:
            milliseconds = retry_milliseconds(error)
            raise ServerError(
                str(error),
                error.code,
                reason=error.reason,
                request_id=caller.request_id,
                retry_after=None if milliseconds is None else milliseconds / 1000,
            )

    async def translate(self, request: pb.TranslateRequest, caller: Caller) -> pb.TranslateResponse:
        return await self.call(self._stub.Translate, request, caller)  # type: ignore[no-any-return]

    async def drive(self, exchange: Exchange[Result], caller: Caller) -> Result:
        """Run an exchange of a client to its end and return its result. Its calls are ListModels and `_methods`."""

        async def perform(step: Send | Sleep) -> Any:
            if isinstance(step, Sleep):
                return await asyncio.sleep(step.seconds)
            if step.method is LIST_MODELS:
                return await self.models(caller, fresh=False)
            return await self.call(self._methods[step.method.path], step.request, caller, step.timeout)

        return await drive_async(exchange, perform)

    def ask(self, method: Method[Any], request: Message) -> Exchange[Any]:
        """Send a request once, as a step of an exchange for `drive`."""
        return (yield Send(method, request, self.timeout))

    async def score(self, request: pb.ScoreRequest, caller: Caller) -> pb.ScoreResponse:
        return await self.call(self._stub.Score, request, caller)  # type: ignore[no-any-return]

    async def detect(self, request: pb.DetectLanguagesRequest, caller: Caller) -> pb.DetectLanguagesResponse:
        return await self.call(self._stub.DetectLanguages, request, caller)  # type: ignore[no-any-return]

    async def models(self, caller: Caller, *, fresh: bool = True) -> pb.ListModelsResponse:
        """Return the served models; fresh: ask the server, which checks the key, even if they are cached."""
        if not fresh and self._models is not None and self._models[0] > time.monotonic():
            return self._models[1]
        asking = caller if fresh else caller.beside()
        reply: pb.ListModelsResponse = await self.call(self._stub.ListModels, pb.ListModelsRequest(), asking)
        self._models = time.monotonic() + MODELS_SECONDS, reply
        return reply

    def stream(self, request: pb.TranslateStreamRequest, caller: Caller) -> AsyncIterator[pb.TranslateStreamResponse]:
        """Yield the messages of a stream. Closing the iterator cancels the call."""
        return self.replies(self._stub.TranslateStream, request, caller)

    async def live(
        self, requests: AsyncIterator[pb.TranslateLiveRequest], caller: Caller
    ) -> AsyncIterator[pb.TranslateLiveResponse]:
        """Yield the answers to a speaker, without a time limit. Closing the iterator cancels the call.

        An error of the requests is raised in place of that of the call that it ends.
        """
        failed: list[Exception] = []

        async def sent() -> AsyncIterator[pb.TranslateLiveRequest]:
            try:
                async for request in requests:
                    yield request
            except Exception as error:
                failed.append(error)
                raise

        try:
            with self._server_errors(self.timeout):
                async with aclosing(self._live_replies(sent(), caller.metadata())) as replies:
                    async for message in replies:
                        yield message
        except (ServerError, asyncio.CancelledError):
            if failed:
                raise failed[0] from None
            raise

    async def _live_replies(
        self, requests: AsyncIterator[pb.TranslateLiveRequest], metadata: tuple[tuple[str, str], ...]
    ) -> AsyncGenerator[pb.TranslateLiveResponse, None]:
        """Yield the replies of a call of TranslateLive. Closing the generator cancels the call."""
        if not isinstance(self._channel, grpc.aio.Channel):
            call = self._stub.TranslateLive(requests, metadata=metadata)
            try:
                async for message in call:
                    yield message
            finally:
                call.cancel()
            return
        talk = AsyncCallTalk(self._stub.TranslateLive(metadata=metadata))  # keeps the status of the server

        async def send() -> None:
            try:
                async for request in requests:
                    await talk.write(request)
            except Exception:  # of the call, which a read raises too, or of the requests
                talk.cancel()

        sending = asyncio.create_task(send())
        try:
            while (message := await talk.read()) is not None:
                yield message
        finally:
            sending.cancel()
            talk.cancel()

    @functools.cached_property
    def glossary_stub(self) -> Any:
        """The methods of GlossaryService."""
        return stores_grpc.GlossaryServiceStub(self._channel)

    @functools.cached_property
    def memory_stub(self) -> Any:
        """The methods of MemoryService."""
        return stores_grpc.MemoryServiceStub(self._channel)

    async def replies(self, method: Any, request: Any, caller: Caller) -> AsyncIterator[Any]:
        """Yield the replies of a method of a stub. Closing the iterator cancels the call."""
        seconds = caller.seconds(self.timeout)
        call = method(request, timeout=seconds, metadata=caller.metadata())
        try:
            with self._server_errors(seconds):
                async for message in call:
                    yield message
        finally:
            call.cancel()

    async def healthy(self) -> None:
        """Raise ServerError unless the server serves. Needs no key."""
        with self._server_errors(self.timeout):
            state = await self._health(wrappers_pb2.StringValue(), timeout=self.timeout)
        if state.value != SERVING:
            raise ServerError("the server is starting or shutting down", code_pb2.UNAVAILABLE)

    async def close(self) -> None:
        await self._channel.close()

    async def call(self, method: Any, request: Any, caller: Caller, seconds: float | None = None) -> Any:
        """Return the reply of a method of a stub.

        request: one, or an async iterator of several; seconds: the time limit of the reply, default `timeout`
        """
        timeout = caller.seconds(self.timeout if seconds is None else seconds)
        with self._server_errors(timeout):
            return await method(request, timeout=timeout, metadata=caller.metadata())

    @contextmanager
    def _server_errors(self, seconds: float) -> Iterator[None]:
        """Raise the errors of a call as ServerError; seconds: its time limit."""
        try:
            yield
        except grpc.aio.AioRpcError as error:
            code = error.code().value[0]
            explain = partial(self._explain, seconds)
            raise call_error(code, error.details() or "", error.trailing_metadata() or (), explain) from None

    def _explain(self, seconds: float, code: int, details: str) -> str:
        """Return the message of an error that gRPC itself made. Only the log has the address of the server."""
        if code == code_pb2.DEADLINE_EXCEEDED:
            return f"the call was not done within {seconds:.4g} s"
        if code != code_pb2.UNAVAILABLE:
            return details
        logger.warning(unavailable(self._target, details, self._proxy, tls=self._tls))
        return "the server behind the gateway does not answer; try again"


KNOWN_SECONDS = 1.0  # seconds; validity of a check of a key
MOST_KNOWN = 4096  # keys
WITHOUT_KEY = Caller(None, "", "")


class KnownCallers:
    """A cache of the keys that the server accepts, valid for a second."""

    def __init__(self, backend: Backend, clock: Callable[[], float] = time.monotonic) -> None:
        self._backend, self._clock = backend, clock
        self._ends = OrderedDict[str | None, float]()  # by the caller's owner; None for callers without a key
        self._needs_key_until = 0.0

    async def check(self, caller: Caller) -> None:
        """Raise ServerError unless the server accepts the key of a caller, or needs none."""
        known, now = None if caller.key is None else caller.owner, self._clock()
        if self._ends.get(known, 0.0) > now:
            return
        await self._backend.models(caller.beside())
        self._ends[known] = now + KNOWN_SECONDS
        self._ends.move_to_end(known)
        if len(self._ends) > MOST_KNOWN:
            self._ends.popitem(last=False)

    async def as_known(self, caller: Caller) -> Caller:
        """Return a caller, without its key if the server needs none. Raises ServerError.

        Otherwise a caller could send another key with each request and get the share of many callers.
        """
        if caller.key is None or self._needs_key_until > self._clock():
            return caller
        if await self.accepts(WITHOUT_KEY):
            return replace(caller, key=None)
        self._needs_key_until = self._clock() + KNOWN_SECONDS
        return caller

    async def accepts(self, caller: Caller) -> bool:
        """Return whether the server accepts the key of a caller, or needs none. Raises ServerError for other errors."""
        try:
            await self.check(caller)
        except ServerError as error:
            if error.code != code_pb2.UNAUTHENTICATED:
                raise
            return False
        return True
