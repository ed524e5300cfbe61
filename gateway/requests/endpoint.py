"""What every request passes: its body, its caller, its errors in the shape of its API, its metrics."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lingon.errors import LingonError, ServerError, SettingsError
from lingon.gateway.backend import Backend, Caller
from lingon.gateway.metrics import GatewayMetrics
from lingon.gateway.requests.body import BodyLimits, read_body
from lingon.gateway.requests.fields import Fields, fields_of
from lingon.gateway.requests.problem import Problem, problem_of

WATCH_CLIENT = "lingon.watch_client"
"""Key of the scope of a request: a WatchClient."""

WatchClient = Callable[[Callable[[], None]], Callable[[], None]]
"""Takes what to call when the client disconnects, at once if it has; returns what ends that. A task that waits for the
message of ASGI would cost every request time."""

SANE_ID = re.compile(r"[A-Za-z0-9_.:/+=-]{1,128}")
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Call:
    """A request whose body has been read."""

    request: Request
    body: bytes
    fields: Fields
    caller: Caller
    backend: Backend


class Api(Protocol):
    """An API of the gateway.

    name: for metrics, and the option that chooses APIs
    """

    name: str

    def routes(self, endpoints: Endpoints) -> Iterable[Route]:
        """Return the routes."""

    def key_of(self, request: Request, fields: Fields) -> str | None:
        """Return the API key of a request; None if it has none."""

    def error(self, problem: Problem, request: Request) -> Response:
        """Return the reply to a request with an error."""


Handler = Callable[[Call], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Makes routes of handlers.

    limits: of bodies
    """

    backend: Backend
    metrics: GatewayMetrics
    limits: BodyLimits

    def route(
        self,
        api: Api,
        path: str,
        handler: Handler,
        methods: tuple[str, ...] = ("POST",),
        *,
        file: bool = False,
        message: bool = False,
    ) -> Route:
        """Return a route.

        file: whether its body may have a file; message: whether its body is a message, which has no fields
        """
        most = self.limits.with_file if file else self.limits.plain

        async def run(request: Request) -> Response:
            start = time.monotonic()
            self.metrics.in_flight.inc()
            try:
                response = await self._answer(api, handler, request, most, message=message)
            finally:
                self.metrics.in_flight.dec()
            self.metrics.ended(api.name, response.status_code, time.monotonic() - start)
            return response

        return Route(path, run, methods=list(methods), name=getattr(handler, "__name__", None))

    async def _answer(self, api: Api, handler: Handler, request: Request, most: int, *, message: bool) -> Response:
        given = request.headers.get("x-request-id", "")
        request_id = given if SANE_ID.fullmatch(given) else secrets.token_hex(16)
        try:
            body = await read_body(request, most)
            fields = await fields_of(request, b"" if message else body)
            address = request.client.host if request.client else ""
            caller = Caller(api.key_of(request, fields), address, request_id)
            response = await _until_disconnect(request, handler(Call(request, body, fields, caller, self.backend)))
        except Problem as problem:
            response = api.error(problem, request)
        except ServerError as error:
            response = api.error(problem_of(error), request)
        except SettingsError as error:  # a value that a message cannot hold
            response = api.error(Problem(400, str(error)), request)
        except LingonError as error:
            logger.error("a request failed: %s", error)
            response = api.error(Problem(500, "the gateway failed to answer; its log says why"), request)
        except Exception:
            logger.exception("a request failed")
            response = api.error(Problem(500, "the gateway failed to answer; its log says why"), request)
        response.headers["x-request-id"] = request_id
        return response


async def _until_disconnect(request: Request, work: Awaitable[Response]) -> Response:
    """Return what work returns, or cancel it when the client disconnects: its rows are then free for others."""
    own, gone = asyncio.current_task(), False
    assert own is not None

    def leave() -> None:
        nonlocal gone
        gone = True
        own.cancel()

    watch: WatchClient = request.scope[WATCH_CLIENT]
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


def json_error(status: int, content: bytes, problem: Problem) -> Response:
    """Return an error as JSON, with the time after which a retry makes sense."""
    headers = {}
    if problem.retry_after is not None:
        headers["retry-after"] = str(max(round(problem.retry_after), 1))
    return Response(content, status, headers, "application/json")
