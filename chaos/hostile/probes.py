"""What is observed of a server from outside while it is attacked: its silence, its CPU time and its memory."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from chaos.callers.clients import Client
from chaos.server import Server

PAUSE = 0.01  # seconds between an answer of a probe and its next question
QUIET = 0.25  # seconds without an answer of health: 50 ms of the event loop, and the answers' own ways on one core
PATIENCE = 120.0  # seconds that a probe waits for one answer


@dataclass(slots=True)
class Silence:
    """The answers to one kind of probe.

    answers: by what was answered
    longest: seconds between two good answers, or between one and the end of the observation
    """

    good: str
    answers: Counter[str] = field(default_factory=Counter)
    longest: float = 0.0
    _last: float = 0.0

    def begin(self) -> None:
        """Start the observation."""
        self._last = time.monotonic()

    def heard(self, answer: str) -> None:
        """Note an answer."""
        self.answers[answer] += 1
        if answer == self.good:
            self.end()

    def end(self) -> None:
        """Note the silence until now."""
        now = time.monotonic()
        self.longest, self._last = max(self.longest, now - self._last), now


@dataclass(slots=True)
class Observed:
    """What an attack did to a server.

    cpu: seconds of CPU time
    peak, kept: megabytes of resident memory above those before it: the most at any time, and those at the end
    """

    health: Silence = field(default_factory=lambda: Silence("SERVING"))
    http: Silence = field(default_factory=lambda: Silence("200"))
    cpu: float = float("nan")
    peak: float = float("nan")
    kept: float = float("nan")


@asynccontextmanager
async def observed(server: Server, client: Client) -> AsyncIterator[Observed]:
    """Observe a server while the block runs; client: for the probes of its gRPC health.

    A server that has ended leaves the CPU time and the memory unknown (nan).
    """
    found = Observed()
    before, memory = server.cpu_seconds(), server.rss()
    server.forget_peak()
    probes = [
        asyncio.create_task(_probe(found.health, lambda: client.health(seconds=PATIENCE))),
        asyncio.create_task(_probe(found.http, lambda: _status(server))),
    ]
    await asyncio.sleep(5 * PAUSE)  # so that the probes have had their first answers
    try:
        yield found
    finally:
        await asyncio.sleep(5 * PAUSE)
        for silence, probe in zip((found.health, found.http), probes, strict=True):
            probe.cancel()
            silence.end()
        await asyncio.gather(*probes, return_exceptions=True)
        if server.exit_code is None:
            found.cpu = server.cpu_seconds() - before
            found.peak, found.kept = server.peak_rss() - memory, server.rss() - memory


async def _probe(silence: Silence, ask: Callable[[], Awaitable[str]]) -> None:
    silence.begin()
    while True:
        silence.heard(await ask())
        await asyncio.sleep(PAUSE)


async def _status(server: Server) -> str:
    try:
        return str((await server.get("/healthz", PATIENCE))[0])
    except OSError as error:
        return type(error).__name__
