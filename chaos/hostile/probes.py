"""What is observed of a server from outside while it is attacked: its silence, its CPU time and its memory."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from chaos.callers.clients import Client
from chaos.server import Server

PROBE_PAUSE = 0.01  # seconds between an answer of a probe and its next question
QUIET = 0.25  # seconds without an answer of health: 50 ms of the event loop, and the answers' own ways on one core
PROBE_PATIENCE = 120.0  # seconds that a probe waits for one answer
SLOWER = 3.0  # times its p99 alone is the most that a polite caller's p99 may become
ENOUGH = 100  # requests of the polite caller beside an attack, unless they take too long
MAY_NEED = re.compile(r"may need ([\d,]+) MiB")


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
        asyncio.create_task(_probe(found.health, lambda: client.health(seconds=PROBE_PATIENCE))),
        asyncio.create_task(_probe(found.http, lambda: _status(server))),
    ]
    await asyncio.sleep(5 * PROBE_PAUSE)  # so that the probes have had their first answers
    try:
        yield found
    finally:
        await asyncio.sleep(5 * PROBE_PAUSE)
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
        await asyncio.sleep(PROBE_PAUSE)


async def _status(server: Server) -> str:
    try:
        return str((await server.get("/healthz", PROBE_PATIENCE))[0])
    except OSError as error:
        return type(error).__name__


def may_need(log: str) -> float:
    """The megabytes that a server says at its start that it may need; nan if it does not say so."""
    found = MAY_NEED.search(log)
    return float(found[1].replace(",", "")) * 2**20 / 1e6 if found else math.nan
