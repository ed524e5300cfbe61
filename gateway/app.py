"""The gateway as an ASGI application: the APIs that were chosen, the page, and nothing else."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from lingon.documents import SUFFIXES
from lingon.errors import SettingsError
from lingon.gateway.backend import Backend
from lingon.gateway.dialects.deepl import DeepLApi
from lingon.gateway.dialects.google import GoogleApi
from lingon.gateway.dialects.libretranslate import LibreTranslateApi
from lingon.gateway.dialects.native import NativeApi
from lingon.gateway.metrics import GatewayMetrics
from lingon.gateway.requests.body import BodyLimits
from lingon.gateway.requests.body_budget import BodyBudget
from lingon.gateway.requests.endpoint import Api, Endpoints
from lingon.gateway.requests.known_callers import KnownCallers
from lingon.gateway.translations.documents import Documents

APIS: dict[str, Callable[[Documents], Api]] = {
    "lingon": NativeApi,
    "deepl": DeepLApi,
    "libretranslate": LibreTranslateApi,
    "google": lambda _: GoogleApi(),
}
"""The APIs by name."""

FOLDER = Path(__file__).parent / "page"
SCRIPTS = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.js"))
PAGE = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/docs": ("docs.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    **{f"/{name}": (name, "text/javascript; charset=utf-8") for name in SCRIPTS},
    "/openapi.json": ("openapi.json", "application/json"),
}
"""The files of the page by their paths."""

_PORT = re.compile(r":\d+\Z")
ORIGIN = re.compile(r"[a-z][a-z0-9+.\-]*://[^/\s]+")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class GatewayOptions:
    """What the gateway offers.

    apis: names in APIS
    page: whether `/` is the page; it needs the API lingon
    data_dir: folder for files until they are fetched; None: files are not supported
    cors: origins of pages that may call the gateway, or "*"; none by default
    hosts: names that it may be called by, beside addresses and localhost, or "*"
    """

    apis: Sequence[str] = tuple(APIS)
    page: bool = True
    data_dir: Path | None = None
    cors: Sequence[str] = ()
    hosts: Sequence[str] = ("*",)
    limits: BodyLimits = field(default_factory=BodyLimits)

    def __post_init__(self) -> None:
        for name in self.apis:
            if name not in APIS:
                raise SettingsError(f"there is no API {name!r}; the APIs are {', '.join(APIS)}")
        for origin in self.cors:
            if origin != "*" and not ORIGIN.fullmatch(origin):
                raise SettingsError(f"an origin is written as https://example.com, without a path; got {origin[:60]!r}")


class _Application(Starlette):
    """Calls the endpoint of a path without parameters at once, without middlewares and routing.

    Endpoints raise nothing. With a middleware, every request passes it. A slash at the end of a path has no meaning.
    """

    def __init__(self, *, routes: Sequence[Route], middleware: Sequence[Middleware], hosts: Sequence[str]) -> None:
        super().__init__(routes=routes, middleware=middleware)
        self._hosts = frozenset(map(str.lower, hosts))
        self._direct: dict[tuple[str, str], Callable[[Request], Awaitable[Response]]] = {}
        for route in () if middleware else routes:
            for method in () if route.param_convertors else route.methods or ():
                self._direct.setdefault((method, route.path), route.endpoint)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if not self._is_called_by(scope):
            return await _wrong_host(scope, receive, send)
        if scope["path"].endswith("/"):
            scope["path"] = scope["path"].rstrip("/") or "/"
        endpoint = self._direct.get((scope["method"], scope["path"]))
        if endpoint is None:
            return await super().__call__(scope, receive, send)
        scope["app"], scope["router"] = self, self.router  # for url_for
        response = await endpoint(Request(scope, receive, send))
        await response(scope, receive, send)
        return None

    def _is_called_by(self, scope: Scope) -> bool:
        """Whether the name that a request has for the server, if any, is one that it may be called by.

        The owner of any name can have it lead to this machine, and then pages of that name are of its origin.
        """
        if "*" in self._hosts:
            return True
        written = next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin-1")
        host = _PORT.sub("", written.lower())
        return host in ("", "localhost") or host.endswith(".localhost") or host in self._hosts or _is_address(host)


def build(backend: Backend, metrics: GatewayMetrics, options: GatewayOptions, documents: Documents) -> Starlette:
    """Return the application."""
    budget = BodyBudget(options.limits.together)
    endpoints = Endpoints(backend, KnownCallers(backend), metrics, options.limits, budget, options.cors)
    routes = [route for name in options.apis for route in APIS[name](documents).routes(endpoints)]
    if options.page and "lingon" in options.apis:
        routes += [_page_route(path, *each) for path, each in PAGE.items()]
    cors = [Middleware(CORSMiddleware, allow_origins=list(options.cors), allow_methods=["*"], allow_headers=["*"])]
    app = _Application(routes=routes, middleware=cors if options.cors else [], hosts=options.hosts)
    app.add_exception_handler(HTTPException, _without_route)
    return app


def _page_route(path: str, name: str, kind: str) -> Route:
    content = (FOLDER / name).read_bytes().replace(b"KINDS", ",".join(SUFFIXES).encode())
    headers = {
        "content-security-policy": POLICY,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-cache",
    }

    async def send(request: Request) -> Response:
        return Response(content, headers=headers, media_type=kind)

    return Route(path, send, methods=["GET"])


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


async def _wrong_host(scope: Scope, receive: Receive, send: Send) -> None:
    message = "the server may not be called by this name: --http-hosts does not list it"
    content = {"error": {"code": 403, "message": message}, "message": message}
    await JSONResponse(content, 403)(scope, receive, send)


async def _without_route(request: Request, error: Exception) -> Response:
    """Answer a path that no API has."""
    assert isinstance(error, HTTPException)
    message = "no such path" if error.status_code == 404 else str(error.detail)
    content = {"error": {"code": error.status_code, "message": message}, "message": message}
    return JSONResponse(content, error.status_code, headers=error.headers)
