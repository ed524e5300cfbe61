"""A grpc.aio server that no caller can end.

grpc.aio decodes the path of a call to a method that it does not know in the very loop that takes calls, and that loop
ends by a path that is no UTF-8 (grpcio 1.85.1): the port closes, calls are cancelled, and the process lives on without
it. A few bytes of anybody who reaches the port would do. Calls to methods that are known by name come another way, so
here the others never get to that loop: they are told UNIMPLEMENTED beside it, or that they need a key.

This reaches into grpc, where a name may change; tests/hostile/test_unknown_methods.py tells when it does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import grpc
from grpc._cython import cygrpc  # type: ignore[attr-defined]

from lingon.errors import RequestError
from lingon.serving.rpc.calls import abort, request_id_of
from lingon.status import to_status

Check = Callable[[Iterable[tuple[str, str | bytes]]], object]
"""Raises RequestError."""


class _Server(cygrpc.AioServer):  # type: ignore[misc]
    """What is below grpc.aio.Server."""

    check: Check

    def _make_request_call_future(self, method: bytes | None) -> asyncio.Future[Any]:
        """The next call of a method; None stands for all that are not known, of which there is never a next."""
        if method is not None:
            known: asyncio.Future[Any] = super()._make_request_call_future(method)
            return known
        return asyncio.get_running_loop().create_task(self._turn_away())

    async def _turn_away(self) -> None:
        """Refuse calls of unknown methods until the server ends, which raises."""
        answers: set[asyncio.Task[None]] = set()
        while True:
            call = await self._request_call()
            task = asyncio.create_task(_refuse(call, self.check))
            answers.add(task)
            task.add_done_callback(answers.discard)


async def _refuse(call: Any, check: Check) -> None:
    context = cygrpc._ServicerContext(call, None, None, asyncio.get_running_loop())
    with suppress(Exception):  # abort raises always; a caller who is gone need not be told
        try:
            check(context.invocation_metadata() or ())
        except RequestError as error:
            await abort(context, to_status(error), request_id_of(context))
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!", ())


def make_server(
    interceptors: Sequence[grpc.aio.ServerInterceptor], options: Sequence[tuple[str, Any]], check: Check
) -> grpc.aio.Server:
    """A server whose services are all added by name, as generated code adds them.

    check: what calls of other methods pass, by their metadata, before they are told that there is no such method
    """
    usual = cygrpc.AioServer
    cygrpc.AioServer = _Server
    try:
        server = grpc.aio.server(interceptors=interceptors, options=options)
        server._server.check = check  # type: ignore[attr-defined]
        return server
    finally:
        cygrpc.AioServer = usual
