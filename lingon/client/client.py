"""The clients of a Lingon server: `Client`, and `AsyncClient` for asyncio. What they say is in
`lingon.client.protocol`.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

import grpc
import grpc.aio
from google.rpc import code_pb2

from lingon.client.messages import ScoreOptions, TranslateOptions
from lingon.client.protocol import Calls, Send, Sleep, StreamReader, Talk
from lingon.client.results import ModelInfo, ScoreResult, StreamEvent, TextResult
from lingon.client.retry import Retry
from lingon.client.tls import Tls, authorization
from lingon.errors import LingonError, ServerError, SettingsError
from lingon.status import call_error

DEFAULT_SERVER = "127.0.0.1:50051"

Texts = list[str] | tuple[str, ...]
Metadata = Sequence[tuple[str, str | bytes]]
Result = TypeVar("Result")

CHANNEL_OPTIONS = (
    # a name with many addresses, as a headless service has, is many replicas: each gets its part of the calls
    ("grpc.service_config", '{"loadBalancingConfig": [{"round_robin": {}}]}'),
    ("grpc.enable_retries", 0),  # `Retry` says what is tried again, and tests count it
    ("grpc.initial_reconnect_backoff_ms", 100),  # by default a second: all retries would find the same dead channel
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.max_receive_message_length", 2**26),  # 256 texts with tokens and alignment pass the default of 4 MiB
)


class _Connected:
    """What both clients are made of."""

    def __init__(
        self,
        target: str = DEFAULT_SERVER,
        *,
        timeout: float = 30.0,
        retries: int | Retry | None = None,
        keepalive: float | None = 20.0,
        tls: bool | Tls | grpc.ChannelCredentials = False,
        api_key: str | None = None,
        metadata: Metadata = (),
    ) -> None:
        """Connects when first used.

        target: host:port of the server
        timeout: seconds for each request, its retries included; a long list of texts is several requests
        retries: of a request that fails with UNAVAILABLE, or a `lingon.Retry` with all about them. None are 5, two to
            three seconds where the server names no pause: it may be started anew meanwhile
        keepalive: seconds of silence amid calls after which the server is asked whether it is there still, and half as
            many to answer; a machine that vanished would get its part of the calls for a quarter of an hour. A server
            of ours allows 10 and more; None for one that allows none
        tls: True for the system's roots of trust, a `lingon.Tls` for your own, or credentials as gRPC makes them
        api_key: shown with every call; without TLS whoever is on the way can read it
        metadata: sent with every call
        """
        self.target = target
        try:
            target.encode()
        except UnicodeEncodeError:
            raise SettingsError(f"server {target!r}: not UTF-8") from None
        if not isinstance(retries, Retry):
            retries = Retry() if retries is None else Retry(retries=retries)
        self._calls = Calls(timeout=timeout, retry=retries)
        self._options: tuple[tuple[str, Any], ...] = (*CHANNEL_OPTIONS, *_keepalive(keepalive))
        self._credentials: grpc.ChannelCredentials | None = None
        if tls is True or isinstance(tls, Tls):
            tls = Tls() if tls is True else tls
            self._credentials = tls.credentials()
            if tls.server_name is not None:
                self._options += (("grpc.ssl_target_name_override", tls.server_name),)
        elif tls:
            self._credentials = tls
        self._metadata = (*metadata, *([] if api_key is None else [authorization(api_key)]))
        self._channel: Any = None
        self._opening = threading.Lock()
        self._closed = threading.Event()

    def _open(self, make: Any, step: Send) -> Any:
        """The call of a step, begun; make: the module that makes channels, `grpc` or `grpc.aio`."""
        with self._opening:
            self._check_open()
            if self._channel is None:  # not before: a channel of asyncio belongs to the loop that it is made in
                self._channel = (
                    make.insecure_channel(self.target, self._options)
                    if self._credentials is None
                    else make.secure_channel(self.target, self._credentials, self._options)
                )
        method = step.method
        kind = self._channel.unary_stream if method.streams else self._channel.unary_unary
        start = kind(method.path, request_serializer=_serialise, response_deserializer=method.parse)
        try:
            return start(step.request, timeout=step.timeout, metadata=self._metadata)
        except ValueError:
            self._check_open()  # it may be closed between that and this
            raise

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise LingonError("this client is closed: make another")

    def _failure(self, error: Any) -> ServerError:
        """error: a grpc.RpcError of a call, which is that call too."""
        trailers = error.trailing_metadata() or ()
        return call_error(error.code().value[0], error.details() or "", trailers, self.target)


def _keepalive(seconds: float | None) -> tuple[tuple[str, int], ...]:
    if seconds is None:
        return ()
    if not 0 < seconds < 1e6:
        raise SettingsError(f"keepalive must be above 0 seconds and below 1e6, or None, got {seconds}")
    milliseconds = max(int(seconds * 1000), 2)
    return (
        ("grpc.keepalive_time_ms", milliseconds),
        ("grpc.keepalive_timeout_ms", milliseconds // 2),  # for what is sent to be acknowledged by its machine
        ("grpc.http2.ping_timeout_ms", milliseconds // 2),  # for the server itself to answer; else a minute
        ("grpc.http2.max_pings_without_data", 0),  # else only two, and a long answer is one message in the end
    )


def play(talk: Talk[Result], take: Callable[[Send | Sleep], Any]) -> Result:
    """The result of a talk; take: does what it yields."""
    try:
        step = next(talk)
        while True:
            try:
                reply = take(step)
            except ServerError as error:
                step = talk.throw(error)
            else:
                step = talk.send(reply)
    except StopIteration as end:
        result: Result = end.value
        return result


class Caller(_Connected):
    """Calls a server and waits for it; threads may share one. What can be called is said by those made of it."""

    def close(self) -> None:
        """End the connection, and the calls that are under way: to them it is CANCELLED."""
        with self._opening:
            self._closed.set()
        if self._channel is not None:
            self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _play(self, talk: Talk[Result]) -> Result:
        return play(talk, self._take)

    def _take(self, step: Send | Sleep) -> Any:
        if isinstance(step, Sleep):
            self._closed.wait(step.seconds)  # the next try tells
            return None
        try:
            if not step.method.streams:
                return self._open(grpc, step)
            begun = self._open(grpc, step)
            return next(begun, None), begun
        except grpc.RpcError as error:
            raise self._failure(error) from None


class Client(Caller):
    """Translates with a Lingon server; threads may share one.

    Every call has a deadline, and is tried again while the server is UNAVAILABLE. An error status is a ServerError.
    """

    @overload
    def translate(self, texts: str, **options: Unpack[TranslateOptions]) -> TextResult: ...

    @overload
    def translate(self, texts: Texts, **options: Unpack[TranslateOptions]) -> list[TextResult]: ...

    def translate(self, texts: str | Texts, **options: Unpack[TranslateOptions]) -> TextResult | list[TextResult]:
        """Translate one text, or several: then one bad text has its error in its result and fails no other.

        options: as `lingon.TranslateOptions` lists them
        """
        result: TextResult | list[TextResult] = self._play(self._calls.translate(texts, options))
        return result

    def translate_stream(self, texts: str | Texts, **options: Unpack[TranslateOptions]) -> Iterator[StreamEvent]:
        """The same, each result as soon as it is there; greedy decoding tells the text as it grows.

        Once events come, a stream that ends early is not tried again: the ServerError is raised here.
        """
        several, _ = self._calls.check(texts, options)  # here, not when the first event is asked for
        return self._events(several, options)

    def _events(self, texts: Texts, options: TranslateOptions) -> Iterator[StreamEvent]:
        reader = StreamReader()
        for part in self._play(self._calls.streams(texts, options)):
            first, rest = self._play(self._calls.begin(part, options))
            try:
                for message in itertools.chain((first,), rest):
                    yield from reader.read(part, message)
            except grpc.RpcError as error:
                raise self._failure(error) from None
            finally:
                rest.cancel()
            reader.end(part)

    def score(self, pairs: Sequence[tuple[str, str]], **options: Unpack[ScoreOptions]) -> list[ScoreResult]:
        """The log-probability of given translations: (source, target) pairs."""
        return self._play(self._calls.score(pairs, options))

    def list_models(self) -> list[ModelInfo]:
        """The models that the server has."""
        return self._play(self._calls.list_models())

    def health(self, service: str = "") -> str:
        """SERVING, NOT_SERVING, UNKNOWN or SERVICE_UNKNOWN; service: empty for the server as a whole."""
        return self._play(self._calls.health(service))


class AsyncClient(_Connected):
    """`Client` for asyncio: the same calls, awaited, and `async for` over a stream's events.

    It belongs to the event loop that first uses it.
    """

    _home: asyncio.AbstractEventLoop | None = None

    @overload
    async def translate(self, texts: str, **options: Unpack[TranslateOptions]) -> TextResult: ...

    @overload
    async def translate(self, texts: Texts, **options: Unpack[TranslateOptions]) -> list[TextResult]: ...

    async def translate(self, texts: str | Texts, **options: Unpack[TranslateOptions]) -> TextResult | list[TextResult]:
        """As `Client.translate`."""
        result: TextResult | list[TextResult] = await self._play(self._calls.translate(texts, options))
        return result

    def translate_stream(self, texts: str | Texts, **options: Unpack[TranslateOptions]) -> AsyncIterator[StreamEvent]:
        """As `Client.translate_stream`; not awaited: `async for event in client.translate_stream(...)`."""
        several, _ = self._calls.check(texts, options)
        return self._events(several, options)

    async def _events(self, texts: Texts, options: TranslateOptions) -> AsyncIterator[StreamEvent]:
        reader = StreamReader()
        for part in await self._play(self._calls.streams(texts, options)):
            first, rest = await self._play(self._calls.begin(part, options))
            try:
                for event in reader.read(part, first):
                    yield event
                with self._told():
                    async for message in rest:
                        for event in reader.read(part, message):
                            yield event
            finally:
                rest.cancel()
            reader.end(part)

    async def score(self, pairs: Sequence[tuple[str, str]], **options: Unpack[ScoreOptions]) -> list[ScoreResult]:
        """As `Client.score`."""
        return await self._play(self._calls.score(pairs, options))

    async def list_models(self) -> list[ModelInfo]:
        """As `Client.list_models`."""
        return await self._play(self._calls.list_models())

    async def health(self, service: str = "") -> str:
        """As `Client.health`."""
        return await self._play(self._calls.health(service))

    async def close(self) -> None:
        """End the connection, and the calls that are under way: to them it is CANCELLED."""
        self._closed.set()
        if self._channel is not None and self._home is asyncio.get_running_loop():  # else it ended with its loop
            await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _play(self, talk: Talk[Result]) -> Result:
        try:
            step = next(talk)
            while True:
                try:
                    reply = await self._take(step)
                except ServerError as error:
                    step = talk.throw(error)
                else:
                    step = talk.send(reply)
        except StopIteration as end:
            result: Result = end.value
            return result

    async def _take(self, step: Send | Sleep) -> Any:
        if isinstance(step, Sleep):
            return await asyncio.sleep(step.seconds)
        self._home = self._home or asyncio.get_running_loop()
        if self._home is not asyncio.get_running_loop():
            raise LingonError("an AsyncClient belongs to the event loop that first used it: make another for this one")
        begun = self._open(grpc.aio, step)
        with self._told():
            if not step.method.streams:
                return await begun
            return await anext(aiter(begun), None), begun

    @contextmanager
    def _told(self) -> Iterator[None]:
        """How a call ended, as an error of ours."""
        try:
            yield
        except grpc.RpcError as error:
            raise self._failure(error) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._closed.is_set() or (task is not None and task.cancelling()):
                raise  # it was the caller who was cancelled
            raise ServerError("the client was closed under this call", code_pb2.CANCELLED) from None


def _serialise(request: Any) -> bytes:
    return bytes(request.SerializeToString())
