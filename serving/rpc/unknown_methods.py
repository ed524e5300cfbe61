"""A grpc.aio server that calls to unknown methods cannot end.

grpc.aio decodes the path of a call to an unknown method in the loop that accepts calls, and a path that is not UTF-8
ends that loop (grpcio 1.85.1): the port closes, calls are cancelled, and the process lives on without it. Any client
that reaches the port can do this with a few bytes. Calls to methods that are registered by name take another path. This
server keeps the other calls out of that loop: `refuse` ends them.

This uses internal names of grpc, which may change; tests/hostile/test_unknown_methods.py fails when they do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import grpc
from grpc._cython import cygrpc  # type: ignore[attr-defined]

from lingon.serving.rpc.calls import Context

Refuse = Callable[[Context], Awaitable[None]]
"""Ends a call with an error, which raises."""


class _Server(cygrpc.AioServer):  # type: ignore[misc]
    """The Cython server below grpc.aio.Server."""

    refuse: Refuse

    def _make_request_call_future(self, method: bytes | None) -> asyncio.Future[Any]:
        """Return the next call of a method; None stands for unknown methods, which never return."""
        if method is not None:
            known: asyncio.Future[Any] = super()._make_request_call_future(method)
            return known
        return asyncio.get_running_loop().create_task(self._refuse_all())

    async def _refuse_all(self) -> None:
        """Refuse calls of unknown methods until the server stops, which raises here."""
        answers: set[asyncio.Task[None]] = set()
        while True:
            call = await self._request_call()
            task = asyncio.create_task(_refuse(call, self.refuse))
            answers.add(task)
            task.add_done_callback(answers.discard)


async def _refuse(call: Any, refuse: Refuse) -> None:
    with suppress(Exception):
        await refuse(cygrpc._ServicerContext(call, None, None, asyncio.get_running_loop()))


def make_server(
    interceptors: Sequence[grpc.aio.ServerInterceptor], options: Sequence[tuple[str, Any]], refuse: Refuse
) -> grpc.aio.Server:
    """Return a server whose services are all registered by name, as generated code does.

    refuse: ends a call of an unknown method
    """
    original = cygrpc.AioServer
    cygrpc.AioServer = _Server
    try:
        server = grpc.aio.server(interceptors=interceptors, options=options)
        server._server.refuse = refuse  # type: ignore[attr-defined]
        return server
    finally:
        cygrpc.AioServer = original
