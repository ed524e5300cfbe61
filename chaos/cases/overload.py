"""Cases 11 to 13 and 20: more than can be done, and who has to give way.

Capacity is kept at some 25 texts a second by a step that takes 5 ms longer and a batch of 2 rows: what is measured is
the server's way with a load, not how fast this process can send or that one refuse (0.7 ms of a core for each).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

from chaos import checker
from chaos.case import case
from chaos.cases.engine_failure import measured
from chaos.checks import Findings
from chaos.clients import Client, closed_loop, open_loop
from chaos.context import World
from chaos.history import DEADLINE_EXCEEDED, NOT_BEGUN, OK, RESOURCE_EXHAUSTED, Fate, p99
from chaos.keys import keys_file
from chaos.server import LOOK, Server
from lingon.bench.statistics import percentile

SLOW: dict[str, Any] = {"failpoints": "step=sleep:0.005", "max_rows": 2}
QUEUE = 16  # texts that wait: about what is done within the objective
OBJECTIVE = 1000.0  # milliseconds
LOADS = (1, 2, 5, 10)  # times the capacity


def refused(fate: Fate) -> bool:
    """Whether the server took it not at all."""
    return fate.code == RESOURCE_EXHAUSTED or fate.reason in NOT_BEGUN


@case(
    11,
    "goodput at 1x 2x 5x 10x",
    "goodput(5x) >= 90 % of the peak, accepted p99 <= 1.2 s, refusals p99 <= 50 ms, RSS +50 MB",
)
async def goodput(world: World, found: Findings) -> None:
    """Open loops of Poisson arrivals, 60 s each; a request has 2 s, and 1 s is the objective."""
    async with world.server(**SLOW, max_queue_texts=QUEUE) as server:
        client, seconds = world.client(server), world.choose(60.0, 6.0)

        async def send(text: str, due: float | None = None) -> Fate:
            return await client.translate(text, deadline=2 * OBJECTIVE / 1000, due=due)

        capacity = await measured(world, send, world.texts, 16)
        before, good = server.rss(), dict[int, float]()
        for times in LOADS:
            fates = await open_loop(send, world.texts, times * capacity, seconds, seed=times)
            good[times] = sum(fate.good and fate.milliseconds <= OBJECTIVE for fate in fates) / seconds
            taken, turned_away = [f for f in fates if not refused(f)], [f for f in fates if refused(f)]
            found.at_most(f"accepted p99 at {times}x", p99(taken), 1.2 * OBJECTIVE, "ms", timing=True)
            if turned_away:
                slowest = percentile([fate.milliseconds for fate in turned_away], 99)
                found.at_most(f"refusals p99 at {times}x", slowest, 50.0, "ms", timing=True)
            world.session.say(f"  {times}x: {dict(Counter(fate.code for fate in fates))}")
        found.at_most("capacity", capacity, 100.0, "/s")
        peak = max(good.values())
        for times in LOADS:
            what = f"goodput at {times}x ({good[times]:.1f}/s), of the peak"
            found.at_least(what, 100 * good[times] / peak, 90.0 if times >= 5 else 0.0, "%", timing=True)
        found.at_most("RSS growth", server.rss() - before, 50.0, "MB")
        found.clean("codes", checker.only(world.history, {OK, RESOURCE_EXHAUSTED, DEADLINE_EXCEEDED}))
        await world.judge(found, server, told=False)


@case(12, "recovery", "after 10x for 30 s, p99 at 0.5x is back to its baseline + 20 % within 5 s")
async def recovery(world: World, found: Findings) -> None:
    """Half the capacity, ten times the capacity, half the capacity again."""
    async with world.server(**SLOW, max_queue_texts=QUEUE) as server:
        client, seconds = world.client(server), world.choose(20.0, 6.0)

        async def send(text: str, due: float | None = None) -> Fate:
            return await client.translate(text, deadline=5.0, due=due)

        capacity = await measured(world, send, world.texts, 16)
        usual = p99(await open_loop(send, world.texts, capacity / 2, seconds, seed=1))
        flood = await open_loop(send, world.texts, 10 * capacity, world.choose(30.0, 5.0), seed=2)
        over = time.monotonic()
        after = await open_loop(send, world.texts, capacity / 2, 5.0 + seconds, seed=1)
        later = [fate for fate in after if fate.due > over + 5.0]
        found.at_least("refused in the flood", sum(map(refused, flood)), len(flood) / 2)
        found.at_most("p99 from 5 s after it, of the baseline", p99(later) / usual, 1.2, "times", timing=True)
        found.equal("errors from 5 s after it", sum(not fate.good for fate in later), 0)
        await world.judge(found, server, told=False)


@case(
    13,
    "token-weighted admission",
    "tiny p99 <= 2 x alone beside 4 giants; waiting source tokens never beyond the limit",
)
async def giants_and_tiny(world: World, found: Findings) -> None:
    """Four clients send 200 texts at a time, for three more there is no room; beside them come 200 short ones.

    Steps take 20 ms longer, so that a full batch slows them little: what is measured is whose turn it is. All texts
    are of the one memory bucket, as every further one would be a step of its own.
    """
    settings: dict[str, Any] = {"failpoints": "step=sleep:0.02", "max_queue_texts": 4096, "max_queue_tokens": 24_000}
    tiny_texts = [text for text in world.texts if len(text) <= 25][:50]
    async with world.server(**settings, calls=True) as server:
        tiny, rate, seconds = world.client(server, "tiny"), 20.0, world.choose(10.0, 5.0)
        alone = await open_loop(tiny.translate, tiny_texts, rate, seconds, seed=13)
        giant, texts = world.client(server, "giant"), world.session.long_texts(200, 24, 31)
        stop = asyncio.Event()

        async def send(_: str) -> Fate:
            return await giant.translate(*texts)

        loop = asyncio.create_task(closed_loop(send, [""], 4, until=lambda _: stop.is_set(), seconds=120.0))
        watch = asyncio.create_task(_most_tokens(server, stop))
        await world.until("giants are done and wait", lambda: _in_full_swing(server), seconds=60.0)
        more = asyncio.create_task(closed_loop(send, [""], 3, until=lambda fate: not fate.good, seconds=seconds))
        beside = await open_loop(tiny.translate, tiny_texts, rate, seconds, seed=13)
        stop.set()
        giants, (most, limit) = await loop, await watch
        found.at_least("tiny requests", len(beside), world.choose(150, 40))
        found.equal("tiny requests that failed", sum(not fate.good for fate in [*alone, *beside]), 0)
        found.at_most("tiny p99 beside giants, of alone", p99(beside) / p99(alone), 2.0, "times", timing=True)
        found.at_most("most source tokens waiting", most, limit)
        found.at_least("most source tokens waiting, so that the limit matters", most, 10_000)
        found.at_least("further giants refused", sum(map(refused, await more)), 1)
        found.at_least("giants done", sum(fate.good for fate in giants), 4)
        await world.judge(found, server)


async def _in_full_swing(server: Server) -> bool:
    """Whether so many texts were done that those that run no longer began together."""
    scrape = await server.scrape()
    return scrape.sum("lingon_sentences_total", outcome="OK") > 500 and scrape.sum("lingon_queue_tokens") > 5000


async def _most_tokens(server: Server, stop: asyncio.Event) -> tuple[float, float]:
    """The most source tokens seen waiting until stopped, and the limit that the server tells."""
    most, limit = 0.0, 0.0
    while not stop.is_set():
        scrape = await server.scrape()
        most, limit = max(most, scrape.sum("lingon_queue_tokens")), scrape.sum("lingon_queue_tokens_limit")
        await asyncio.sleep(2 * LOOK)
    return most, limit


@case(20, "fair share", "B's p99 beside a flood of A <= 1.5 x its p99 when A keeps to its fair share")
async def fair_share(world: World, found: Findings) -> None:
    """Two clients, told apart by their keys: A half of what can be done, then five times all of it; B a tenth."""
    keys = keys_file(world.scratch / "keys.toml", "a", "b")
    async with world.server(**SLOW, max_queue_texts=QUEUE, api_keys=world.scratch / "keys.toml") as server:
        flooding, modest = (world.client(server, name, key=key) for name, key in keys.items())
        capacity = await measured(world, flooding.translate, world.texts, 16)
        seconds = world.choose(40.0, 8.0)
        _, usual = await _both(world, flooding, modest, 0.5 * capacity, 0.1 * capacity, seconds)
        flood, beside = await _both(world, flooding, modest, 5 * capacity, 0.1 * capacity, seconds)
        found.at_least("refused of A", sum(map(refused, flood)), len(flood) / 2)
        found.at_least("requests of B", len(beside), world.choose(60, 8))
        found.equal("errors of B", Counter(f.code for f in beside if not f.good), Counter())
        found.at_most("B's p99 beside the flood, of its usual", p99(beside) / p99(usual), 1.5, "times", timing=True)
        await world.judge(found, server, told=False)


async def _both(
    world: World, one: Client, other: Client, rate: float, other_rate: float, seconds: float
) -> tuple[list[Fate], list[Fate]]:
    first, second = await asyncio.gather(
        open_loop(one.translate, world.texts, rate, seconds, seed=20),
        open_loop(other.translate, world.texts, other_rate, seconds, seed=21),
    )
    return first, second
