"""What a case has at hand: servers, clients, sentences and their translations, and a folder of its own."""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from chaos import checker
from chaos.checker import Golden
from chaos.checks import Findings
from chaos.clients import Client
from chaos.cpu_pinning import Cast
from chaos.crashing_clients import CrashingClient
from chaos.history import OK, Fate, History
from chaos.prometheus import Scrape
from chaos.server import LOOK, Server
from lingon.bundle import open_bundle
from lingon.errors import LingonError
from lingon.lines import read_lines
from lingon.text import Tokenizer

ROOT = Path(__file__).parent.parent
SENTENCES = ROOT / "tests" / "data" / "tatoeba.en"
Value = TypeVar("Value")


class Switch:
    """A file that a failpoint looks for."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on(self) -> None:
        """From now on it happens."""
        self.path.touch()

    def off(self) -> None:
        """And now no more."""
        self.path.unlink(missing_ok=True)

    def __str__(self) -> str:
        return str(self.path)


def translated(fates: Iterable[Fate]) -> Iterator[tuple[int, str]]:
    """The texts that were translated, and how, also in answers that were cut short."""
    for fate in fates:
        yield from ((fate.beam_size, fate.texts[result.index]) for result in fate.results if result.code == OK)


@dataclass
class Session:
    """What all cases of a run share.

    folder: for what cases leave behind; say: tells a person a line
    soak_minutes, control_minutes: how long case 36 takes, without and with a leak
    """

    model: Path
    folder: Path
    quick: bool
    cast: Cast
    say: Callable[[str], None]
    soak_minutes: float = 30.0
    control_minutes: float = 15.0
    _golden: dict[tuple[int, str], str] = field(default_factory=dict)
    texts: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.texts = list(read_lines(SENTENCES))
        random.Random(1).shuffle(self.texts)  # lengths mix as they do

    async def golden(self, asked: Iterable[tuple[int, str]]) -> Golden:
        """Translations of texts alone: one server, one request with one text at a time."""
        missing = [key for key in dict.fromkeys(asked) if key not in self._golden]
        if missing:
            folder = self.folder / "golden"
            async with Server(folder=folder, model=self.model, cores=self.cast.server, name="golden") as server:
                client = Client(server.address, History())
                for beam_size, text in missing:
                    fate = await client.translate(text, beam_size=beam_size)
                    if not fate.good:
                        raise LingonError(f"a text alone ended with {fate.code}: there is nothing to compare with")
                    self._golden[beam_size, text] = fate.results[0].text
                await client.close()
        return self._golden

    @cached_property
    def _tokenizer(self) -> tuple[Tokenizer, int]:
        """The model's, and how many tokens it reads."""
        bundle = open_bundle(self.model)
        return Tokenizer(*bundle.tokenizer_files()), bundle.manifest.limits.max_source_tokens

    def long_texts(self, count: int, tokens: int, most: int | None = None) -> list[str]:
        """Texts of at least so many source tokens each, made of whole sentences; most: tokens, all the model reads."""
        tokenizer, readable = self._tokenizer
        most = most or readable
        draw, found = random.Random(2), list[str]()
        while len(found) < count:
            text = draw.choice(self.texts)
            while len(tokenizer.encode_source(text)) < tokens:
                text = f"{text} {draw.choice(self.texts)}"
            if len(tokenizer.encode_source(text)) <= most:
                found.append(text)
        return found


class World:
    """What one try of a case has; all that it opens ends with it."""

    def __init__(self, session: Session, stack: AsyncExitStack, scratch: Path) -> None:
        shutil.rmtree(scratch, ignore_errors=True)  # of an earlier run that was kept in the same place
        scratch.mkdir(parents=True)
        self.session, self.scratch = session, scratch
        self._chapters: list[History] = []
        self.begin()
        self.quick, self.texts, self.cast = session.quick, session.texts, session.cast
        self._stack, self._servers = stack, 0

    def choose(self, full: Value, quick: Value) -> Value:
        """The first, or in a quick run the second."""
        return quick if self.quick else full

    def server(self, *, calls: bool = False, **more: Any) -> Server:
        """A server that is not started yet: enter it. Settings of the server, and fields of Server, by name.

        calls: log every call, for the checker
        """
        own = {
            name: more.pop(name)
            for name in ("environment", "prefix", "log_to", "name", "wait", "model")
            if name in more
        }
        self._servers += 1
        settings = {"log_level": "debug" if calls else "info", **more}
        values = {"name": f"server{self._servers}", "model": self.session.model, **own}
        return Server(folder=self.scratch, cores=self.cast.server, settings=settings, **values)

    def client(self, server: Server | str, name: str = "client", **more: Any) -> Client:
        """A connection, to a server or an address; closed with the case."""
        address = server if isinstance(server, str) else server.address
        client = Client(address, self.history, name, **more)
        self._stack.push_async_callback(client.close)
        return client

    async def crashing(self, server: Server, texts: list[str], streams: int) -> CrashingClient:
        """A process with streams that have begun, to be killed."""
        cores = self.cast.clients
        found = await asyncio.to_thread(CrashingClient, server.address, texts, streams, self.scratch, cores)
        self._stack.callback(found.kill)
        return found

    def switch(self, name: str) -> Switch:
        """Something to turn a failpoint on and off with; off at first."""
        return Switch(self.scratch / name)

    async def judge(self, found: Findings, server: Server, *, told: bool = True) -> None:
        """The checks that hold for every run, of a server that is still there and has nothing more to do.

        told: whether the server logs calls, so that they can be compared one by one
        """
        scrape = await self.resting(server)
        fates = list(self.history)
        golden = await self.session.golden(translated(fates))
        found.clean("each of the requests ended once", checker.ended_once(fates))
        found.clean("translations as alone", checker.as_alone(fates, golden))
        found.clean("gauges back to 0", checker.at_rest(scrape))
        found.clean("durations as many as calls", checker.histograms(scrape))
        found.clean("no error unhandled", server.tracebacks())
        if told:
            calls = server.calls()
            found.clean("client and server agree", checker.paired(fates, calls))
            found.clean("counters as the log", checker.counted(calls, scrape))
            found.clean("texts counted as told", checker.counted_as_told(fates, calls, scrape))

    async def resting(self, server: Server, seconds: float = 5.0) -> Scrape:
        """The metrics when nothing runs any more, or after so many seconds."""
        end = time.monotonic() + seconds
        while checker.at_rest(scrape := await server.scrape()) and time.monotonic() < end:  # noqa: ASYNC110
            await asyncio.sleep(LOOK)
        return scrape

    async def until(self, what: str, condition: Callable[[], Awaitable[bool] | bool], seconds: float = 10.0) -> float:
        """Wait for a condition; returns when it held. LingonError after so many seconds."""
        end = time.monotonic() + seconds
        while True:
            value = condition()
            if value if isinstance(value, bool) else await value:
                return time.monotonic()
            if time.monotonic() > end:
                raise LingonError(f"not within {seconds:g} s: {what}")
            await asyncio.sleep(LOOK)

    def begin(self) -> History:
        """A history of its own for the next server, which knows nothing of what was asked of the last."""
        self.history = History()
        self._chapters.append(self.history)
        return self.history

    def save(self) -> None:
        """Write the histories down."""
        for number, history in enumerate(self._chapters, start=1):
            history.save(self.scratch / f"history{number}.jsonl")

    def everything(self) -> list[Fate]:
        """All requests of all histories."""
        return [fate for history in self._chapters for fate in history]
