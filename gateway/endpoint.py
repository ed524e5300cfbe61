"""The common steps of all requests: body, caller, time limit, errors in the form of the API, metrics."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from lingon.client.steps import Method
from lingon.errors import LingonError, ServerError, SettingsError
from lingon.gateway.backend import Backend, Caller, KnownCallers
from lingon.gateway.body import (
    BodyBudget,
    BodyLimits,
    Fields,
    HeldBody,
    count_values,
    fields_of,
    has_json,
    query_fields,
    read_body,
    without_mark,
)
from lingon.gateway.metrics import GatewayMetrics
from lingon.gateway.problem import Problem, problem_of
from lingon.gateway.stores import Stores
from lingon.status import REQUEST_ID, request_id_from

HEADERS = {"x-server-timeout": 1.0, "x-envoy-expected-rq-timeout-ms": 0.001}
"""The headers of time limits, with the seconds of their unit. Google's client libraries send the first one. Envoy sends
the second one, with the time after which Envoy answers 504 itself.
"""

NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?", re.ASCII)
LEAST_SECONDS = 0.001


def client_timeout(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a client waits, or None if it sends no limit. Raises Problem for an invalid one."""
    return min((_seconds(name, headers[name]) for name in HEADERS if name in headers), default=None)


def _seconds(name: str, value: str) -> float:
    seconds = float(value) * HEADERS[name] if NUMBER.fullmatch(value) else 0.0
    if seconds < LEAST_SECONDS:
        least = LEAST_SECONDS / HEADERS[name]
        raise Problem(400, f"{name} must be a number of at least {least:g} with at most 9 digits, got {value[:40]!r}")
    return seconds


WATCH_CLIENT = "lingon.watch_client"
"""The key in the scope of a request of a WatchClient."""

WatchClient = Callable[[Callable[[], None]], Callable[[], None]]
"""Registers a function to call when the client disconnects, or at once if it has; returns a function to remove it. A
task that waits for the message of ASGI would cost every request time."""

PRIVATE = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
"""Headers of all replies: they are for one caller, and no browser may guess their type."""

Result = TypeVar("Result")
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Call:
    """A request with its body.

    holder: the owner of its files and slots: the caller, without its key if the server needs none
    """

    request: Request
    body: bytes
    fields: Fields
    caller: Caller
    holder: Caller
    backend: Backend
    held: HeldBody

    @property
    def stores(self) -> Stores:
        """What the server keeps for the caller."""
        return Stores(self.backend, self.caller)


class Api(Protocol):
    """An API of the gateway.

    name: label of metrics, and value of the option that selects APIs
    key_in_body: whether the API key may be a field of the body, which is then read before the key is checked
    """

    name: str
    key_in_body: bool

    def routes(self, endpoints: Endpoints) -> Iterable[Route]:
        """Return the routes."""

    def key_of(self, request: Request, fields: Fields) -> str | None:
        """Return the API key of a request, or None if it has none."""

    def error(self, problem: Problem, request: Request) -> Response:
        """Return the reply to a request with an error."""


class Streamed(StreamingResponse):
    """A reply whose body is generated while it is sent. It closes its iterator, even if the client disconnects."""

    ended: Callable[[], None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI. Avoids the task group of Starlette, because the first one loads modules for 250 ms."""
        try:
            async with aclosing(self.body_iterator):  # type: ignore[type-var]
                await until_disconnect(scope, self.stream_response(send))
        except Problem:  # the client disconnected
            pass
        finally:
            self.ended()


Handler = Callable[[Call], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The routes of handlers.

    callers: cache of accepted keys; limits: bounds of bodies; budget: bound of all bodies together
    origins: origins of pages that may call, or "*"
    """

    backend: Backend
    callers: KnownCallers
    metrics: GatewayMetrics
    limits: BodyLimits
    budget: BodyBudget
    origins: Sequence[str] = ()

    def route(
        self,
        api: Api,
        path: str,
        handler: Handler,
        methods: tuple[str, ...] = ("POST",),
        *,
        check: Callable[[Request], object] | None = None,
        check_files: Callable[[], object] | None = None,
        file: bool = False,
        large: bool = False,
        message: bool = False,
        public: bool = False,
        linked: bool = False,
        method: Method[Any] | None = None,
    ) -> Route:
        """Return a route.

        check: raises Problem for a request whose body must not be read
        check_files: raises Problem before a body with a file is read, if files cannot be stored
        file: whether its body is a file, which has no fields
        large: whether its body may be as large as one with a file
        message: whether its body is a message of JSON, which has no fields
        public: whether callers need no key
        linked: whether pages of other origins may link to it
        method: the method that a request calls first; if the server would refuse the call, the body is not read
        """
        limit = self.limits.with_file if check_files is not None or file or large else self.limits.plain
        endpoint = _Endpoint(self, api, handler, check, check_files, limit, file, message, public, linked, method)
        return Route(path, endpoint.run, methods=list(methods), name=getattr(handler, "__name__", None))


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """The handler of a route.

    limit: bytes of a body; the other fields: see `Endpoints.route`
    """

    shared: Endpoints
    api: Api
    handler: Handler
    check: Callable[[Request], object] | None
    check_files: Callable[[], object] | None
    limit: int
    file: bool
    message: bool
    public: bool
    linked: bool
    method: Method[Any] | None

    async def run(self, request: Request) -> Response:
        """Answer a request and count it."""
        start, metrics = time.monotonic(), self.shared.metrics
        metrics.in_flight.inc()
        try:
            response = await self._answer(request)
        except BaseException:
            metrics.in_flight.dec()
            raise

        def end() -> None:
            metrics.in_flight.dec()
            metrics.ended(self.api.name, response.status_code, time.monotonic() - start)

        if isinstance(response, Streamed):
            response.ended = end
        else:
            end()
        return response

    async def _answer(self, request: Request) -> Response:
        """Return the reply to a request, even if it fails."""
        request_id = request_id_from(request.headers.get(REQUEST_ID, ""))
        caller = Caller(None, ascii_of(request.client.host) if request.client else "", request_id)
        held = HeldBody(self.shared.budget, caller.address)
        try:
            response = await self._handle(request, caller, held)
        except asyncio.CancelledError:  # the server stops, and the time limit of the request is over
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            stopping = Problem(503, "the server is shutting down; try again", retry_after=1.0)
            response = self.api.error(stopping, request)
        except Exception as error:
            response = self.api.error(as_problem(error), request)
        finally:
            held.release()
        response.headers.update({REQUEST_ID: request_id, **PRIVATE})
        return response

    async def _handle(self, request: Request, caller: Caller, held: HeldBody) -> Response:
        """Read the body of a request and call the handler; caller: without the key."""
        self._check_site(request)
        seconds = client_timeout(request.headers)
        deadline = None if seconds is None else time.monotonic() + seconds
        if self.check is not None:
            self.check(request)
        if self.check_files is not None:
            self.check_files()
        key = self.api.key_of(request, Fields(query_fields(request)))
        caller = replace(caller, key=key, deadline=deadline)
        known = await self._is_known(caller)
        if self.method is not None:
            self.shared.backend.check_load(self.method, caller)
        body = await read_body(request, self.limit, held, None if known else held.count_without_key)
        if self.message or has_json(request, body):
            body = without_mark(body)
            count_values(body, held)
        fields = fields_of(request, b"" if self.message or self.file else body)
        if fields.file is not None:
            body = b""  # the file is not stored twice
        caller = replace(caller, key=self.api.key_of(request, fields))
        if not known:
            await self.shared.callers.check(caller)
        holder = caller if self.public else await self.shared.callers.as_known(caller)
        call = Call(request, body, fields, caller, holder, self.shared.backend, held)
        return await until_disconnect(request.scope, self.handler(call))

    async def _is_known(self, caller: Caller) -> bool:
        """Return whether a caller may call, or False if its key may be in the body. Raises ServerError.

        The key is from the headers or the query.
        """
        if self.public:
            return True
        if caller.key is None and self.api.key_in_body:
            return await self.shared.callers.accepts(caller)
        await self.shared.callers.check(caller)
        return True

    def _check_site(self, request: Request) -> None:
        """Refuse a call that a browser makes for a page of another origin. Raises Problem.

        The page could not read the reply, but the server would do the work. Browsers send Sec-Fetch-Site to localhost
        and to all hosts with HTTPS. Extensions have origins with other schemes.
        """
        headers = request.headers
        origin, origins = headers.get("origin", ""), self.shared.origins
        if headers.get("sec-fetch-site") not in ("cross-site", "same-site") or "*" in origins or origin in origins:
            return
        if origin not in ("", "null") and not origin.startswith(("http://", "https://")):
            return
        if self.linked and headers.get("sec-fetch-mode") == "navigate":
            return
        raise Problem(403, f"pages of {origin[:100] or 'other origins'} may not call: --http-cors does not list them")


def as_problem(error: Exception) -> Problem:
    """Return the problem of an error of a handler. Errors that the caller cannot have caused are logged."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, ServerError):
        return problem_of(error)
    if isinstance(error, SettingsError):  # a value that a message cannot hold
        return Problem(400, str(error))
    if isinstance(error, LingonError):
        logger.error("a request failed: %s", error)
    else:
        logger.exception("a request failed", exc_info=error)
    return Problem(500, "the gateway failed to answer; its log says why")


async def until_disconnect(scope: Scope, work: Awaitable[Result]) -> Result:
    """Return the result of work, or cancel it when the client disconnects, which frees its rows for others."""
    own, gone = asyncio.current_task(), False
    assert own is not None

    def leave() -> None:
        nonlocal gone
        gone = True
        own.cancel()

    watch: WatchClient = scope[WATCH_CLIENT]
    forget = watch(leave)
    try:
        return await work
    except asyncio.CancelledError:
        if not gone:
            raise
        own.uncancel()
        raise Problem(499, "the client disconnected") from None
    finally:
        forget()


def ascii_of(address: str) -> str:
    """Return an address that fits a header. A proxy may forward any text as the address of a client."""
    return address.encode("ascii", "replace").decode()


def bearer(request: HTTPConnection) -> str | None:
    """Return the key of the header `Authorization: Bearer KEY`."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" and key.strip() else None


def json_error(status: int, content: bytes, problem: Problem) -> Response:
    """Return an error as JSON, with the time after which a retry makes sense."""
    headers = {}
    if problem.retry_after is not None:
        headers["retry-after"] = str(max(math.ceil(problem.retry_after), 1))
    return Response(content, status, headers, "application/json")
