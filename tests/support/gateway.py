"""Servers with HTTP APIs in this process: one that echoes, and one that translates through a second language."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from lingon.bundle.names import PROFILES
from lingon.bundle.store import Bundle
from lingon.serving.guard import profile
from lingon.serving.models.loading import LoadOptions
from lingon.serving.translation.translator import Translator
from tests.support.echo_engine import EchoRunner, Loader, RunningServer, running, tokenizer
from tests.support.repository import ROOT

ENGLISH, GERMAN = (
    (ROOT / "tests" / "data" / f"tatoeba.{tag}").read_text(encoding="utf-8").splitlines() for tag in ("en", "de")
)
KNOWS_LANGUAGES = {"files": {PROFILES: profile(ENGLISH) + profile(GERMAN)}}
"""A bundle from English to German that distinguishes the two."""


@dataclass(frozen=True, slots=True)
class WholeReply:
    """A reply that has arrived whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running gateway, whose echo engine translates a text into itself."""

    server: RunningServer
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def send(
        self, method: str, path: str, body: bytes = b"", kind: str = "", headers: Mapping[str, str] | None = None
    ) -> WholeReply:
        """Send a request with these bytes."""
        return await asyncio.to_thread(send, self.port, method, path, body, kind, headers or {})

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> WholeReply:
        return await self.send("GET", path, headers=headers)

    async def post(self, path: str, content: Any, headers: Mapping[str, str] | None = None) -> WholeReply:
        """Send JSON."""
        return await self.send("POST", path, json.dumps(content).encode(), "application/json", headers)

    async def form(self, path: str, fields: Any, headers: Mapping[str, str] | None = None) -> WholeReply:
        """Send a form. A field with a list is sent several times."""
        content = urlencode(fields, doseq=True).encode()
        return await self.send("POST", path, content, "application/x-www-form-urlencoded", headers)

    async def upload(self, path: str, name: str, content: bytes, **fields: str) -> WholeReply:
        """Send a file and fields as multipart."""
        parts = [f'--x\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{fields[key]}\r\n' for key in fields]
        head = f'--x\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
        body = "".join([*parts, head]).encode() + content + b"\r\n--x--\r\n"
        return await self.send("POST", path, body, "multipart/form-data; boundary=x")


def send(port: int, method: str, path: str, body: bytes, kind: str, headers: Mapping[str, str]) -> WholeReply:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, body or None, {**({"content-type": kind} if kind else {}), **headers})
        reply = connection.getresponse()
        return WholeReply(reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read())
    finally:
        connection.close()


async def state_of(http: Gateway, made: dict[str, str]) -> Any:
    """Return the last state of a document of DeepL's API; made: its ID and key."""
    while True:
        state = (await http.form(f"/v2/document/{made['document_id']}", made)).json
        if state["status"] not in ("queued", "translating"):
            return state
        await asyncio.sleep(0.05)


@asynccontextmanager
async def gateway(runner: EchoRunner | None = None, **settings: Any) -> AsyncIterator[Gateway]:
    """Run a server with the HTTP APIs. settings: of the server."""
    settings = {"bundles": (KNOWS_LANGUAGES,), "http_port": 0, **settings}
    async with running(runner, **settings) as server:
        yield Gateway(server, server.server.http_port)


FRENCH = ["Le vieil homme et la mer.", "Où est la gare ?", "Je voudrais savoir quelle heure il est."]
TO_ENGLISH = {
    "Der alte Mann.": "The old man.",
    "Wo ist er?": "Where? Is he there?",
    "Das Meer.": "The sea.",
    "Nichts.": "",
    "Wo ist der Bahnhof?": "Where is the station?",
    "Die See und das Meer.": "The sea and the sea.",
    "Bahnhof": "The station.",
    "Mann": "Man",
    "Meer": "the sea",
}
TO_FRENCH = {
    "The old man.": "Le vieil homme.",
    "Where?": "Où ?",
    "Is he there?": "Est-il là ?",
    "The sea.": "La mer.",
    "Where is the station?": "Où est la gare ?",
}

BUNDLES = tuple(
    {
        "name": name,
        "source_language": name[:2],
        "target_language": name[3:],
        "files": {PROFILES: profile(texts) + profile(others)},
    }
    for name, texts, others in (("de-en", GERMAN, ENGLISH), ("en-fr", ENGLISH, FRENCH))
)
"""Both models, which distinguish the languages."""


class Dictionary(EchoRunner):
    """A runner that translates the sentences of a dictionary, and others to themselves."""

    def __init__(self, sentences: dict[str, str], **rest: Any) -> None:
        super().__init__(says=says(sentences), **rest)


def says(sentences: dict[str, str]) -> Callable[[list[int]], list[int]]:
    def translated(source: list[int]) -> list[int]:
        text = tokenizer().decode(source[:-1]).strip()
        return tokenizer().encode_source(sentences.get(text, text))

    return translated


class TwoModels(Loader):
    """A loader of a dictionary for each model."""

    def __init__(self, *rest: Any) -> None:
        super().__init__(*rest)
        self.runners = {"de-en": Dictionary(TO_ENGLISH), "en-fr": Dictionary(TO_FRENCH)}

    def __call__(self, bundle: Bundle, options: LoadOptions) -> Translator:
        self.runner = self.runners.get(bundle.manifest.name, self.runner)
        return super().__call__(bundle, options)
