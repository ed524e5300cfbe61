"""Long mixed traffic, in which nothing grows or is lost. A positive control with a leak has to fail."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import os
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lingon.client.client import ModelsClient
from tests.reliability import checker
from tests.reliability.case import case
from tests.reliability.checks import Checks
from tests.reliability.clients import Client, open_loop
from tests.reliability.context import CaseContext
from tests.reliability.history import (
    CANCELLED,
    DEADLINE_EXCEEDED,
    KILLED,
    OK,
    RESOURCE_EXHAUSTED,
    Outcome,
    TextOutcome,
    p99,
)
from tests.reliability.models import two_versions
from tests.reliability.server import Server
from tests.support.ports import free_port

MINUTES = float(os.environ.get("SOAK_MINUTES", "30"))  # the control takes half as many more
RATE = 40.0  # requests a second, of all kinds
SAMPLE_PAUSE = 2.0  # seconds between two samples
CRASH_PAUSE, CRASHING = 20.0, 20  # seconds between two crashes, streams of a crashing client
LEAK = 1000  # bytes that the positive control leaks for each text
MAX_GROWTH = LEAK / 2  # bytes a text: RSS always moves by some megabytes, in steps
RELOAD_PAUSE = 300.0  # seconds between two reloads
FLAT = 5.0  # percent by which RSS, file descriptors and threads may vary
FLAT_RSS = 50.0  # megabytes that RSS may vary by, if more than FLAT: during a reload both models are in memory
WINDOW = 60.0  # seconds, because another process spoils the p99 of some windows, and a slow server of most
OVERSIZE = 5_000_000  # characters of a text above the size limit of a request
INVALID = "INVALID_ARGUMENT"


@dataclass(slots=True)
class Samples:
    """Memory, file descriptors and threads of a server, sample by sample."""

    moments: list[float] = field(default_factory=list)
    rss: list[float] = field(default_factory=list)
    fds: list[int] = field(default_factory=list)
    threads: list[int] = field(default_factory=list)

    def take(self, server: Server) -> None:
        """Add a sample."""
        self.moments.append(time.monotonic())
        self.rss.append(server.rss())
        self.fds.append(server.fds())
        self.threads.append(server.threads())

    def save(self, path: Path) -> None:
        """Write the samples to a file, which a person can read during the run."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    def later_half(self, values: list[float] | list[int]) -> list[float]:
        """Return the second half of the values, after the server has warmed up."""
        return [float(value) for value in values[len(values) // 2 :]]


@case(
    "RSS within 5 % or 50 MB of its mean; file descriptors and threads within 5 %; p99 of the last third <= 1.1 x; "
    "no violation; with a leak of 1 KB a text the case fails",
    figures=(
        "RSS, largest above mean",
        "RSS growth",
        "file descriptors, growth over the second half",
        "threads, growth over the second half",
        "p99 of the last third relative to the first",
        "every request ended once",
        "with a leak of",
    ),
    mark="soak",
)
async def test_soak(context: CaseContext, checks: Checks) -> None:
    """Normal requests, deadlines, cancels, crashes of clients, large messages, reloads, then the positive control."""
    minutes, admin = MINUTES, free_port()
    paths = two_versions(context.session.model, context.scratch / "models")
    async with context.server(calls=False, model=paths[0].parent, admin_port=admin) as server:
        reloads, swaps = asyncio.create_task(reloaded(admin, paths)), int(60.0 * minutes // RELOAD_PAUSE)
        samples = await mixed(context, server, 60.0 * minutes)
        reloads.cancel()
        with suppress(asyncio.CancelledError):
            await reloads  # raises the error that ended the reloads, if there was one
        checks.at_least(
            "reloads", (await server.scrape()).sum("lingon_model_changes_total", outcome="loaded"), swaps - 1
        )
        flat(checks, samples, list(context.history))
        steady(checks, list(context.history))
        checks.clean("expected codes for every kind of request", unexpected(list(context.history)))
        await context.check_run(checks, server, calls_logged=False)
    if minutes < 30:
        checks.not_run(f"30 minutes, only {minutes:g}")
    context.new_history()
    leaking = Checks()
    async with context.server(failpoints=f"encode=leak:{LEAK}") as server:
        samples = await mixed(context, server, 60.0 * minutes / 2)
        flat(leaking, samples, list(context.history))
    failed = [check for check in leaking.failed if check.what.startswith("RSS")]
    shown = "; ".join(f"{check.what}: {check.value}" for check in leaking.done if check.what.startswith("RSS"))
    checks.equal(f"with a leak of {LEAK} bytes a text the case fails ({shown})", bool(failed), True)


async def mixed(context: CaseContext, server: Server, seconds: float) -> Samples:
    """Send the mixed traffic, and return samples of the server."""
    samples, end = Samples(), time.monotonic() + seconds
    clients = [context.client(server, f"soak{number}") for number in range(4)]
    mix, draw = _Mix(context, clients), random.Random(36)

    async def send(text: str, due: float | None = None) -> Outcome:
        return await draw.choices(mix.ways, mix.shares)[0](text, due)

    texts = context.session.long_texts(CRASHING, 60)

    async def crash() -> None:
        while time.monotonic() + CRASH_PAUSE < end:
            crashing = await context.crashing_client(server, texts, CRASHING)
            context.history.extend(crashing.kill())
            await asyncio.sleep(CRASH_PAUSE)

    crashes = asyncio.create_task(crash())
    load = asyncio.create_task(open_loop(send, context.texts, RATE, seconds, seed=36))
    while not load.done():
        samples.take(server)
        await asyncio.wait([load], timeout=SAMPLE_PAUSE)
        samples.save(context.scratch / f"{server.name}-samples.json")
    await load
    await crashes
    return samples


async def reloaded(admin: int, paths: Sequence[Path]) -> None:
    """Swap between the versions of the model until cancelled."""
    with ModelsClient(f"127.0.0.1:{admin}") as models:
        for path in itertools.cycle(paths):
            await asyncio.sleep(RELOAD_PAUSE)
            await asyncio.to_thread(models.swap, str(path.resolve()))


class _Mix:
    """The kinds of requests and their shares."""

    def __init__(self, context: CaseContext, clients: list[Client]) -> None:
        self._draw, self._clients = random.Random(37), clients
        self._long = context.session.long_texts(50, 70)
        self._oversize = "x" * OVERSIZE
        self.ways: list[Callable[[str, float | None], Awaitable[Outcome]]] = [
            self._normal,
            self._several,
            self._streamed,
            self._hasty,
            self._cancelled,
            self._too_large,
            self._empty,
        ]
        self.shares = [50, 10, 10, 10, 15, 1, 4]

    @property
    def _client(self) -> Client:
        return self._draw.choice(self._clients)

    async def _normal(self, text: str, due: float | None) -> Outcome:
        return await self._client.translate(text, due=due)

    async def _several(self, text: str, due: float | None) -> Outcome:
        return await self._client.translate(text, *self._draw.sample(self._long, 3), beam_size=4, due=due)

    async def _streamed(self, text: str, due: float | None) -> Outcome:
        return await self._client.stream(text, self._draw.choice(self._long))

    async def _hasty(self, text: str, due: float | None) -> Outcome:
        return await self._client.translate(
            self._draw.choice(self._long), deadline=self._draw.uniform(0.005, 0.1), due=due
        )

    async def _cancelled(self, text: str, due: float | None) -> Outcome:
        after = self._draw.uniform(0.0, 0.1)
        return await self._client.translate(self._draw.choice(self._long), cancel_after=after, due=due)

    async def _too_large(self, text: str, due: float | None) -> Outcome:
        return await self._client.translate(self._oversize, due=due)

    async def _empty(self, text: str, due: float | None) -> Outcome:
        return await self._client.translate(text, "", due=due)


def unexpected(outcomes: Sequence[Outcome]) -> list[str]:
    """Return requests of the mix, and their texts, that ended with a code that their kind does not allow."""
    found = []
    for outcome in outcomes:
        if outcome.code not in _expected(outcome):
            found.append(f"{outcome.id} ended with {outcome.code} {outcome.reason}")
        for result in outcome.results:
            if result.code != (OK if outcome.texts[result.index] else INVALID):
                found.append(f"{outcome.id} text {result.index}: {result.code}")
    return found


def _expected(outcome: Outcome) -> set[str]:
    """Return the codes with which a request of the mix may end."""
    if outcome.code == KILLED:
        return {KILLED}
    if outcome.cancel_after is not None:
        return {OK, CANCELLED}
    if outcome.deadline is not None:
        return {OK, DEADLINE_EXCEEDED}
    return {RESOURCE_EXHAUSTED} if len(outcome.texts[0]) >= OVERSIZE else {OK}


def flat(checks: Checks, samples: Samples, outcomes: list[Outcome]) -> None:
    """Check that the memory, file descriptors and threads of a warm server do not grow."""
    rss = samples.later_half(samples.rss)
    mean = sum(rss) / len(rss)
    checks.at_most("RSS, largest above mean", checker.spread(rss) * mean, max(FLAT / 100 * mean, FLAT_RSS), "MB")
    since = samples.moments[len(samples.moments) // 2]
    texts = max(sum(len(outcome.texts) for outcome in outcomes if outcome.sent >= since), 1)
    thinned = rss[:: max(len(rss) // 300, 1)]
    checks.at_most("RSS growth", 1e6 * checker.growth(thinned) / texts, MAX_GROWTH, "bytes a text")
    for name, values in (("file descriptors", samples.fds), ("threads", samples.threads)):
        half = samples.later_half(values)
        third = max(len(half) // 3, 1)
        grown = sum(half[-third:]) / sum(half[:third]) - 1
        checks.at_most(f"{name}, growth over the second half", 100 * grown, FLAT, "%")


def steady(checks: Checks, outcomes: list[Outcome]) -> None:
    """Check that normal requests do not become slower."""
    usual = [
        outcome
        for outcome in outcomes
        if outcome.method == "Translate" and len(outcome.texts) == 1 and outcome.beam_size == 1
    ]
    usual = [outcome for outcome in usual if _expected(outcome) == {OK}]
    usual.sort(key=lambda outcome: outcome.sent)
    third = len(usual) // 3
    first, last = (typical_p99(part) for part in (usual[:third], usual[-third:]))
    checks.at_most("p99 of the last third relative to the first", last / first, 1.1, "x")


def typical_p99(outcomes: Sequence[Outcome]) -> float:
    """Return the median p99 of windows of WINDOW seconds, in milliseconds. A failed request counts as infinite."""
    windows = itertools.groupby(outcomes, key=lambda outcome: int((outcome.sent - outcomes[0].sent) // WINDOW))
    found = [list(window) for _, window in windows]
    return statistics.median(p99(window) for window in found if len(window) >= len(found[0]) // 2)


def outcome(
    code: str = "OK", *, texts: tuple[str, ...] = ("one",), sent: float = 1.0, seconds: float = 0.1, **more: Any
) -> Outcome:
    codes = [TextOutcome(index, "OK" if text else "INVALID_ARGUMENT") for index, text in enumerate(texts)]
    results = codes if code == "OK" else []
    values = {"id": "a-1", "method": "Translate", "texts": texts, "due": sent, "sent": sent, "ended": sent + seconds}
    return Outcome(**{**values, "code": code, "results": results, **more})


@pytest.mark.parametrize(
    ("asked", "right", "wrong"),
    [
        ({}, ["OK"], ["UNAVAILABLE", "INTERNAL", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "CANCELLED"]),
        ({"deadline": 0.1}, ["OK", "DEADLINE_EXCEEDED"], ["CANCELLED", "UNAVAILABLE"]),
        ({"cancel_after": 0.1}, ["OK", "CANCELLED"], ["DEADLINE_EXCEEDED", "INTERNAL"]),
        ({"texts": ("x" * OVERSIZE,)}, ["RESOURCE_EXHAUSTED"], ["OK", "INTERNAL"]),
        ({"texts": ("one", "")}, ["OK"], ["INVALID_ARGUMENT"]),
    ],
)
def test_each_kind_of_request_may_end_with_its_own_codes(
    asked: dict[str, Any], right: list[str], wrong: list[str]
) -> None:
    assert unexpected([outcome(code, **asked) for code in [*right, "KILLED"]]) == []
    assert len(unexpected([outcome(code, **asked) for code in wrong])) == len(wrong)


def test_a_text_that_failed_within_an_answer_is_found() -> None:
    results = [TextOutcome(0, "INTERNAL"), TextOutcome(1, "OK", "zwei")]
    assert unexpected([outcome(texts=("one", "two"), results=results)]) == ["a-1 text 0: INTERNAL"]


def test_one_slow_minute_does_not_count_and_many_do() -> None:
    def minutes(*seconds: float) -> list[Outcome]:
        return [outcome(sent=60.0 * at + step, seconds=each) for at, each in enumerate(seconds) for step in range(20)]

    assert typical_p99(minutes(0.1, 9.0, 0.1)) == pytest.approx(100)
    assert typical_p99(minutes(0.1, 9.0, 9.0)) == pytest.approx(9000)
    failing = [outcome("UNAVAILABLE", sent=60.0 * at + step) for at in (1, 2) for step in range(20)]
    assert typical_p99([*minutes(0.1), *failing]) == math.inf
