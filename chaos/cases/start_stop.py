"""Cases 1 to 6: a server's start, its end, and what comes between when it goes well."""

from __future__ import annotations

import asyncio
import hashlib
import random
import signal
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from chaos import checker
from chaos.case import case
from chaos.checker import Call
from chaos.checks import Findings
from chaos.clients import Client, closed_loop
from chaos.context import World, translated
from chaos.history import OK, TO_WALL, UNAVAILABLE, Fate, History
from chaos.prometheus import Scrape
from chaos.server import Server, wall
from lingon.bench.statistics import percentile
from lingon.errors import LingonError

DRAIN = 10.0  # seconds that a server under case 2 has to end what it took
TICK = 0.005  # seconds: logs round to milliseconds


@case(1, "not ready before warm", "answers <= 2 s, NOT_SERVING and no RPC OK until warm, first OK <= 1.5 x steady p99")
async def not_ready_before_warm(world: World, found: Findings) -> None:
    """Loading takes five seconds longer; health and Translate are asked all the time."""
    async with world.server(failpoints="load=sleep:5", calls=True, wait=False) as server:
        client, early = world.client(server), list[str]()
        alive = await world.until("answers /metrics", lambda: _answers(server)) - server.started
        first = await _until_ok(world, client, early)
        steady = await closed_loop(client.translate, world.texts[:50], 1, requests=world.choose(300, 50))
        loaded = wall(server.events("loaded")[0]["time"])
        found.at_most("answers HTTP after", alive, 2.0, "s", timing=True)
        found.at_least("probes before it was warm", len(early), 20)
        found.equal("health before it was warm", set(early), {"NOT_SERVING"})
        tooearly = [fate for fate in world.history.of(OK) if fate.ended and fate.ended + TO_WALL < loaded]
        found.equal("OK before it was warm", len(tooearly), 0)
        p99 = percentile([fate.milliseconds for fate in steady], 99)
        found.at_most("first OK, of the steady p99", first.milliseconds / p99, 1.5, "times", timing=True)
        await world.judge(found, server)


async def _answers(server: Server) -> bool:
    try:
        return (await server.get("/metrics", 1.0))[0] == 200
    except OSError:
        return False


async def _until_ok(world: World, client: Client, early: list[str]) -> Fate:
    """Ask until a translation comes back; what health said before each try that failed goes into early."""
    for _ in range(3000):
        health = await client.health()
        fate = await client.translate(world.texts[0], deadline=5.0)
        if fate.code == OK:
            return fate
        if health != UNAVAILABLE:  # the port was not open yet
            early.append(health)
        await asyncio.sleep(0.02)
    raise LingonError("never ready")


@case(2, "SIGTERM drain", "0 lost, 0 duplicated, 0 UNKNOWN; accepted ones OK; exit 0 <= drain deadline + 1 s; no child")
async def drain(world: World, found: Findings) -> None:
    """200 concurrent clients, SIGTERM at a random moment; 20 seeds."""
    violations, slowest, answered, insides = list[str](), 0.0, 0, list[int]()
    for seed in range(world.choose(20, 2)):
        seconds, count, inside, wrong = await drained(world, seed)
        slowest, answered = max(slowest, seconds), answered + count
        insides.append(inside)
        violations += [f"seed {seed}: {text}" for text in wrong]
    found.clean(f"seeds 0 to {seed}, {answered} answers", violations)
    found.at_least("inside when it closed, on average", sum(insides) / len(insides), 50)
    found.at_most("slowest exit", slowest, DRAIN + 1.0, "s", timing=True)


async def drained(world: World, seed: int) -> tuple[float, int, int, list[str]]:
    """Seconds from SIGTERM to the exit, answers, requests inside when it closed, and what was wrong; 200 clients."""
    draw, history = random.Random(seed), world.begin()
    async with world.server(calls=True, drain_seconds=DRAIN, name=f"drain{seed}") as server:
        clients = [world.client(server, f"client{number}") for number in range(4)]
        texts = [*world.texts[:200], *world.session.long_texts(10, 60)]
        loops = [
            asyncio.create_task(
                closed_loop(each.translate, texts, 50, until=lambda fate: fate.code != OK, seconds=30.0, seed=seed)
            )
            for each in clients
        ]
        scrapes = asyncio.create_task(_last_scrape(server))
        await asyncio.sleep(draw.uniform(0.0, 1.0))  # the moment is the experiment, nothing is waited for
        told = server.signal(signal.SIGTERM)
        ended = await server.exited(DRAIN + 5.0)
        await asyncio.gather(*loops)
        wrong = await _drain_violations(world, server, history, await scrapes)
        closed, calls = wall(server.events("draining")[0]["time"]) - TICK, server.calls()
        wrong += turned_out(history.of(UNAVAILABLE), calls, closed)
        inside = sum(_begun(call) < closed < call.time for call in calls)
        return ended - told, len(history.of(OK)), inside, wrong


def turned_out(unavailable: Sequence[Fate], calls: Sequence[Call], closed: float) -> list[str]:
    """Requests that a server had taken before it closed, and whose clients were told that it is not there.

    closed: when it let nobody in any more, in seconds since 1970
    """
    by_id, found = {call.request_id: call for call in calls}, []
    for fate in unavailable:
        call = by_id.get(fate.id)
        if call is not None and call.code == OK:
            found.append(f"the answer of {fate.id} was lost")
        elif call is not None and _begun(call) < closed:
            found.append(f"{fate.id} had been taken, and ended with {fate.code}")
    return found


def _begun(call: Call) -> float:
    return call.time - call.milliseconds / 1000


async def _last_scrape(server: Server) -> Scrape | None:
    """What a server says of itself last."""
    last = None
    while True:
        try:
            last = await server.scrape()
        except OSError:
            return last
        await asyncio.sleep(0.05)


async def _drain_violations(world: World, server: Server, history: History, last: Scrape | None) -> list[str]:
    fates, calls = list(history), server.calls()
    golden = await world.session.golden(translated(fates))
    wrong = [
        *checker.ended_once(fates),
        *checker.as_alone(fates, golden),
        *checker.only(fates, {OK, UNAVAILABLE}),
        *checker.paired(fates, calls),
        *(["no scrape"] if last is None else checker.counted_until(calls, last)),
        *server.tracebacks(),
        *(f"process {pid} is left" for pid in server.family()),
    ]
    if server.exit_code != 0:
        wrong.append(f"exit code {server.exit_code}")
    if server.events("calls are cut off"):
        wrong.append("calls were cut off within the drain deadline")
    return wrong


@case(4, "drain deadline enforced", "exit <= deadline + 1 s, the stuck one UNAVAILABLE, others OK")
async def drain_deadline(world: World, found: Findings) -> None:
    """One engine sticks for ten minutes with one request, while the other has some that it can end."""
    stuck, deadline = world.switch("stuck"), 2.0
    more: dict[str, Any] = {"failpoints": f"step=hang@1?{stuck}", "hang_seconds": 600, "engines": 2, "threads": 1}
    async with world.server(calls=True, drain_seconds=deadline, **more) as server:
        client = world.client(server)
        await closed_loop(client.translate, world.texts[:100], 8, requests=50)
        stuck.on()
        one = asyncio.create_task(client.translate(world.texts[0]))
        await world.until("it is stuck", lambda: _running(server, 1))
        inside = [asyncio.create_task(client.translate(text)) for text in world.session.long_texts(16, 60)]
        await world.until("others run", lambda: _running(server, 8))
        told = server.signal(signal.SIGTERM)
        ended = await server.exited(60.0)
        fate, others = await one, await asyncio.gather(*inside)
        told_of = wall(server.events("draining")[0]["time"])
        beside = [call for call in server.calls_of(others) if _begun(call) < told_of < call.time]
        found.at_most("exit after", ended - told, deadline + 1.0, "s", timing=True)
        found.at_least("exit not before the deadline", ended - told, deadline, "s")
        found.equal("exit code", server.exit_code, 0)
        found.equal("the stuck one", fate.code, UNAVAILABLE)
        found.equal("others", {fate.code for fate in others}, {OK})
        found.at_least("of them under way when it was told to end", len(beside), len(inside) // 2, timing=True)
        found.clean("each of the requests ended once", checker.ended_once(list(world.history)))
        found.clean("client and server agree", checker.paired(list(world.history), server.calls()))


def _drains(server: Server) -> bool:
    return bool(server.events("draining"))


async def _running(server: Server, sentences: int) -> bool:
    return (await server.scrape()).sum("lingon_running_sentences") >= sentences


@case(5, "second signal; SIGTERM while loading", "second signal: exit <= 1 s, no traceback; while loading: exit <= 2 s")
async def second_signal(world: World, found: Findings) -> None:
    """A drain that would take a minute is cut short by a second signal; so is a load by the first."""
    for first, second in ((signal.SIGTERM, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT), (signal.SIGINT,) * 2):
        names = f"{first.name}, {second.name}"
        stuck = world.switch(f"stuck-{first.name}-{second.name}")
        more: dict[str, Any] = {"failpoints": f"step=hang?{stuck}", "hang_seconds": 600, "drain_seconds": 60}
        async with world.server(**more) as server:
            client = world.client(server, names.replace(", ", "-"))
            stuck.on()
            one = asyncio.create_task(client.translate(world.texts[0]))
            await world.until("it is stuck", partial(_running, server, 1))
            server.signal(first)
            await world.until("it drains", partial(_drains, server))
            told = server.signal(second)
            ended = await server.exited(10.0)
            found.at_most(f"exit after {names}", ended - told, 1.0, "s", timing=True)
            found.clean(f"no traceback after {names}", server.tracebacks())
            found.equal("the one that was stuck", (await one).code, UNAVAILABLE)
    async with world.server(failpoints="load=sleep:60", wait=False) as server:
        await world.until("answers /metrics", lambda: _answers(server))
        told = server.signal(signal.SIGTERM)
        ended = await server.exited(70.0)
        found.at_most("exit while loading", ended - told, 2.0, "s", timing=True)
        found.equal("exit code while loading", server.exit_code, 0)
        found.clean("no traceback while loading", server.tracebacks())


@case(
    6,
    "SIGKILL and restart under load",
    "clients see UNAVAILABLE only; ready <= load time + 5 s; no file changed or left",
)
async def sigkill(world: World, found: Findings) -> None:
    """kill -9 in the midst of load, and a new process on the same ports."""
    temporary = world.scratch / "temporary"
    temporary.mkdir()
    before = _files(world.session.model)
    async with world.server(environment={"TMPDIR": str(temporary), "HOME": str(temporary)}, wait=False) as server:
        normal = await server.ready()
        client = world.client(server)
        loop = asyncio.create_task(closed_loop(client.translate, world.texts[:100], 16, seconds=6.0))
        await world.until("some answers", lambda: len(world.history.of(OK)) > 200)
        server.kill()
        killed = time.monotonic()
        server.start()
        again = await server.ready()
        await loop
        later = [fate for fate in world.history.of(OK) if fate.sent > killed]
        counted = (await world.resting(server)).sum("lingon_requests_total", method="Translate", code="OK")
        found.at_most("ready again after", again, normal + 5.0, "s", timing=True)
        found.equal("OK counted by the new process", int(counted), len(later))
        found.at_least("OK after the restart", len(later), 10)
        found.clean("only OK and UNAVAILABLE", checker.only(world.history, {OK, UNAVAILABLE}))
        found.at_least("UNAVAILABLE while it was gone", len(world.history.of(UNAVAILABLE)), 1)
        found.equal("files of the model", _files(world.session.model) == before, True)
        found.equal("temporary files left", sorted(path.name for path in temporary.rglob("*")), [])
        await world.judge(found, server, told=False)


def _files(folder: Path) -> dict[str, str]:
    """Checksums of all files below."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
