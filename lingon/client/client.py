"""The clients of a Lingon server: `Client`, `AsyncClient` for asyncio, and `ModelsClient` for its admin port.

They send what `lingon.client.protocol` decides. This file holds the channels and the waiting.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import grpc
from google.protobuf.message import Message
from google.rpc import code_pb2
from grpc import aio

from lingon.admin.v1 import admin_pb2 as pb
from lingon.client.calls import Blocking, BlockingCalls, Pending, closed_as_error
from lingon.client.connection import (
    AUTHORIZATION,
    NO_PROXY,
    START,
    Tls,
    authorization,
    check_encrypted,
    proxy_of,
    proxy_options,
    through_proxy,
    unavailable,
    with_port,
)
from lingon.client.live import AsyncTalk, Outgoing, Talk
from lingon.client.messages import write_request
from lingon.client.protocol import ClientProtocol
from lingon.client.steps import Method, Retry, Send, Sleep
from lingon.client.stores import AsyncStores, BlockingStores
from lingon.errors import LingonError, ServerError, SettingsError
from lingon.status import call_error

DEFAULT_PORT = 50051
DEFAULT_SERVER = f"127.0.0.1:{DEFAULT_PORT}"

Metadata = Sequence[tuple[str, str | bytes]]

CHANNEL_OPTIONS = (
    # A name with several addresses, such as a headless service, has several replicas: calls are spread over them.
    ("grpc.service_config", '{"loadBalancingConfig": [{"round_robin": {}}]}'),
    ("grpc.enable_retries", 0),  # `Retry` decides which calls are repeated
    ("grpc.initial_reconnect_backoff_ms", 100),  # with gRPC's default of 1 s all retries meet the same dead channel
    ("grpc.max_reconnect_backoff_ms", 2000),
    # 256 texts with tokens and alignment exceed the default of 4 MiB.
    ("grpc.max_receive_message_length", 2**26),
)


CLOSED = "the client was closed during this call"


class _ClientBase:
    """The settings, the channel and the protocol of a client of either kind."""

    _default_port = DEFAULT_PORT
    _start = START
    _where = f"translations are on the port --port of `lingon serve`, {DEFAULT_PORT} by default"

    def __init__(
        self,
        target: str = DEFAULT_SERVER,
        *,
        timeout: float = 30.0,
        retries: int | Retry | None = None,
        keepalive: float | None = 20.0,
        tls: bool | Tls | grpc.ChannelCredentials = False,
        api_key: str | None = None,
        insecure: bool = False,
        metadata: Metadata = (),
    ) -> None:
        """Store the settings. The connection is made by the first call.

        target: host:port of the server. Without a port 50051 is taken
        timeout: seconds for each request, its retries included. A long list of texts is several requests
        retries: how often a request that fails with UNAVAILABLE is sent again, or a `lingon.Retry` with all details.
            None means 5, which take 1.5 to 3 seconds if the server names no pause: long enough for most restarts
        keepalive: seconds without traffic during a call after which the client pings the server, which has half as
            many seconds to answer. Without pings calls go to a machine that vanished for about 15 minutes. A Lingon
            server allows a ping every 10 seconds. None sends no pings
        tls: True to trust the system's certificate authorities, a `lingon.Tls` for your own, or gRPC credentials
        api_key: sent with every call; without TLS to this machine only
        insecure: whether an API key may be sent without TLS to any machine. Any machine on the way can read it
        metadata: sent with every call; `authorization` is treated as an API key
        """
        self.target = target = with_port(target, self._default_port)
        if not isinstance(retries, Retry):
            retries = Retry() if retries is None else Retry(retries=retries)
        self._protocol = ClientProtocol(timeout=timeout, retry=retries)
        self._options: tuple[tuple[str, Any], ...] = (*CHANNEL_OPTIONS, *_keepalive(keepalive), *proxy_options(target))
        self._credentials: grpc.ChannelCredentials | None = None
        if tls is True or isinstance(tls, Tls):
            tls = Tls() if tls is True else tls
            self._credentials = tls.credentials()
            if tls.server_name is not None:
                self._options += (("grpc.ssl_target_name_override", tls.server_name),)
        elif tls:
            self._credentials = tls
        self._metadata = (*metadata, *([] if api_key is None else [authorization(api_key)]))
        has_key = any(name.lower() == AUTHORIZATION for name, _ in self._metadata)
        if has_key and self._credentials is None and not insecure:
            check_encrypted(target)
            self._options += (NO_PROXY,)  # a proxy could read the key
        self._channel: Any = None
        self._opening = threading.Lock()
        self._closed = threading.Event()

    def _open(self, make: Any, step: Send, *, later: bool = False) -> Any:
        """Start the call of a step.

        make: the module that makes channels, `grpc` or `grpc.aio`; later: return a future, not the reply
        """
        self._connect(make)
        method = step.method
        kind = self._channel.unary_stream if method.streams else self._channel.unary_unary
        if method.uploads:
            kind = self._channel.stream_unary
        call = kind(method.path, request_serializer=_serialise, response_deserializer=method.parse)
        start = call.future if later else call
        with self._open_channel():
            request = iter(step.request) if method.uploads else step.request  # type: ignore[arg-type]
            return start(request, timeout=step.timeout, metadata=self._metadata)

    def _connect(self, make: Any) -> None:
        """Make the channel, if there is none; make: see `_open`."""
        with self._opening:
            self._check_open()
            if self._channel is None:  # a channel of asyncio belongs to the event loop that makes it
                self._channel = (
                    make.insecure_channel(self.target, self._options)
                    if self._credentials is None
                    else make.secure_channel(self.target, self._credentials, self._options)
                )

    def _open_talk(self, make: Any, method: Method[Any], *requests: Any) -> Any:
        """Start a call without a deadline, with messages in both directions; requests: an iterator, or nothing."""
        self._connect(make)
        start = self._channel.stream_stream(
            method.path, request_serializer=_serialise, response_deserializer=method.parse
        )
        with self._open_channel():
            return start(*requests, metadata=self._metadata)

    @contextmanager
    def _open_channel(self) -> Iterator[None]:
        """Raise LingonError for a call on a channel that another thread has closed meanwhile."""
        try:
            yield
        except ValueError:
            self._check_open()
            raise

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise LingonError("this client is closed; make a new one")

    def _failure(self, error: Any) -> ServerError:
        """Return the ServerError of a grpc.RpcError, which is also the call that failed."""
        trailers = error.trailing_metadata() or ()
        return call_error(error.code().value[0], error.details() or "", trailers, self._explain)

    def _not_ready(self, seconds: float) -> ServerError:
        """Return the error of a talk to which the server has not sent its first message."""
        return ServerError(
            f"no answer from {self.target} in time: the server was not ready after {seconds:.3g} s",
            code_pb2.DEADLINE_EXCEEDED,
        )

    def _explain(self, code: int, details: str) -> str:
        """Return the message of an error that gRPC itself made; details: its own message."""
        if code == code_pb2.CANCELLED and self._closed.is_set():
            return CLOSED
        proxy = None if NO_PROXY in self._options else proxy_of(self.target)
        if code == code_pb2.UNAVAILABLE:
            return unavailable(self.target, details, proxy, tls=self._credentials is not None, start=self._start)
        if code == code_pb2.DEADLINE_EXCEEDED:
            passed = f"; {through_proxy(proxy)}" if proxy else ""
            return f"no answer from {self.target} in time: {details}{passed}"
        if code == code_pb2.UNIMPLEMENTED and details == "Method not found!":
            return f"{self.target} does not have this method; {self._where}"
        return details


def _keepalive(seconds: float | None) -> tuple[tuple[str, int], ...]:
    if seconds is None:
        return ()
    if not 0 < seconds < 1e6:
        raise SettingsError(f"keepalive must be above 0 seconds and below 1e6, or None, got {seconds}")
    milliseconds = max(int(seconds * 1000), 2)
    return (
        ("grpc.keepalive_time_ms", milliseconds),
        ("grpc.keepalive_timeout_ms", milliseconds // 2),  # for the server's machine to acknowledge data
        ("grpc.http2.ping_timeout_ms", milliseconds // 2),  # for the server to answer a ping; default: a minute
        ("grpc.http2.max_pings_without_data", 0),  # the default of 2 is too few for a call that answers at its end
    )


class SyncClientBase(_ClientBase, Blocking):
    """A client whose calls block until they are answered. Threads may share one. Subclasses add the calls."""

    def close(self) -> None:
        """Close the connection. Calls in progress raise a ServerError with status CANCELLED."""
        with self._opening:
            self._closed.set()
        if self._channel is not None:
            self._channel.close()

    def _perform(self, step: Send | Sleep) -> Any:
        if isinstance(step, Sleep):
            self._closed.wait(step.seconds)  # if the client is closed meanwhile, the next try raises
            return None
        if step.method.talks:
            return self._begin_talk(step)
        try:
            if not step.method.streams:
                return self._open(grpc, step)
            begun = self._open(grpc, step)
            return next(begun, None), begun
        except grpc.RpcError as error:
            raise self._failure(error) from None

    def _begin_talk(self, step: Send) -> tuple[Any, Talk]:
        """Send the first message of a talk, and return the first one of the server, and the talk."""
        assert isinstance(step.request, Message)
        outgoing, late = Outgoing(step.request), threading.Event()
        talk = _CallTalk(self._open_talk(grpc, step.method, outgoing), outgoing, self._failure)

        def give_up() -> None:
            late.set()
            talk.cancel()

        timer = threading.Timer(step.timeout, give_up)
        timer.start()
        try:
            return talk.read(), talk
        except ServerError:
            if late.is_set():
                raise self._not_ready(step.timeout) from None
            raise
        finally:
            timer.cancel()


class _CallTalk:
    """A talk by a call of gRPC, whose threads send what waits."""

    def __init__(self, call: Any, outgoing: Outgoing, failure: Callable[[Any], ServerError]) -> None:
        """outgoing: the requests of the call; failure: returns the ServerError of a grpc.RpcError."""
        self._outgoing, self._failure = outgoing, failure
        self._call: Any = call  # None after `cancel`
        self._end: ServerError | None = None  # of the call, after `cancel`
        if not call.add_callback(outgoing.end):
            outgoing.end()

    def write(self, message: Any) -> None:
        """See Talk."""
        if not self._outgoing.put(message) and (error := self._error()) is not None:
            raise error

    def read(self) -> Any:
        """See Talk."""
        if self._call is not None:
            try:
                return next(self._call, None)
            except grpc.RpcError:
                pass  # raised below, where it is no context of the error and so not kept: see `cancel`
        if (error := self._error()) is not None:
            raise error
        return None

    def cancel(self) -> None:
        """See Talk.

        Nothing here keeps the call. At the exit of Python its destructor would wait for ever for a lock that a thread
        of gRPC may hold, because threads of gRPC are daemons and stop there (grpcio 1.82 to 1.85).
        """
        if self._call is not None:
            self._call.cancel()
            self._end, self._call = self._error(), None

    def _error(self) -> ServerError | None:
        """Return the error that ended the call, or None if it ended well."""
        if self._call is None:
            return self._end
        return None if self._call.code() is grpc.StatusCode.OK else self._failure(self._call)


class Client(SyncClientBase, BlockingCalls, BlockingStores):
    """A client of a Lingon server. Threads may share one.

    Every call has a deadline and is repeated while the server is UNAVAILABLE. An error status raises ServerError.
    A text is split into sentences, which are translated one by one; split_sentences turns this off. A sentence that is
    longer than the model reads is translated in parts, and the result carries a warning with the code "split"; with
    long_text="refuse" it is an error instead. A text of more sentences than the server takes in a request is sent in
    parts too, and has one result.
    """

    def _begin(self, step: Send) -> Pending:
        return _PendingCall(self._open(grpc, step, later=True), self._failure)

    def _received(self, rest: Any) -> Iterator[Any]:
        try:
            yield from rest
        except grpc.RpcError as error:
            raise self._failure(error) from None

    def health(self, service: str = "") -> str:
        """Return SERVING, NOT_SERVING, UNKNOWN or SERVICE_UNKNOWN.

        service: a service name, empty for the whole server
        """
        return self._drive(self._protocol.health(service))


class _PendingCall:
    """A call on a thread of gRPC."""

    def __init__(self, call: Any, failure: Callable[[Any], ServerError]) -> None:
        """failure: returns the ServerError of a grpc.RpcError."""
        self._call, self._failure, self.cancel = call, failure, call.cancel

    def result(self) -> Any:
        """Wait for the reply. Raises ServerError."""
        try:
            return self._call.result()
        except grpc.FutureCancelledError:
            raise ServerError("the call was cancelled", code_pb2.CANCELLED) from None
        except grpc.RpcError as error:
            raise self._failure(error) from None


class AsyncClient(_ClientBase, AsyncStores):
    """`Client` for asyncio: the same calls, awaited, and `async for` over a stream's events.

    A client belongs to the event loop that first uses it.
    """

    _loop: asyncio.AbstractEventLoop | None = None

    async def health(self, service: str = "") -> str:
        """As `Client.health`."""
        return await self._drive(self._protocol.health(service))

    async def close(self) -> None:
        """Close the connection. Calls in progress raise a ServerError with status CANCELLED."""
        self._closed.set()
        # The channel of another event loop ended with that loop.
        if self._channel is not None and self._loop is asyncio.get_running_loop():
            await self._channel.close()

    async def _perform(self, step: Send | Sleep) -> Any:
        if isinstance(step, Sleep):
            return await asyncio.sleep(step.seconds)
        self._loop = self._loop or asyncio.get_running_loop()
        if self._loop is not asyncio.get_running_loop():
            raise LingonError("an AsyncClient belongs to the event loop that first used it; make one for this loop")
        if step.method.talks:
            return await self._begin_talk(step)
        begun = self._open(aio, step)
        with self._server_errors():
            if not step.method.streams:
                return await begun
            return await anext(aiter(begun), None), begun

    async def _begin_talk(self, step: Send) -> tuple[Any, AsyncTalk]:
        """See SyncClientBase."""
        talk = AsyncCallTalk(self._open_talk(aio, step.method), self._server_errors)
        try:
            async with asyncio.timeout(step.timeout):
                await talk.write(step.request)
                return await talk.read(), talk
        except TimeoutError:
            raise self._not_ready(step.timeout) from None
        except asyncio.CancelledError:
            talk.cancel()
            raise

    @contextmanager
    def _server_errors(self) -> Iterator[None]:
        try:
            with closed_as_error(self._closed, CLOSED):
                yield
        except grpc.RpcError as error:
            raise self._failure(error) from None


class AsyncCallTalk:
    """A talk by a call of grpc.aio.

    `write` of a call replaces the status of a server that has just ended it by one of its own, "Internal error from
    Core" (grpcio 1.85), which hides why. This class sends as `write` does, by internal names of grpc, and leaves the
    status alone. tests/lingon/test_live.py fails if the names change.
    """

    def __init__(self, call: Any, server_errors: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        """server_errors: raises the errors of a call as ServerError; by default they stay those of gRPC."""
        self._call, self._server_errors, self.cancel = call, server_errors, call.cancel

    async def write(self, message: Any) -> None:
        """See AsyncTalk."""
        with self._server_errors():
            await self._call._metadata_sent.wait()
            try:
                await self._call._cython_call.send_serialized_message(_serialise(message))
            except aio.InternalError:  # the call has ended, and a read raises its status
                await self._call.read()

    async def read(self) -> Any:
        """See AsyncTalk."""
        with self._server_errors():
            message = await self._call.read()
        return None if message is aio.EOF else message


def _serialise(request: Any) -> bytes:
    return bytes(request.SerializeToString())


DEFAULT_ADMIN_PORT = 50052
DEFAULT_ADMIN = f"127.0.0.1:{DEFAULT_ADMIN_PORT}"

_SERVICE = f"/{pb.DESCRIPTOR.services_by_name['ModelService'].full_name}"
LIST = Method(f"{_SERVICE}/ListModels", pb.ListModelsResponse.FromString)
LOAD = Method(f"{_SERVICE}/LoadModel", pb.LoadModelResponse.FromString)
SWAP = Method(f"{_SERVICE}/SwapModel", pb.SwapModelResponse.FromString)
UNLOAD = Method(f"{_SERVICE}/UnloadModel", pb.UnloadModelResponse.FromString)


class ModelsClient(SyncClientBase):
    """Lists, loads, swaps and unloads the models of a server.

    A call is sent once: a change that was refused or whose answer was lost is never repeated. A timeout ends the
    waiting. The server still completes the change.
    """

    _default_port = DEFAULT_ADMIN_PORT
    _start = "start the server with --admin-port"
    _where = "models are listed and changed on the admin port, --admin-port of `lingon serve`"

    def __init__(
        self,
        target: str = DEFAULT_ADMIN,
        *,
        timeout: float = 600.0,
        tls: bool | Tls = False,
        api_key: str | None = None,
        insecure: bool = False,
    ) -> None:
        """Store the settings.

        target: host:port of the admin port. Without a port 50052 is taken
        timeout: seconds for each call. The others are those of `Client`
        """
        super().__init__(target, timeout=timeout, retries=0, tls=tls, api_key=api_key, insecure=insecure)

    def models(self) -> list[pb.Model]:
        """Return the models of the server, ordered by name and version."""
        return list(self._drive(self._protocol.call(LIST, pb.ListModelsRequest())).models)

    def load(self, path: str) -> pb.Model:
        """Serve the bundle at this path of the server's machine in addition to those that are served."""
        return self._drive(self._protocol.call(LOAD, write_request(pb.LoadModelRequest, path=path))).model

    def swap(self, path: str) -> tuple[pb.Model, list[str]]:
        """Serve the bundle in place of all other versions of its name, and return it and the versions unloaded."""
        reply = self._drive(self._protocol.call(SWAP, write_request(pb.SwapModelRequest, path=path)))
        return reply.model, list(reply.unloaded)

    def unload(self, name: str, version: str) -> None:
        """Stop serving a version."""
        self._drive(self._protocol.call(UNLOAD, write_request(pb.UnloadModelRequest, name=name, version=version)))
