"""The HTTP client of the second translator: the chat of OpenAI's API, which vLLM, llama.cpp and clouds answer too.

A request goes to the URL of the setting alone: neither a redirect nor a proxy of the environment leads it elsewhere.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from lingon.errors import SettingsError
from lingon.extras import name_missing_extra
from lingon.files import read_setting_text
from lingon.serving.observability.logs import event
from lingon.serving.second.answers import Failed, NoAnswer, content_of
from lingon.serving.second.questions import Question

if TYPE_CHECKING:
    import httpx2

MOST_BYTES = 1 << 18  # of the body of a reply: a translation of 8,000 characters, each as an escape of JSON
CONNECT_SECONDS = 5.0  # to open a connection; the time of a question bounds all of it
KEPT_SECONDS = 30.0  # for which an idle connection stays open

logger = logging.getLogger(__name__)


def endpoint_of(url: str) -> str:
    """Return the URL of the chat below the URL of an API, such as http://127.0.0.1:8000/v1.

    Raises SettingsError for another URL than one of HTTP without a user name, a query and a fragment: settings are
    logged, and a password in one would be too.
    """
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:  # of the port
        valid = False
    if not valid or "@" in parts.netloc or parts.query or parts.fragment or not url.isascii() or not url.isprintable():
        raise SettingsError(
            "must be the URL of an API, such as http://127.0.0.1:8000/v1, without a user name, a query and a fragment"
        )
    return f"{url.rstrip('/')}/chat/completions"


class ChatServer:
    """A server that answers chats. For one event loop. Nothing is sent before the first question."""

    def __init__(self, url: str, model: str, key_file: Path | None = None, *, connections: int = 8) -> None:
        """url: see `endpoint_of`; model: its name there; key_file: has the key that is sent as a bearer token.

        connections: at once at most

        Raises SettingsError for another URL and for a file that is no key, and LingonError if the extra `second` is not
        installed.
        """
        self.model = model
        try:
            self._endpoint, self._key_file = endpoint_of(url), key_file
        except SettingsError as error:
            raise SettingsError(f"the URL of the second translator {error}") from None
        self._key = _read_key(key_file) if key_file is not None else ""
        with name_missing_extra("a second translator", ["second"]):  # a server that cannot ask does not start
            self._client = _opened(connections)

    async def complete(self, question: Question) -> str:
        """Return what the model wrote about a question. Raises Failed and NoAnswer.

        The caller bounds the time. Cancelling this closes the connection, by which servers notice that nobody waits.
        """
        import httpx2

        body = {
            "model": self.model,
            "messages": question.messages(),
            "temperature": 0,
            "max_tokens": question.most_tokens,
            "response_format": {"type": "json_object"},
        }
        try:
            sent = self._client.stream("POST", self._endpoint, content=json.dumps(body), headers=self._headers())
            async with sent as response:
                if response.status_code != httpx2.codes.OK:
                    raise Failed(f"the server answered with the HTTP status {response.status_code}")
                return content_of(await _body(response))
        except httpx2.HTTPError as error:
            raise Failed(f"the server could not be asked: {type(error).__name__}") from None

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    def _headers(self) -> dict[str, str]:
        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        if self._key_file is not None:
            try:
                self._key = _read_key(self._key_file)  # again, because keys are replaced
            except SettingsError as error:
                event(logger, logging.WARNING, "the key of the second translator stays as it was", why=str(error))
            headers["authorization"] = f"Bearer {self._key}"
        return headers


def _opened(connections: int) -> httpx2.AsyncClient:
    """Return a client that has its TLS context, and whose first request loads no code.

    Both would take a tenth of a second of the event loop during the first question, and of the time of the question.
    """
    import httpx2

    for name in ("httpx2", "httpcore2"):  # they log every request
        logging.getLogger(name).setLevel(logging.WARNING)

    async def ask_nobody() -> None:
        transport = httpx2.AsyncHTTPTransport(uds=os.devnull, verify=False)  # where nothing can listen
        async with httpx2.AsyncClient(transport=transport, trust_env=False) as client:
            with suppress(httpx2.HTTPError):
                await client.get("http://localhost")

    with ThreadPoolExecutor(1) as thread:  # because an event loop may run in this one
        thread.submit(asyncio.run, ask_nobody()).result()
    return httpx2.AsyncClient(
        trust_env=False,
        follow_redirects=False,
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # none: they would tie questions to each other
        timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),
        limits=httpx2.Limits(max_connections=connections, keepalive_expiry=KEPT_SECONDS),
    )


async def _body(response: Any) -> bytes:
    """Return the body of a reply. Raises NoAnswer for one that is too large or compressed.

    A few compressed bytes may become gigabytes, and none were asked for.
    """
    if response.headers.get("content-encoding", "identity") != "identity":
        raise NoAnswer("the reply is compressed, which was not asked for")
    found = bytearray()
    async for chunk in response.aiter_raw():
        found += chunk
        if len(found) > MOST_BYTES:
            raise NoAnswer(f"the reply has more than {MOST_BYTES} bytes")
    return bytes(found)


def _read_key(path: Path) -> str:
    """Return the key in a file. Raises SettingsError, which does not have it in its message."""
    key = read_setting_text(path).strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise SettingsError(f"{path}: must have one key of printable ASCII characters")
    return key
