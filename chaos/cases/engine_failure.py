"""Cases 7 to 9: the engine dies, hangs, or takes all of the processor."""

from __future__ import annotations

import asyncio
import math
import time

from chaos import checker
from chaos.case import case
from chaos.checks import Findings
from chaos.clients import Client, closed_loop, open_loop
from chaos.context import World, translated
from chaos.history import DEADLINE_EXCEEDED, OK, TO_WALL, UNAVAILABLE, Fate
from chaos.server import LOOK, Server, wall
from lingon.bench.statistics import percentile


@case(7, "engine death", "in-flight fail <= 1 s with UNAVAILABLE or INTERNAL, restart <= 5 s, next request OK")
async def engine_death(world: World, found: Findings) -> None:
    """Step 11 of the decoder raises, with 64 requests under way; the engine is started anew in place."""
    broken = world.switch("broken")
    async with world.server(failpoints=f"step=raise@11?{broken}", calls=True) as server:
        client, health = world.client(server), list[tuple[float, str]]()
        watch = asyncio.create_task(client.watch(lambda state: health.append((time.monotonic(), state))))
        await closed_loop(client.translate, world.texts[:50], 8, requests=50)
        broken.on()
        flight = await asyncio.gather(*(client.translate(text) for text in world.session.long_texts(64, 60)))
        broken.off()
        after = await client.translate(world.texts[0])
        died = wall(server.events("the engine died")[0]["time"]) - TO_WALL
        await world.until("it was started anew", lambda: bool(server.events("an engine was started anew")))
        await world.until("it is ready", lambda: _ready(server))
        recovered = time.monotonic()
        later = await closed_loop(client.translate, world.texts[:50], 8, requests=50)
        watch.cancel()
        lost = [fate for fate in flight if fate.code != OK]
        found.at_least("requests that died with it", len(lost), 1)
        found.clean("those under way", checker.only(lost, {UNAVAILABLE, "INTERNAL"}))
        last = max((fate.ended or math.inf) - died for fate in lost) if lost else math.nan
        found.at_most("the last of them hears after it died", last, 1.0, "s", timing=True)
        unready = [moment - died for moment, state in health if state == "NOT_SERVING"]
        found.at_most("NOT_SERVING after", min(unready, default=float("nan")), 1.0, "s", timing=True)
        found.at_most("ready again after", recovered - died, 5.0, "s", timing=True)
        found.at_least("OK after the restart", sum(fate.code == OK for fate in [after, *later]), 50)
        found.equal("restarts counted", (await server.scrape()).sum("lingon_engine_restarts_total", cause="death"), 1)
        log = [text for text in server.tracebacks() if "the engine died" not in text]
        found.clean("no error unhandled but the planted one", log)
        await _judge_survivors(world, found, server)


async def _ready(server: Server) -> bool:
    return (await server.get("/healthz"))[0] == 200


async def _judge_survivors(world: World, found: Findings, server: Server) -> None:
    fates, calls = list(world.history), server.calls()
    golden = await world.session.golden(translated(fates))
    found.clean("each of the requests ended once", checker.ended_once(fates))
    found.clean("translations as alone", checker.as_alone(fates, golden))
    found.clean("client and server agree", checker.paired(fates, calls))
    scrape = await world.resting(server)
    found.clean("counters as the log", checker.counted(calls, scrape))
    found.clean("gauges back to 0", checker.at_rest(scrape))


@case(8, "engine hang", "readiness off <= 2 x hang_seconds, exit 1, deadlines honoured +-100 ms, nobody hangs")
async def engine_hang(world: World, found: Findings) -> None:
    """A step never ends, with requests under way that have deadlines before and after the watchdog's."""
    hang, budget = world.switch("hang"), 1.0
    async with world.server(failpoints=f"step=hang?{hang}", hang_seconds=budget, calls=True) as server:
        client = world.client(server)
        await closed_loop(client.translate, world.texts[:50], 8, requests=50)
        hang.on()
        soon = [asyncio.create_task(client.translate(text, deadline=0.4)) for text in world.texts[:10]]
        late = [asyncio.create_task(client.translate(text, deadline=30.0)) for text in world.texts[10:30]]
        began = await world.until("it hangs", lambda: _runs(server))
        off = await world.until("not ready", lambda: _not_ready(server))
        ended = await server.exited(10.0)
        early, others = await asyncio.gather(*soon), await asyncio.gather(*late)
        found.at_most("readiness off after", off - began, 2 * budget, "s", timing=True)
        found.at_most("process ended after", ended - began, 5.0, "s", timing=True)
        found.equal("exit code", server.exit_code, 1)
        found.equal("those with a short deadline", {fate.code for fate in early}, {DEADLINE_EXCEEDED})
        off_by = max(abs(fate.milliseconds - 400.0) for fate in early)
        found.at_most("farthest from its deadline", off_by, 100.0, "ms", timing=True)
        off_by = max(abs(call.milliseconds - 400.0) for call in server.calls_of(early))
        found.at_most("farthest from it in the server's log", off_by, 100.0, "ms", timing=True)
        found.equal("the others", {fate.code for fate in others}, {UNAVAILABLE})
        found.at_most("the others heard after", max((f.ended or 0.0) - began for f in others), 5.0, "s", timing=True)
        found.clean("each of the requests ended once", checker.ended_once(list(world.history)))
        found.clean("client and server agree", checker.paired(list(world.history), server.calls()))


async def _runs(server: Server) -> bool:
    return (await server.scrape()).sum("lingon_running_sentences") > 0


async def _not_ready(server: Server) -> bool:
    """Whether nobody would send a request here any more."""
    try:
        return (await server.get("/healthz", 1.0))[0] != 200
    except OSError:
        return True


@case(9, "event loop stall", "loop lag <= 50 ms, health p99 <= 100 ms at 2x overload with the decoder at 100 % CPU")
async def event_loop_stall(world: World, found: Findings) -> None:
    """Beam 8 over long texts at twice what is done of them; real computing, no failpoint sleeps."""
    texts = world.session.long_texts(50, 50)
    async with world.server(max_queue_texts=64, max_rows=64) as server:
        client, prober = world.client(server), world.client(server, "prober")

        async def send(text: str, due: float | None = None) -> Fate:
            return await client.translate(text, beam_size=8, due=due)

        capacity = await measured(world, send, texts, 16)
        before = await server.scrape()
        probes = asyncio.create_task(_probe(prober, world.choose(20.0, 5.0)))
        load = await open_loop(send, texts, 2 * capacity, world.choose(20.0, 5.0))
        health = await probes
        after = await server.scrape()
        found.at_least("offered, of the capacity", len(load) / world.choose(20.0, 5.0) / capacity, 1.5)
        lag = after.quantile("lingon_event_loop_lag_seconds", 1.0, before)
        found.at_most("largest loop lag", 1000 * lag, 50.0, "ms", timing=True)
        p99 = 1000 * after.quantile("lingon_event_loop_lag_seconds", 0.99, before)
        found.at_most("99th percentile of the lag", p99, 50.0, "ms", timing=True)
        found.at_most("health p99", percentile(health, 99), 100.0, "ms", timing=True)
        found.at_least("health probes", len(health), world.choose(200, 50))
        found.clean("only OK and refusals", checker.only(world.history, {OK, "RESOURCE_EXHAUSTED"}))
        await world.judge(found, server, told=False)


async def measured(world: World, send: object, texts: list[str], clients: int) -> float:
    """Texts a second with so many clients that wait for their answers; the first part warms up and is not counted."""
    seconds = world.choose(5.0, 2.0)
    start = time.monotonic()
    fates = await closed_loop(send, texts, clients, seconds=seconds + 1.0)  # type: ignore[arg-type]
    counted = [
        fate for fate in fates if fate.good and fate.ended and start + 1.0 <= fate.ended <= start + 1.0 + seconds
    ]
    return len(counted) / seconds


async def _probe(client: Client, seconds: float) -> list[float]:
    """Milliseconds of health checks, one after the other; one that does not say SERVING has taken for ever."""
    end, found = time.monotonic() + seconds, list[float]()
    while time.monotonic() < end:
        start = time.monotonic()
        serving = await client.health() == "SERVING"
        found.append(1000 * (time.monotonic() - start) if serving else math.inf)
        await asyncio.sleep(5 * LOOK)
    return found
