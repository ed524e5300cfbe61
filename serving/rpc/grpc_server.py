"""A grpc.aio server that accepts calls as they arrive, and that survives calls of unknown methods.

grpc.aio waits for one call of each method at a time, and accepts the next one two iterations of the event loop later.
If calls arrive faster, they wait inside gRPC in the order of their arrival: without a bound on their time, without
fairness between callers, and before admission control, which refuses calls that cannot end in time. This server waits
for AHEAD calls of each method of TranslationService, so that a call waits for one iteration of the event loop.

grpc.aio decodes the path of a call to an unknown method in the loop that accepts calls, and a path that is not UTF-8
ends that loop (grpcio 1.85.1): the port closes, calls are cancelled, and the process keeps running without it. Any
client that reaches the port can do this with a few bytes. Calls to methods that are registered by name do not pass that
loop. This server keeps the other calls out of it: `refuse` ends them.

This uses internal names of grpc, which may change. tests/hostile/test_unknown_methods.py and
tests/serving/rpc/test_grpc_server.py then fail.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc
from grpc._cython import cygrpc  # type: ignore[attr-defined]

from lingon.errors import RequestError
from lingon.serving.rpc.calls import SERVICE, Context
from lingon.serving.threads import new_threads_never_preempt

AHEAD = 64
"""Calls of each method of TranslationService that can arrive in one iteration of the event loop without waiting inside
gRPC. Other services, such as health, have few calls, which are not refused unread and need no key. For them one call
at a time bounds the memory of gRPC.
"""

Refuse = Callable[[Context], Awaitable[None]]
"""Ends a call with an error, which raises."""

Arrive = Callable[[str, Context, Callable[[], asyncio.Task[Any]]], Awaitable[None] | None]
"""Takes the path of a call and a function that starts its handler. Returns None, or the coroutine that ends the call
with an error, which raises.
"""

Refusal = Callable[[str, Context], RequestError | None]
"""Takes the path and the context of a call before its request. Returns its error, which is counted, or None."""


@dataclass(frozen=True, slots=True)
class Services:
    """The handlers of a server's calls, for calls that do not come through its ports.

    handlers: by path; interceptors: the outermost first; arrive: decides about a call before it is read
    refusal: decides about a call before its request is sent
    """

    handlers: Mapping[str, Any]
    interceptors: tuple[grpc.aio.ServerInterceptor, ...]
    arrive: Arrive
    refusal: Refusal


class _Server(cygrpc.AioServer):  # type: ignore[misc]
    """The Cython server below grpc.aio.Server."""

    refuse: Refuse
    arrive: Arrive
    refusal: Refusal
    interceptors: tuple[grpc.aio.ServerInterceptor, ...]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._handlers: dict[str, Any] = {}
        self._running: set[asyncio.Task[Any]] = set()  # an event loop keeps only weak references to tasks

    def add_registered_method_handlers(self, handlers: Mapping[str, Any]) -> None:
        """Register methods by name, as generated code does."""
        super().add_registered_method_handlers(handlers)
        self._handlers.update(handlers)

    def _make_request_call_future(self, method: bytes | None) -> asyncio.Future[Any]:
        """Return a future for grpc.aio in place of the next call of a method. It only raises, when the server stops.

        method: its path; None for unknown methods
        """
        if method is None:
            return asyncio.get_running_loop().create_task(self._refuse_all())
        resolver = cygrpc._MethodResolver([], self._handlers)
        ahead = AHEAD if method.decode().startswith(SERVICE) else 1
        return asyncio.gather(*(self._handle_all(method, resolver) for _ in range(ahead)))

    async def _handle_all(self, method: bytes, resolver: Any) -> None:
        """Handle calls of a method until the server stops, which raises here."""
        name = method.decode()
        while True:
            ending = self._arrived(await self._request_registered_call(method), name, resolver)
            if ending is not None:  # awaited here, because a task would take longer than the refusal
                with suppress(Exception):
                    await ending
            del ending  # it would keep its call and gRPC's memory for it during the next wait

    def _arrived(self, call: Any, name: str, resolver: Any) -> Awaitable[None] | None:
        context = cygrpc._ServicerContext(call, None, None, asyncio.get_running_loop())
        return self.arrive(name, context, partial(self._handle, call, name, resolver))

    def _handle(self, call: Any, name: str, resolver: Any) -> asyncio.Task[Any]:
        loop = asyncio.get_running_loop()
        handling = cygrpc._handle_rpc(name, resolver, self.interceptors, call, loop, False)
        return self._run(cygrpc._schedule_rpc_coro(handling, call, loop, name))

    async def _refuse_all(self) -> None:
        """Refuse calls of unknown methods until the server stops, which raises here."""
        while True:
            self._run(_refuse(await self._request_call(), self.refuse))

    def _run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task


def _start(path: str, context: Context, start: Callable[[], asyncio.Task[Any]]) -> None:
    start()


def _no_refusal(path: str, context: Context) -> None:
    pass


async def _refuse(call: Any, refuse: Refuse) -> None:
    with suppress(Exception):
        await refuse(cygrpc._ServicerContext(call, None, None, asyncio.get_running_loop()))


def services_of(server: grpc.aio.Server) -> Services:
    """Return the handlers of a server of `make_server`, after its services are registered."""
    core: Any = server._server  # type: ignore[attr-defined]
    return Services(core._handlers, core.interceptors, core.arrive, core.refusal)


def make_server(
    interceptors: Sequence[grpc.aio.ServerInterceptor],
    options: Sequence[tuple[str, Any]],
    refuse: Refuse,
    arrive: Arrive | None = None,
    refusal: Refusal | None = None,
) -> grpc.aio.Server:
    """Return a server that registers all its services by name, as generated code does.

    refuse: ends a call of an unknown method
    arrive: decides about a call of a known method before anything of it is read; default: its handler starts
    refusal: decides about a call before its request is sent; default: it may arrive
    """
    original = cygrpc.AioServer
    cygrpc.AioServer = _Server
    try:
        with new_threads_never_preempt(), wake_ups_read_at_once(asyncio.get_running_loop()):
            server = grpc.aio.server(interceptors=interceptors, options=options)
        server._server.refuse = refuse  # type: ignore[attr-defined]
        server._server.arrive = arrive or _start  # type: ignore[attr-defined]
        server._server.refusal = refusal or _no_refusal  # type: ignore[attr-defined]
        server._server.interceptors = tuple(interceptors)  # type: ignore[attr-defined]
        return server
    finally:
        cygrpc.AioServer = original


MOST_BYTES = 65_536  # wake-up bytes in one read
_HANDLER = "_handle_events"  # method of grpc.aio that reads one byte and handles all events


@contextmanager
def wake_ups_read_at_once(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Make the reader that grpc.aio adds to the loop inside the block read all wake-up bytes at once.

    A thread of grpc.aio waits for events of its core and writes a byte into a socket for each. The event loop reads one
    byte per iteration, although it handles all present events. Most iterations then find no event. Without them a
    refusal takes a fifth less of a core.
    """
    add_reader = loop.add_reader

    def add(source: Any, callback: Callable[..., Any], *arguments: Any) -> None:
        method = callback.func if isinstance(callback, partial) else callback  # grpc.aio binds the loop to it
        if getattr(method, "__name__", "") == _HANDLER and isinstance(source, socket.socket):
            add_reader(source, handle_all, source, callback)
        else:
            add_reader(source, callback, *arguments)

    loop.add_reader = add  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        del loop.add_reader  # restores the method of the class


def handle_all(source: socket.socket, handle_events: Callable[[], None]) -> None:
    """Read all wake-up bytes but one, which grpc.aio reads, because its socket blocks if it is empty."""
    waiting = len(source.recv(MOST_BYTES, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    if waiting > 1:
        source.recv(waiting - 1)
    handle_events()
