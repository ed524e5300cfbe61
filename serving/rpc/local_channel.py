"""A channel to the gRPC services of this process without a connection. A call is a task of the event loop.

The calls pass arrival, interceptors, limits, deadlines and metrics like the calls of a port. They do not pass gRPC's
core with its threads and its wake-ups. Messages of TranslationService are not serialised: service and caller get each
other's message objects. Neither changes a message after it was sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import grpc
from grpc.aio import Metadata

from lingon.errors import RequestError
from lingon.serving.auth.callers import OWN_GATEWAY
from lingon.serving.rpc.calls import SERVICE
from lingon.serving.rpc.grpc_server import Services

WRITTEN = 16  # replies of a stream that wait to be read; the method then waits

Trailers = tuple[tuple[str, str | bytes], ...]
Serialise = Callable[[Any], bytes]
Parse = Callable[[bytes], Any]
Convert = Callable[[Any], Any]


class _Details(NamedTuple):
    """See grpc.HandlerCallDetails."""

    method: str
    invocation_metadata: Trailers


class _End(NamedTuple):
    """The end of a call; reply: set for a successful unary call."""

    code: grpc.StatusCode
    message: str = ""
    trailers: Trailers = ()
    reply: Any = None

    def error(self) -> grpc.aio.AioRpcError:
        """Return the error that a client of a connection would get."""
        return grpc.aio.AioRpcError(self.code, Metadata(), Metadata(*self.trailers), self.message)


_OK, _CANCELLED = _End(grpc.StatusCode.OK), _End(grpc.StatusCode.CANCELLED, "the caller cancelled the call")
_LATE = _End(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
_FAILED = _End(grpc.StatusCode.INTERNAL, "internal error")


class _Caller:
    """A call before its request: the part of grpc.aio.ServicerContext that is needed on its arrival."""

    def __init__(self, timeout: float | None, metadata: Trailers) -> None:
        self._loop, self._metadata = asyncio.get_running_loop(), metadata
        self._deadline = None if timeout is None else self._loop.time() + timeout

    def invocation_metadata(self) -> Trailers:
        return self._metadata

    def time_remaining(self) -> float | None:
        return None if self._deadline is None else max(self._deadline - self._loop.time(), 0.0)

    def peer(self) -> str:
        return OWN_GATEWAY

    def auth_context(self) -> dict[str, Any]:
        return {}


class _Call(_Caller):
    """One call: the part of grpc.aio.ServicerContext that this server uses, and the end of the call.

    ended: an _End; replies: of a stream, then None
    error: what the iterator of the requests raised, which ends the call
    """

    error: Exception | None = None

    def __init__(self, request: Any, timeout: float | None, metadata: Trailers) -> None:
        super().__init__(timeout, metadata)
        self.ended: asyncio.Future[_End] = self._loop.create_future()
        self.replies: asyncio.Queue[Any] | None = None
        self.serialise: Serialise | None = None
        self._request: Any = request
        self._trailers: Trailers = ()
        self._code = grpc.StatusCode.OK
        self._room = asyncio.Semaphore(WRITTEN)
        self._task: asyncio.Task[None] | None = None
        self._timer = None if self._deadline is None else self._loop.call_at(self._deadline, self.stop, _LATE)

    def run(self, work: Any) -> asyncio.Task[None]:
        self._task = self._loop.create_task(work)
        return self._task

    def finish(self, end: _End) -> None:
        """End the call for its client, unless it has already ended."""
        if self.ended.done():
            return
        if self._timer is not None:
            self._timer.cancel()
        self.ended.set_result(end)
        if self.replies is not None:
            self.replies.put_nowait(None)

    def stop(self, end: _End) -> None:
        """End the call early, and cancel its method."""
        self.finish(end)
        if self._task is not None:
            self._task.cancel()

    async def next_reply(self) -> Any:
        """Return the next reply of a stream, or None after the last one."""
        assert self.replies is not None
        reply = await self.replies.get()
        self._room.release()
        return reply

    async def read(self) -> Any:
        """Return the request, and after it grpc.aio.EOF."""
        if self.ended.done():  # the call was cancelled while it waited to be read
            raise asyncio.CancelledError
        request, self._request = self._request, None
        return grpc.aio.EOF if request is None else request

    async def write(self, reply: Any) -> None:
        assert self.replies is not None
        await self._room.acquire()
        self.replies.put_nowait(self.written(reply))

    async def send_initial_metadata(self, metadata: Trailers) -> None:
        """Raise CancelledError if the call has ended. Its client gets no metadata."""
        if self.ended.done():
            raise asyncio.CancelledError

    def written(self, reply: Any) -> Any:
        """Return a reply in the form for its reader."""
        return reply if self.serialise is None else self.serialise(reply)

    async def abort(self, code: grpc.StatusCode, message: str = "", trailers: Trailers = ()) -> None:
        """End the call with an error. Always raises."""
        self._code = code
        self.finish(_End(code, message, tuple(trailers) or self._trailers))
        raise grpc.aio.AbortError("the method ended the call")

    def set_trailing_metadata(self, trailers: Trailers) -> None:
        self._trailers = trailers

    def code(self) -> grpc.StatusCode:
        return self._code


class _SendingCall(_Call):
    """A call with a stream of requests, an iterator or an asynchronous one."""

    def __init__(
        self,
        requests: Iterable[Any] | AsyncIterable[Any],
        serialise: Convert,
        timeout: float | None,
        metadata: Trailers,
    ) -> None:
        super().__init__(None, timeout, metadata)
        self._requests = _sent(requests, serialise)

    async def read(self) -> Any:
        """Return the next request, and after the last one grpc.aio.EOF."""
        if self.ended.done():
            raise asyncio.CancelledError
        try:
            return await anext(self._requests, grpc.aio.EOF)
        except Exception as error:
            self.error = error
            self.stop(_CANCELLED)
            raise asyncio.CancelledError from None


async def _sent(requests: Iterable[Any] | AsyncIterable[Any], serialise: Convert) -> AsyncIterator[Any]:
    """Yield requests in the form for the method."""
    if isinstance(requests, AsyncIterable):
        async for request in requests:
            yield serialise(request)
    else:
        for request in requests:
            yield serialise(request)


class LocalChannel:
    """The methods of grpc.aio.Channel that stubs call. Belongs to the event loop."""

    def __init__(self, services: Services, received: Callable[[], None]) -> None:
        """received: called for each call, because gRPC itself does not count it."""
        self._services, self._received = services, received
        self._open: set[_Call] = set()

    def unary_unary(
        self, path: str, request_serializer: Serialise, response_deserializer: Parse, **_: Any
    ) -> Callable[..., Awaitable[Any]]:
        """Return the function that calls a method with one reply."""
        return partial(self._call, path, *_conversions(path, request_serializer, response_deserializer))

    def unary_stream(
        self, path: str, request_serializer: Serialise, response_deserializer: Parse, **_: Any
    ) -> Callable[..., LocalStream]:
        """Return the function that calls a method with a stream of replies."""
        serialise, parse = _conversions(path, request_serializer, response_deserializer)

        def begin(request: Any, *, timeout: float | None = None, metadata: Trailers = ()) -> LocalStream:
            return self._stream(path, _Call(serialise(request), timeout, metadata), parse)

        return begin

    def stream_stream(
        self, path: str, request_serializer: Serialise, response_deserializer: Parse, **_: Any
    ) -> Callable[..., LocalStream]:
        """Return the function that calls a method with a stream of requests and one of replies.

        A request is taken from the iterator when the method reads it, not before.
        """
        serialise, parse = _conversions(path, request_serializer, response_deserializer)

        def begin(
            requests: Iterable[Any] | AsyncIterable[Any], *, timeout: float | None = None, metadata: Trailers = ()
        ) -> LocalStream:
            return self._stream(path, _SendingCall(requests, serialise, timeout, metadata), parse)

        return begin

    def stream_unary(
        self, path: str, request_serializer: Serialise, response_deserializer: Parse, **_: Any
    ) -> Callable[..., Awaitable[Any]]:
        """Return the function that calls a method with a stream of requests."""
        return partial(self._call_all, path, *_conversions(path, request_serializer, response_deserializer))

    def refusal(self, path: str, *, timeout: float | None, metadata: Trailers) -> RequestError | None:
        """Return the error of a call that would be refused now, whatever its request is, and count it as received.

        Returns None if it might be served. The call may then be made.
        """
        error = self._services.refusal(path, _Caller(timeout, metadata))  # type: ignore[arg-type]
        if error is not None:
            self._received()
        return error

    async def close(self) -> None:
        for call in tuple(self._open):
            call.stop(_CANCELLED)

    async def _call(
        self,
        path: str,
        serialise: Convert,
        parse: Convert,
        request: Any,
        *,
        timeout: float | None = None,  # noqa: ASYNC109, as grpc.aio has it
        metadata: Trailers = (),
    ) -> Any:
        return await self._reply(path, _Call(serialise(request), timeout, metadata), parse)

    async def _call_all(
        self,
        path: str,
        serialise: Convert,
        parse: Convert,
        requests: Iterable[Any] | AsyncIterable[Any],
        *,
        timeout: float | None = None,  # noqa: ASYNC109, as grpc.aio has it
        metadata: Trailers = (),
    ) -> Any:
        call = _SendingCall(requests, serialise, timeout, metadata)
        try:
            return await self._reply(path, call, parse)
        except grpc.aio.AioRpcError:
            if call.error is None:
                raise
        raise call.error

    def _stream(self, path: str, call: _Call, parse: Convert) -> LocalStream:
        return LocalStream(call, self.begin(path, call), parse)

    async def _reply(self, path: str, call: _Call, parse: Convert) -> Any:
        """Make a call and return its reply."""
        try:
            await self.begin(path, call)
            end = await call.ended
        except asyncio.CancelledError:
            call.stop(_CANCELLED)
            raise
        if end.code is not grpc.StatusCode.OK:
            raise end.error()
        return parse(end.reply)

    async def begin(self, path: str, call: _Call) -> None:
        """Process the arrival of a call as on a port: it is started, refused, or waits to be read."""
        self._received()
        self._open.add(call)
        call.ended.add_done_callback(lambda _: self._open.discard(call))
        ending = self._services.arrive(path, call, lambda: call.run(self._serve(path, call)))  # type: ignore[arg-type]
        if ending is not None:
            with suppress(grpc.aio.AbortError):
                await ending

    async def _serve(self, path: str, call: _Call) -> None:
        """Run the method of a call to its end. The client gets every end."""
        try:
            handler: Any = await self._handler(path, call, 0)
            call.serialise = None if path.startswith(SERVICE) else handler.response_serializer
            if handler.response_streaming:
                await handler.stream_stream(None, call)
                call.finish(_OK)
            else:
                reply = await handler.stream_unary(None, call)
                call.finish(_End(grpc.StatusCode.OK, reply=call.written(reply)))
        except grpc.aio.AbortError:
            call.finish(_FAILED)  # for a method that ended without a status; no effect on an ended call
        except asyncio.CancelledError:
            call.finish(_CANCELLED)
            raise
        except Exception:  # not reached, but the client must not wait for its deadline
            call.finish(_FAILED)
            raise

    async def _handler(self, path: str, call: _Call, index: int) -> Any:
        """Return the handler of a call from the interceptors with this index or a higher one."""
        interceptors = self._services.interceptors
        if index == len(interceptors):
            return self._services.handlers[path]

        async def following(_: Any) -> Any:
            return await self._handler(path, call, index + 1)

        details: Any = _Details(path, call.invocation_metadata())
        return await interceptors[index].intercept_service(following, details)


def _conversions(path: str, serialise: Serialise, parse: Parse) -> tuple[Convert, Convert]:
    """Return the conversions of request and replies of a method. They do nothing if both sides have its types."""
    return (_as_is, _as_is) if path.startswith(SERVICE) else (serialise, parse)


def _as_is(message: Any) -> Any:
    return message


class LocalStream(AsyncIterator[Any]):
    """The replies of a call, as an async iterator that raises the error of the call at its end."""

    def __init__(self, call: _Call, beginning: Awaitable[None], parse: Convert) -> None:
        """beginning: processes the arrival of the call; awaited when the first reply is asked for."""
        self._call, self._beginning, self._parse = call, beginning, parse
        self._call.replies = asyncio.Queue()
        self._begun = False

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        if not self._begun:
            self._begun = True
            await self._beginning
        reply = await self._call.next_reply()
        if reply is not None:
            return self._parse(reply)
        end = await self._call.ended
        if end.code is not grpc.StatusCode.OK:
            raise self._call.error or end.error()
        raise StopAsyncIteration

    def cancel(self) -> None:
        """End the call, if it has not ended."""
        self._call.stop(_CANCELLED)
