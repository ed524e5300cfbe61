"""The context of a case: cores, servers, clients, sentences with their expected translations, and a folder."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import tests.reliability.checker as checker
from lingon.bench.worker_process import Cores
from lingon.bundle.store import open_bundle
from lingon.errors import LingonError
from lingon.files import read_lines
from lingon.text import Tokenizer
from tests.reliability.checker import Golden, Scrape
from tests.reliability.checks import Checks
from tests.reliability.clients import Client, CrashingClient, Send, closed_loop
from tests.reliability.history import OK, History, Outcome
from tests.reliability.server import CHECK_PAUSE, Server
from tests.support.repository import ROOT


@dataclass(frozen=True, slots=True)
class CpuPinning:
    """The cores of servers and of clients, which share the core of a machine with only one."""

    server: Cores
    clients: Cores

    @classmethod
    def choose(cls) -> CpuPinning:
        """Return the first usable core for servers, the last for clients."""
        usable = sorted(os.sched_getaffinity(0))
        return cls(frozenset(usable[:1]), frozenset(usable[-1:]))


SENTENCES = ROOT / "tests" / "data" / "tatoeba.en"
SLOWED: dict[str, Any] = {"failpoints": "step=sleep:0.005", "max_rows": 2}
"""Settings of a server that translates about 25 texts a second, on any machine."""

SLOWED_QUEUE = 16  # texts that its queue holds: about as many as it translates within a second
Value = TypeVar("Value")


class Switch:
    """A file that turns a failpoint on while it exists."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on(self) -> None:
        """Turn the failpoint on."""
        self.path.touch()

    def off(self) -> None:
        """Turn the failpoint off."""
        self.path.unlink(missing_ok=True)

    def __str__(self) -> str:
        return str(self.path)


def translated(outcomes: Iterable[Outcome]) -> Iterator[tuple[int, str]]:
    """Return the beam size and text of every translated text, also of answers that a client cancelled later."""
    for outcome in outcomes:
        yield from ((outcome.beam_size, outcome.texts[result.index]) for result in outcome.results if result.code == OK)


@dataclass
class Session:
    """The state that all cases of a run share.

    folder: of logs and histories; quick: whether cases run in their short versions
    tries: how often a case runs at most while only times are out of bounds
    """

    folder: Path
    quick: bool
    model: Path = ROOT / "models" / "en-de"
    pinning: CpuPinning = field(default_factory=CpuPinning.choose)
    tries: int = 3
    _golden: dict[tuple[int, str], str] = field(default_factory=dict)
    texts: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.texts = list(read_lines(SENTENCES))
        random.Random(1).shuffle(self.texts)  # so that short and long sentences mix

    async def golden(self, wanted: Iterable[tuple[int, str]]) -> Golden:
        """Return the expected translations. A server translates one text at a time, with nothing else in its batch."""
        missing = [key for key in dict.fromkeys(wanted) if key not in self._golden]
        if missing:
            folder = self.folder / "golden"
            async with Server(folder=folder, model=self.model, cores=self.pinning.server, name="golden") as server:
                client = Client(server.address, History())
                for beam_size, text in missing:
                    outcome = await client.translate(text, beam_size=beam_size)
                    if not outcome.good:
                        raise LingonError(f"the expected translation of a text ended with {outcome.code}")
                    self._golden[beam_size, text] = outcome.results[0].text
                await client.close()
        return self._golden

    @cached_property
    def _tokenizer(self) -> tuple[Tokenizer, int]:
        """The tokenizer of the model, and the model's limit of source tokens."""
        bundle = open_bundle(self.model)
        return bundle.tokenizer(), bundle.manifest.limits.max_source_tokens

    def long_texts(self, count: int, tokens: int, max_tokens: int | None = None) -> list[str]:
        """Return texts of whole sentences with `tokens` to `max_tokens` source tokens, by default the limit."""
        tokenizer, limit = self._tokenizer
        max_tokens = max_tokens or limit
        draw, found = random.Random(2), list[str]()
        while len(found) < count:
            text = draw.choice(self.texts)
            while len(tokenizer.encode_source(text)) < tokens:
                text = f"{text} {draw.choice(self.texts)}"
            if len(tokenizer.encode_source(text)) <= max_tokens:
                found.append(text)
        return found


class CaseContext:
    """The servers, clients and histories of one try of a case, which are closed when the try ends."""

    def __init__(self, session: Session, stack: AsyncExitStack, scratch: Path) -> None:
        shutil.rmtree(scratch, ignore_errors=True)  # an earlier try may have left it
        scratch.mkdir(parents=True)
        self.session, self.scratch = session, scratch
        self._chapters: list[History] = []
        self.new_history()
        self.quick, self.texts, self.pinning = session.quick, session.texts, session.pinning
        self._stack, self._servers = stack, 0

    def note(self, line: str) -> None:
        """Print a line, which pytest shows if the case fails."""
        sys.stderr.write(f"{line}\n")

    def choose(self, full: Value, quick: Value) -> Value:
        """Return the first value, or the second in a quick run."""
        return quick if self.quick else full

    def server(self, *, calls: bool = False, **more: Any) -> Server:
        """Return a server that starts when its context is entered. more: settings of the server or fields of Server.

        calls: whether the server logs every call, for the checker
        """
        own: dict[str, Any] = {
            name: more.pop(name)
            for name in ("environment", "prefix", "log_to", "name", "wait", "model")
            if name in more
        }
        self._servers += 1
        settings = {"log_level": "debug" if calls else "info", **more}
        name, session = f"server{self._servers}", self.session
        values: dict[str, Any] = {"name": name, "model": session.model, **own}
        return Server(folder=self.scratch, cores=self.pinning.server, settings=settings, **values)

    def client(self, server: Server | str, name: str = "client", **more: Any) -> Client:
        """Connect to a server or an address. The connection is closed when the case ends."""
        address = server if isinstance(server, str) else server.address
        client = Client(address, self.history, name, **more)
        self._stack.push_async_callback(client.close)
        return client

    async def crashing_client(self, server: Server, texts: list[str], streams: int) -> CrashingClient:
        """Start a client process whose streams have started, to be killed."""
        cores = self.pinning.clients
        found = await asyncio.to_thread(CrashingClient, server.address, texts, streams, self.scratch, cores)
        self._stack.callback(found.kill)
        return found

    def switch(self, name: str) -> Switch:
        """Return a switch of a failpoint, off at first."""
        return Switch(self.scratch / name)

    async def check_outcomes(self, checks: Checks, server: Server) -> tuple[list[Outcome], Scrape]:
        """Apply the checks of the requests of an idle server, and return these requests and its metrics."""
        scrape = await self.idle_scrape(server)
        outcomes = list(self.history)
        golden = await self.session.golden(translated(outcomes))
        checks.clean("every request ended once", checker.ended_once(outcomes))
        checks.clean("translations as alone", checker.same_as_alone(outcomes, golden))
        checks.clean("gauges back to 0", checker.gauges_at_zero(scrape))
        return outcomes, scrape

    async def check_run(self, checks: Checks, server: Server, *, calls_logged: bool = True) -> None:
        """Apply the checks that hold for every run, while the server still runs and is idle.

        calls_logged: whether the server logs its calls, so that they can be compared with the clients' one by one
        """
        outcomes, scrape = await self.check_outcomes(checks, server)
        checks.clean("as many durations as calls", checker.durations_match_calls(scrape))
        checks.clean("no unhandled error", server.tracebacks())
        if calls_logged:
            calls = server.calls()
            checks.clean("client and server agree", checker.server_agrees(outcomes, calls))
            checks.clean("counters equal the log", checker.counters_equal_log(calls, scrape))
            checks.clean("text counters equal the results", checker.text_counters_agree(outcomes, calls, scrape))

    async def idle_scrape(self, server: Server, seconds: float = 5.0) -> Scrape:
        """Return the metrics as soon as nothing is queued or running, or after these seconds."""
        end = time.monotonic() + seconds
        while checker.gauges_at_zero(scrape := await server.scrape()) and time.monotonic() < end:  # noqa: ASYNC110
            await asyncio.sleep(CHECK_PAUSE)
        return scrape

    async def capacity(self, send: Send, texts: list[str], clients: int) -> float:
        """Return the texts a second of clients that wait for their answers, without the first second."""
        seconds, start = self.choose(5.0, 2.0), time.monotonic()
        outcomes = await closed_loop(send, texts, clients, seconds=seconds + 1.0)
        ended = [outcome.ended - start for outcome in outcomes if outcome.good and outcome.ended]
        return sum(1.0 <= moment <= 1.0 + seconds for moment in ended) / seconds

    async def wait_until(
        self, what: str, condition: Callable[[], Awaitable[bool] | bool], seconds: float = 10.0
    ) -> float:
        """Wait for a condition, and return the monotonic time. Raise LingonError after these seconds."""
        end = time.monotonic() + seconds
        while True:
            value = condition()
            if value if isinstance(value, bool) else await value:
                return time.monotonic()
            if time.monotonic() > end:
                raise LingonError(f"not true within {seconds:g} s: {what}")
            await asyncio.sleep(CHECK_PAUSE)

    def new_history(self) -> History:
        """Start a new history for the next server, because each is compared with the log of one server."""
        self.history = History()
        self._chapters.append(self.history)
        return self.history

    def save_histories(self) -> None:
        """Write all histories into the folder of the case."""
        for number, history in enumerate(self._chapters, start=1):
            history.save(self.scratch / f"history{number}.jsonl")

    def all_outcomes(self) -> list[Outcome]:
        """Return the requests of all histories."""
        return [outcome for history in self._chapters for outcome in history]
