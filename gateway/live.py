"""Live translation over a WebSocket, `/v1/translate:live`: the messages of TranslateLive as JSON, one in each frame.

A browser cannot set headers of a WebSocket. Its API key is one of the subprotocols that it offers, in base64url without
padding: `lingon.live.v1, lingon.key.c2VjcmV0`. A key in the address would be in the logs of every proxy on the way.

Browsers let any page open a WebSocket to any server and read the answers, and not all of them send Sec-Fetch-Site with
it. A page of another origin is therefore refused by its Origin, unless the origin is among those that may call.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import AsyncIterator, Iterable, MutableMapping
from typing import Any

from google.protobuf import json_format
from google.rpc import code_pb2
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from lingon.client.steps import LIVE
from lingon.errors import Draining
from lingon.gateway.backend import Caller
from lingon.gateway.endpoint import Endpoints, as_problem, ascii_of, bearer, until_disconnect
from lingon.gateway.lingon_api import error_json, error_response, from_json, to_json
from lingon.gateway.problem import Problem
from lingon.status import REQUEST_ID, request_id_from
from lingon.translation.v1 import translation_pb2 as pb

PATH = "/v1/translate:live"
SUBPROTOCOL = "lingon.live.v1"
KEY_PREFIX = "lingon.key."
API = "lingon"  # label of metrics
START_SECONDS = 10.0  # seconds for the first message to arrive
CLOSE_CODE = 4000  # plus the HTTP status of the error; RFC 6455 leaves 4000 to 4999 to applications
DONE, NOT_TEXT, RESTART = 1000, 1003, 1012  # close codes of the protocol
REASON_BYTES = 123  # of UTF-8, the longest reason of a close frame
SWITCHED, GONE = 101, 499  # statuses in metrics: a speaker that was translated, and one whose client disconnected
UPGRADE_REQUIRED = 426
SCHEMES = ("http://", "https://")


class LiveEndpoint:
    """The route of live translation."""

    def __init__(self, endpoints: Endpoints) -> None:
        self._shared = endpoints

    def routes(self) -> Iterable[Route | WebSocketRoute]:
        """Return the routes."""
        return [WebSocketRoute(PATH, self.run), Route(PATH, self.refuse, methods=["GET"])]

    async def refuse(self, request: Request) -> Response:
        """Answer a request that is no WebSocket, such as one whose upgrade a proxy has removed."""
        message = "live translation is a WebSocket: the request must have the headers Upgrade and Connection"
        response = error_response(Problem(UPGRADE_REQUIRED, message))
        response.headers["upgrade"] = "websocket"
        self._shared.metrics.counted(API, UPGRADE_REQUIRED)
        return response

    async def run(self, socket: WebSocket) -> None:
        """Translate one speaker, and count it."""
        metrics = self._shared.metrics
        metrics.in_flight.inc()
        status = GONE
        try:
            status = await self._answer(socket)
        finally:
            metrics.in_flight.dec()
            metrics.counted(API, status)

    async def _answer(self, socket: WebSocket) -> int:
        """Translate a speaker to its end, and return the status for metrics."""
        request_id = request_id_from(socket.headers.get(REQUEST_ID, ""))
        try:
            caller = await self._caller_of(socket, request_id)
        except Exception as error:
            problem = as_problem(error)
            response = error_response(problem)
            response.headers[REQUEST_ID] = request_id
            await socket.send_denial_response(response)
            return problem.http_status
        try:
            chosen = SUBPROTOCOL if SUBPROTOCOL in socket.scope["subprotocols"] else None
            await socket.accept(chosen, [(REQUEST_ID.encode(), request_id.encode())])
            await until_disconnect(socket.scope, self._relay(socket, caller))
            await socket.close(DONE)
            return SWITCHED
        except asyncio.CancelledError:  # the server stops, and the time limit of open calls is over
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            return await _close(socket, Problem(503, "the server is shutting down; try again"), RESTART)
        except WebSocketDisconnect:
            return GONE
        except Exception as error:
            return await _close(socket, as_problem(error))

    async def _caller_of(self, socket: WebSocket, request_id: str) -> Caller:
        """Return the caller of a request, if it may open a WebSocket. Raises Problem and ServerError."""
        self._check_origin(socket)
        address = ascii_of(socket.client.host) if socket.client else ""
        caller = Caller(_key_of(socket), address, request_id)
        await self._shared.callers.check(caller)
        self._shared.backend.check_load(LIVE, caller)
        return caller

    def _check_origin(self, socket: WebSocket) -> None:
        """Raise Problem for a page of another origin. Extensions have origins with other schemes, as for requests."""
        headers, origins = socket.headers, self._shared.origins
        origin = headers.get("origin", "")
        if not origin or "*" in origins or origin in origins or headers.get("sec-fetch-site") == "same-origin":
            return
        if origin != "null" and not origin.startswith(SCHEMES):
            return
        if origin.partition("://")[2].lower() != headers.get("host", "").lower():
            raise Problem(403, f"pages of {origin[:100]} may not call: --http-cors does not list them")

    async def _relay(self, socket: WebSocket, caller: Caller) -> None:
        """Pass the messages of both sides on to the other one, until the server has sent its last one."""
        try:
            first = await asyncio.wait_for(_receive(socket), START_SECONDS)
        except TimeoutError:
            raise Problem(408, f"the first message did not arrive within {START_SECONDS:g} s") from None
        async for reply in self._shared.backend.live(_requests(first, socket), caller):
            await socket.send_text(to_json(reply))


async def _requests(first: pb.TranslateLiveRequest, socket: WebSocket) -> AsyncIterator[pb.TranslateLiveRequest]:
    """Yield the messages of a client. They are read from the connection when the server asks for them."""
    yield first
    while True:
        yield await _receive(socket)


async def _receive(socket: WebSocket) -> pb.TranslateLiveRequest:
    """Return the next message of a client. Raises Problem for a wrong one, WebSocketDisconnect without one."""
    received: MutableMapping[str, Any] = await socket.receive()
    if received["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(received.get("code", DONE))
    text = received.get("text")
    if text is None:
        raise _Binary(400, "a message must be text, got bytes")
    try:
        return from_json(text, pb.TranslateLiveRequest())
    except (json_format.ParseError, RecursionError) as error:
        raise Problem(400, f"the message is not a TranslateLiveRequest: {' '.join(str(error).split())}") from None


class _Binary(Problem):
    """A message that is not text."""


def _key_of(socket: WebSocket) -> str | None:
    """Return the API key of a request, or None if it has none. Raises Problem for a subprotocol that holds none."""
    offered = next((each for each in socket.scope["subprotocols"] if each.startswith(KEY_PREFIX)), None)
    if offered is None:
        return bearer(socket)
    written = offered.removeprefix(KEY_PREFIX)
    try:
        return base64.b64decode(written + "=" * (-len(written) % 4), altchars=b"-_", validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        message = f"the subprotocol {KEY_PREFIX} must have the API key in base64url"
        raise Problem(401, message, code=code_pb2.UNAUTHENTICATED) from None


async def _close(socket: WebSocket, problem: Problem, code: int | None = None) -> int:
    """Send the error of a speaker, and end the connection. Return its status.

    code: the close code, by default that of the status
    """
    if isinstance(problem, _Binary):
        code = NOT_TEXT
    if problem.reason == Draining.reason:
        code = RESTART
    try:
        await socket.send_text(f'{{"error":{error_json(problem)}}}')
        reason = str(problem).encode()[:REASON_BYTES].decode(errors="ignore")
        await socket.close(CLOSE_CODE + problem.http_status if code is None else code, reason)
    except (WebSocketDisconnect, RuntimeError):  # the client has disconnected
        return GONE
    return problem.http_status
