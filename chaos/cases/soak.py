"""Case 36: mixed traffic for long; nothing grows, nothing is lost. The same with a planted leak has to be found out."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from chaos import checker
from chaos.case import case
from chaos.cases.model_reload import two_versions
from chaos.checks import Findings
from chaos.clients import Client, open_loop
from chaos.context import World
from chaos.history import CANCELLED, DEADLINE_EXCEEDED, KILLED, OK, RESOURCE_EXHAUSTED, Fate, p99
from chaos.server import Server, free_port
from lingon.client.admin import ModelsClient

RATE = 40.0  # requests a second, of all kinds
EVERY = 2.0  # seconds between two samples
CRASH_EVERY, CRASHING = 20.0, 20  # seconds, streams
LEAK = 1000  # bytes a text, of the positive control
GROWN = LEAK / 2  # bytes a text: RSS moves by some megabytes in steps, whatever happens
RELOAD_EVERY = 300.0  # seconds
FLAT = 5.0  # percent
ROOM = 50.0  # megabytes that RSS may move by, if that is more: a reload has both models, and leaves gaps behind
WINDOW = 60.0  # seconds: who shares the machine spoils the p99 of some windows, the server that of most
OVERSIZE, INVALID = 5_000_000, "INVALID_ARGUMENT"


@dataclass(slots=True)
class Samples:
    """What was seen of a server from outside, sample by sample."""

    moments: list[float] = field(default_factory=list)
    rss: list[float] = field(default_factory=list)
    fds: list[int] = field(default_factory=list)
    threads: list[int] = field(default_factory=list)

    def take(self, server: Server) -> None:
        """One more."""
        self.moments.append(time.monotonic())
        self.rss.append(server.rss())
        self.fds.append(server.fds())
        self.threads.append(server.threads())

    def save(self, path: Path) -> None:
        """Write them down, to be looked at while it goes on."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    def later_half(self, values: list[float] | list[int]) -> list[float]:
        """Those after warming up."""
        return [float(value) for value in values[len(values) // 2 :]]


@case(
    36,
    "soak",
    "RSS flat within 5 % or 50 MB, fds and threads within 5 %, p99 of the last third +10 %, checker clean; "
    "with a leak of 1 KB a text it fails",
    alone=True,
)
async def soak(world: World, found: Findings) -> None:
    """Normal traffic, deadlines, cancels, crashing clients, oversize messages, reloads; then the positive control."""
    minutes, admin = world.session.soak_minutes, free_port()
    paths = two_versions(world.session.model, world.scratch / "models")
    async with world.server(calls=False, model=paths[0].parent, admin_port=admin) as server:
        reloads, swaps = asyncio.create_task(reloaded(admin, paths)), int(60.0 * minutes // RELOAD_EVERY)
        samples = await mixed(world, server, 60.0 * minutes)
        reloads.cancel()
        with suppress(asyncio.CancelledError):
            await reloads  # raises what ended it before
        found.at_least(
            "reloads", (await server.scrape()).sum("lingon_model_changes_total", outcome="loaded"), swaps - 1
        )
        flat(found, samples, list(world.history))
        steady(found, list(world.history))
        found.clean("every kind of request ended as it has to", unexpected(list(world.history)))
        await world.judge(found, server, told=False)
    if minutes < 30:
        found.not_run(f"30 minutes, only {minutes:g}")
    if not world.session.control_minutes:
        found.not_run("the positive control")
        return
    world.begin()
    leaking = Findings()
    async with world.server(failpoints=f"encode=leak:{LEAK}") as server:
        samples = await mixed(world, server, 60.0 * world.session.control_minutes)
        flat(leaking, samples, list(world.history))
    seen = [check for check in leaking.failed if check.what.startswith("RSS")]
    shown = "; ".join(f"{check.what}: {check.value}" for check in leaking.checks if check.what.startswith("RSS"))
    found.equal(f"with a leak of {LEAK} bytes a text found out ({shown})", bool(seen), True)


async def mixed(world: World, server: Server, seconds: float) -> Samples:
    """The traffic of a bad day; samples of the server meanwhile."""
    samples, end = Samples(), time.monotonic() + seconds
    clients = [world.client(server, f"soak{number}") for number in range(4)]
    mix, draw = _Mix(world, clients), random.Random(36)

    async def send(text: str, due: float | None = None) -> Fate:
        return await draw.choices(mix.ways, mix.shares)[0](text, due)

    texts = world.session.long_texts(CRASHING, 60)

    async def crash() -> None:
        while time.monotonic() + CRASH_EVERY < end:
            victim = await world.crashing(server, texts, CRASHING)
            world.history.extend(victim.kill())
            await asyncio.sleep(CRASH_EVERY)

    crashes = asyncio.create_task(crash())
    load = asyncio.create_task(open_loop(send, world.texts, RATE, seconds, seed=36))
    while not load.done():
        samples.take(server)
        await asyncio.wait([load], timeout=EVERY)
        samples.save(world.scratch / f"{server.name}-samples.json")
    await load
    await crashes
    return samples


async def reloaded(admin: int, paths: Sequence[Path]) -> None:
    """Swap between versions of the model, again and again until cancelled."""
    with ModelsClient(f"127.0.0.1:{admin}") as models:
        for path in itertools.cycle(paths):
            await asyncio.sleep(RELOAD_EVERY)
            await asyncio.to_thread(models.swap, str(path.resolve()))


class _Mix:
    """The kinds of requests and their shares."""

    def __init__(self, world: World, clients: list[Client]) -> None:
        self._draw, self._clients = random.Random(37), clients
        self._long = world.session.long_texts(50, 70)
        self._oversize = "x" * OVERSIZE
        self.ways: list[Callable[[str, float | None], Awaitable[Fate]]] = [
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

    async def _normal(self, text: str, due: float | None) -> Fate:
        return await self._client.translate(text, due=due)

    async def _several(self, text: str, due: float | None) -> Fate:
        return await self._client.translate(text, *self._draw.sample(self._long, 3), beam_size=4, due=due)

    async def _streamed(self, text: str, due: float | None) -> Fate:
        return await self._client.stream(text, self._draw.choice(self._long))

    async def _hasty(self, text: str, due: float | None) -> Fate:
        return await self._client.translate(
            self._draw.choice(self._long), deadline=self._draw.uniform(0.005, 0.1), due=due
        )

    async def _cancelled(self, text: str, due: float | None) -> Fate:
        after = self._draw.uniform(0.0, 0.1)
        return await self._client.translate(self._draw.choice(self._long), cancel_after=after, due=due)

    async def _too_large(self, text: str, due: float | None) -> Fate:
        return await self._client.translate(self._oversize, due=due)

    async def _empty(self, text: str, due: float | None) -> Fate:
        return await self._client.translate(text, "", due=due)


def unexpected(fates: Sequence[Fate]) -> list[str]:
    """Requests of the mix, and texts of them, that ended as none of their kind may."""
    found = []
    for fate in fates:
        if fate.code not in _expected(fate):
            found.append(f"{fate.id} ended with {fate.code} {fate.reason}")
        for result in fate.results:
            if result.code != (OK if fate.texts[result.index] else INVALID):
                found.append(f"{fate.id} text {result.index}: {result.code}")
    return found


def _expected(fate: Fate) -> set[str]:
    """How a request of the mix may end."""
    if fate.code == KILLED:
        return {KILLED}
    if fate.cancel_after is not None:
        return {OK, CANCELLED}
    if fate.deadline is not None:
        return {OK, DEADLINE_EXCEEDED}
    return {RESOURCE_EXHAUSTED} if len(fate.texts[0]) >= OVERSIZE else {OK}


def flat(found: Findings, samples: Samples, fates: list[Fate]) -> None:
    """Whether what a server holds stays where it is, once it is warm."""
    rss = samples.later_half(samples.rss)
    mean = sum(rss) / len(rss)
    found.at_most("RSS, largest above mean", checker.spread(rss) * mean, max(FLAT / 100 * mean, ROOM), "MB")
    since = samples.moments[len(samples.moments) // 2]
    texts = max(sum(len(fate.texts) for fate in fates if fate.sent >= since), 1)
    thinned = rss[:: max(len(rss) // 300, 1)]
    found.at_most("RSS growth", 1e6 * checker.growth(thinned) / texts, GROWN, "bytes a text")
    for name, values in (("fds", samples.fds), ("threads", samples.threads)):
        half = samples.later_half(values)
        third = max(len(half) // 3, 1)
        grown = sum(half[-third:]) / sum(half[:third]) - 1
        found.at_most(f"{name}, growth over the second half", 100 * grown, FLAT, "%")


def steady(found: Findings, fates: list[Fate]) -> None:
    """Whether ordinary requests take at the end what they took at the beginning."""
    usual = [fate for fate in fates if fate.method == "Translate" and len(fate.texts) == 1 and fate.beam_size == 1]
    usual = [fate for fate in usual if _expected(fate) == {OK}]
    usual.sort(key=lambda fate: fate.sent)
    third = len(usual) // 3
    first, last = (ordinary(part) for part in (usual[:third], usual[-third:]))
    found.at_most("p99 of the last third, of the first", last / first, 1.1, "times")


def ordinary(fates: Sequence[Fate]) -> float:
    """The p99 in milliseconds of the middle one of their windows of WINDOW seconds; who fails has taken for ever."""
    windows = itertools.groupby(fates, key=lambda fate: int((fate.sent - fates[0].sent) // WINDOW))
    found = [list(window) for _, window in windows]
    return statistics.median(p99(window) for window in found if len(window) >= len(found[0]) // 2)
