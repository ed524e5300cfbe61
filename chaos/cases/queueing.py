"""Cases 10, 14 to 17: bounds of the queue, deadlines and cancellation, on an engine that can be paused."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence

from chaos import checker
from chaos.case import case
from chaos.checks import Findings
from chaos.clients import Client, closed_loop
from chaos.context import World, translated
from chaos.history import CANCELLED, DEADLINE_EXCEEDED, NOT_BEGUN, OK, RESOURCE_EXHAUSTED, Fate
from chaos.prometheus import Scrape
from chaos.server import Server
from lingon.bench.statistics import percentile

RUNNING, QUEUE, BEYOND = 8, 40, 25  # of case 10: sentences that run, that may wait, requests beyond
STEP = 0.02  # seconds of a step of cases 16 and 17
FOR_EVER = 3600  # of hang_seconds: a pause is no hang


@case(10, "queue bound exact", "exactly 25 RESOURCE_EXHAUSTED, each <= 20 ms; the rest OK after resume")
async def queue_bound(world: World, found: Findings) -> None:
    """A paused engine with 8 sentences, 40 places to wait, 25 requests more, all at once; then 25 one by one."""
    async with paused_server(world, max_rows=RUNNING, max_queue_texts=QUEUE) as server:
        await full_queue(world, found, server)
        await world.judge(found, server)


def paused_server(world: World, **settings: object) -> Server:
    """A server whose engine can be paused by the switch "pause"; nobody takes that for a hang."""
    failpoints = f"step=hang?{world.switch('pause')}"
    return world.server(calls=True, failpoints=failpoints, hang_seconds=FOR_EVER, **settings)


async def full_queue(world: World, found: Findings, server: Server) -> None:
    """Fill the places of a paused engine, send what finds none, and let it go on."""
    client, pause = world.client(server), world.switch("pause")
    await closed_loop(client.translate, world.texts[:50], 4, requests=20)
    pause.on()
    running = asyncio.create_task(client.translate(*world.texts[:RUNNING]))
    await world.until("they run", lambda: _gauge(server, "lingon_running_sentences", RUNNING))
    burst = [asyncio.create_task(client.translate(text)) for text in world.texts[: QUEUE + BEYOND]]
    await world.until("the queue is full", lambda: _gauge(server, "lingon_queue_depth", QUEUE))
    await world.until("the rest was refused", lambda: sum(task.done() for task in burst) >= BEYOND)
    alone = [await client.translate(text) for text in world.texts[:BEYOND]]
    waiting = (await server.scrape()).sum("lingon_queue_depth")
    pause.off()
    first, fates = await running, list(await asyncio.gather(*burst))
    refused = [fate for fate in fates if fate.code == RESOURCE_EXHAUSTED]
    found.equal("RESOURCE_EXHAUSTED of the burst", len(refused), BEYOND)
    found.equal("reasons", {fate.reason for fate in refused}, {"QUEUE_FULL"})
    found.equal("OK after resume", sum(fate.good for fate in [first, *fates]), QUEUE + 1)
    found.equal("waited meanwhile", waiting, QUEUE)
    found.equal("refused one by one", sum(fate.code == RESOURCE_EXHAUSTED for fate in alone), BEYOND)
    slowest = max(fate.milliseconds for fate in alone)
    found.at_most("slowest refusal, one by one", slowest, 20.0, "ms", timing=True)
    # Of the burst only the server's log tells: clients wait for each other to be sent.
    slowest = max(call.milliseconds for call in server.calls_of(refused))
    found.at_most("slowest refusal of the burst in the server's log", slowest, 20.0, "ms", timing=True)


async def _gauge(server: Server, name: str, least: float) -> bool:
    return (await server.scrape()).sum(name) >= least


@case(14, "expired in queue", "50 DEADLINE_EXCEEDED within the deadline + 50 ms; the engine runs none of their rows")
async def expired_in_queue(world: World, found: Findings) -> None:
    """A paused engine, and 50 requests with 100 ms each."""
    async with paused_server(world) as server:
        client, pause = world.client(server), world.switch("pause")
        await closed_loop(client.translate, world.texts[:50], 4, requests=20)
        pause.on()
        pilot = asyncio.create_task(client.translate(world.texts[0]))
        await world.until("one runs", lambda: _gauge(server, "lingon_running_sentences", 1))
        before = await server.scrape()
        late = await asyncio.gather(*(client.translate(text, deadline=0.1) for text in world.texts[:50]))
        pause.off()
        await pilot
        after = await world.resting(server)
        found.equal("DEADLINE_EXCEEDED", sum(fate.code == DEADLINE_EXCEEDED for fate in late), 50)
        over = max(fate.milliseconds for fate in late) - 100.0
        found.at_most("latest after its deadline", over, 50.0, "ms", timing=True)
        over = max(call.milliseconds for call in server.calls_of(late)) - 100.0
        found.at_most("latest in the server's log", over, 50.0, "ms", timing=True)
        ended = sum(_ended(after, code) - _ended(before, code) for code in (CANCELLED, DEADLINE_EXCEEDED))
        found.equal("sentences that waited and ended so", ended, 50)
        found.equal("source tokens encoded meanwhile", _more("lingon_source_tokens_total", before, after), 0)
        found.equal("sentences done: the one that ran", _ended(after, OK) - _ended(before, OK), 1)
        found.equal("its rows", _more("lingon_live_rows_total", before, after), await _steps_of(world, server, pilot))
        await world.judge(found, server)


def _ended(scrape: Scrape, outcome: str) -> float:
    return scrape.sum("lingon_sentences_total", outcome=outcome)


def _more(name: str, before: Scrape, after: Scrape) -> float:
    return after.sum(name) - before.sum(name)


async def _steps_of(world: World, server: Server, done: asyncio.Task[Fate]) -> float:
    """How many rows a request takes alone."""
    before = await server.scrape()
    await world.client(server, "alone").translate(*done.result().texts)
    return _more("lingon_live_rows_total", before, await world.resting(server))


@case(15, "deadline-aware refusal", ">= 95 % of those that cannot be done refused; <= 5 % refused wrongly")
async def deadline_aware(world: World, found: Findings) -> None:
    """A steady backlog; twins are sent together, one with a deadline, one without, which tells what it takes."""
    async with world.server(calls=True, failpoints="step=sleep:0.005", max_rows=4, max_queue_texts=64) as server:
        client, probe = world.client(server), world.client(server, "probe")
        stop = asyncio.Event()
        load = asyncio.create_task(
            closed_loop(client.translate, world.texts[:100], 32, until=lambda _: stop.is_set(), seconds=120.0)
        )
        await world.until("a backlog", lambda: _gauge(server, "lingon_queue_depth", 20))
        usual = [(await probe.translate(text)).milliseconds for text in world.texts[:8]]
        twins = await _twins(world, probe, percentile(usual, 50) / 1000)
        stop.set()
        await load
        doomed = [(hasty, free) for hasty, free in twins if free.milliseconds > 1000 * (hasty.deadline or 0)]
        refused = [(hasty, free) for hasty, free in twins if hasty.reason == "WONT_FINISH"]
        prompt = [pair for pair in doomed if pair in refused and pair[0].milliseconds <= 50.0]
        wrong = [(hasty, free) for hasty, free in refused if free.milliseconds <= 1000 * (hasty.deadline or 0)]
        found.at_least("twins that could not be done", len(doomed), world.choose(50, 10))
        found.at_least("twins that could be done", len(twins) - len(doomed), world.choose(50, 10))
        share = len(prompt) / max(len(doomed), 1)
        found.at_least("refused at once, of those that could not be done", 100 * share, 95.0, "%", timing=True)
        share = len(wrong) / max(len(refused), 1)
        found.at_most("wrongly, of those refused", 100 * share, 5.0, "%", timing=True)
        await world.judge(found, server)


async def _twins(world: World, client: Client, usual: float) -> list[tuple[Fate, Fate]]:
    """Pairs of one text, with a deadline well below or well above what it usually takes, and without."""
    draw, found = random.Random(15), list[tuple[Fate, Fate]]()
    for _ in range(world.choose(40, 8)):
        asked = []
        for share in (0.2, 0.4, 0.6, 1.7, 2.5, 4.0):
            text = draw.choice(world.texts[:100])
            asked.append(asyncio.gather(client.translate(text, deadline=share * usual), client.translate(text)))
            await asyncio.sleep(0.05)  # else the probes themselves were the load
        pairs = [tuple(pair) for pair in await asyncio.gather(*asked)]
        usual = percentile([free.milliseconds for _, free in pairs], 50) / 1000
        found += [(hasty, free) for hasty, free in pairs]
    return found


@case(16, "deadline mid-decode", "the row leaves the batch <= 1 step after the deadline; its place is free")
async def deadline_mid_decode(world: World, found: Findings) -> None:
    """Steps become slow once a request runs, so that no estimate could have refused it."""
    slow = world.switch("slow")
    async with world.server(calls=True, failpoints=f"step=sleep:{STEP}?{slow}") as server:
        client, texts = world.client(server), world.session.long_texts(world.choose(20, 5), 80)
        await closed_loop(client.translate, texts, 1, requests=10)
        late, beyond, freed = list[Fate](), list[float](), list[float]()
        for text in texts:
            slow.on()
            late.append(await client.translate(text, deadline=0.3))
            at_deadline = await server.scrape()
            rest = await world.resting(server)
            freed.append(1000 * (time.monotonic() - (late[-1].ended or 0.0)))
            beyond.append(_more("lingon_live_rows_total", at_deadline, rest))
            slow.off()
        found.equal("ended", {fate.code for fate in late}, {DEADLINE_EXCEEDED})
        over = max(call.milliseconds for call in server.calls_of(late)) - 300.0
        found.at_most("latest in the server's log", over, 1000 * STEP + 50.0, "ms", timing=True)
        found.equal("not refused but begun", {fate.reason for fate in late}.intersection(NOT_BEGUN), set())
        found.at_most("most steps after the deadline", max(beyond), 1, timing=True)
        found.at_most("place free after", max(freed), 1000 * STEP + 50.0, "ms", timing=True)
        await world.judge(found, server)


@case(17, "cancel storm", "places free <= 1 s later, survivors as alone, <= 1 row wasted for each, no error unhandled")
async def cancel_storm(world: World, found: Findings) -> None:
    """1000 requests cancelled at uniformly random times; then 8 running ones at one moment, steps counted."""
    slow = world.switch("slow")
    async with world.server(calls=True, failpoints=f"step=sleep:{STEP}?{slow}") as server:
        await storm(world, found, server, world.choose(1000, 200))
        wasted = list[float]()
        for _ in range(world.choose(5, 2)):
            client = world.client(server, "counted")
            slow.on()
            running = [asyncio.create_task(client.translate(t)) for t in world.session.long_texts(8, 80)]
            await world.until("all run", lambda: _gauge(server, "lingon_running_sentences", 8))
            at_cancel = await _cancel(client, running, server)
            wasted.append(_more("lingon_live_rows_total", at_cancel, await world.resting(server)) / 8)
            slow.off()
        found.at_most("rows wasted for each cancelled", max(wasted), 1.0, timing=True)
        await world.judge(found, server)


async def storm(world: World, found: Findings, server: Server, count: int) -> None:
    """Requests that are cancelled while they wait, run, or are just done."""
    client, draw = world.client(server), random.Random(17)
    usual = await closed_loop(client.translate, world.texts[:100], 32, requests=320)
    longest = 1.5 * percentile([fate.milliseconds for fate in usual], 50) / 1000

    async def send(text: str) -> Fate:
        return await client.translate(text, cancel_after=draw.uniform(0.0, longest))

    fates = await closed_loop(send, world.texts[:200], 32, requests=count)
    ended = time.monotonic()
    await world.resting(server)
    found.at_most("places free after", time.monotonic() - ended, 1.0, "s", timing=True)
    codes = {code: sum(fate.code == code for fate in fates) for code in (OK, CANCELLED)}
    found.equal("of the storm cancelled or OK", sum(codes.values()), count)
    found.at_least("cancelled", codes[CANCELLED], count // 10)
    found.at_least("survivors", codes[OK], count // 10)
    found.clean("survivors as alone", checker.as_alone(fates, await world.session.golden(translated(fates))))


async def _cancel(client: Client, running: Sequence[asyncio.Task[Fate]], server: Server) -> Scrape:
    """Cancel all of these at once; the metrics just before."""
    before = await server.scrape()
    await client.close()
    await asyncio.gather(*running)
    return before
