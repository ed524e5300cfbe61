"""The start of a server, its drain, and its end by a signal."""

from __future__ import annotations

import asyncio
import hashlib
import signal
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import tests.reliability.checker as checker
from lingon.bench.results_file import percentile
from lingon.errors import LingonError
from tests.reliability.case import case
from tests.reliability.checks import Checks
from tests.reliability.clients import Client, closed_loop
from tests.reliability.context import CaseContext
from tests.reliability.drains import DRAIN, begun, drain_began, drained
from tests.reliability.history import OK, TO_WALL, UNAVAILABLE, Outcome
from tests.reliability.server import Server, wall


@case(
    "answers HTTP <= 2 s; NOT_SERVING and no OK until warm; first OK <= 1.5 x the steady p99",
    figures=(
        "answers HTTP after",
        "health before the server was warm",
        "OK before the server was warm",
        "first OK relative to the steady p99",
    ),
)
async def test_not_ready_before_warm(context: CaseContext, checks: Checks) -> None:
    """Loading takes five seconds longer, while a client calls health and Translate all the time."""
    async with context.server(failpoints="load=sleep:5", calls=True, wait=False) as server:
        client, early = context.client(server), list[str]()
        alive = await context.wait_until("answers /metrics", lambda: _answers(server)) - server.started
        first = await _until_ok(context, client, early)
        steady = await closed_loop(client.translate, context.texts[:50], 1, requests=context.choose(300, 50))
        loaded = wall(server.events("loaded")[0]["time"])
        checks.at_most("answers HTTP after", alive, 2.0, "s", timing=True)
        checks.at_least("probes before the server was warm", len(early), 20)
        checks.equal("health before the server was warm", set(early), {"NOT_SERVING"})
        answered = [outcome.ended for outcome in context.history.of(OK) if outcome.ended]
        too_early = [moment for moment in answered if moment + TO_WALL < loaded]
        checks.equal("OK before the server was warm", len(too_early), 0)
        p99 = percentile([outcome.milliseconds for outcome in steady], 99)
        checks.at_most("first OK relative to the steady p99", first.milliseconds / p99, 1.5, "x", timing=True)
        await context.check_run(checks, server)


async def _answers(server: Server) -> bool:
    try:
        return (await server.get("/metrics", 1.0))[0] == 200
    except OSError:
        return False


async def _until_ok(context: CaseContext, client: Client, early: list[str]) -> Outcome:
    """Send a request until one is translated. Append the health status before each failed request to `early`."""
    for _ in range(3000):
        health = await client.health()
        outcome = await client.translate(context.texts[0], deadline=5.0)
        if outcome.code == OK:
            return outcome
        if health != UNAVAILABLE:  # the port was not open yet
            early.append(health)
        await asyncio.sleep(0.02)
    raise LingonError("the server did not become ready")


@case(
    "0 lost, 0 duplicated, 0 UNKNOWN; accepted requests OK; exit 0 <= drain deadline + 1 s; no child process left",
    figures=(
        "seeds",
        "requests in flight when the drain began, on average",
        "slowest exit",
    ),
)
async def test_sigterm_drain(context: CaseContext, checks: Checks) -> None:
    """200 concurrent clients, 50 of them over HTTP, and SIGTERM at a random moment, with 20 seeds."""
    violations, slowest, answered, insides = list[str](), 0.0, Counter[str](), list[int]()
    for seed in range(context.choose(20, 2)):
        seconds, count, inside, wrong = await drained(context, seed)
        slowest, answered = max(slowest, seconds), answered + count
        insides.append(inside)
        violations += [f"seed {seed}: {text}" for text in wrong]
    checks.clean(f"seeds 0 to {seed}, {answered.total()} answers, {answered['HTTP']} over HTTP", violations)
    checks.at_least("answers over each API", min(answered["gRPC"], answered["HTTP"]), 10)
    checks.at_least("requests in flight when the drain began, on average", sum(insides) / len(insides), 25)
    checks.at_most("slowest exit", slowest, DRAIN + 1.0, "s", timing=True)


@case(
    "exit <= drain deadline (2 s) + 1 s; the stuck request UNAVAILABLE, the others OK",
    figures=(
        "exit after",
        "stuck request",
        "other requests",
    ),
)
async def test_drain_deadline(context: CaseContext, checks: Checks) -> None:
    """One engine thread hangs with one request, while the other still has requests that it can finish."""
    stuck, deadline = context.switch("stuck"), 2.0
    faults = f"step=hang@1?{stuck};step=sleep:0.005?{stuck}"  # the others must still run when the signal comes
    more: dict[str, Any] = {"failpoints": faults, "hang_seconds": 600, "engines": 2, "threads": 1}
    async with context.server(calls=True, drain_seconds=deadline, **more) as server:
        client = context.client(server)
        await closed_loop(client.translate, context.texts[:100], 8, requests=50)
        stuck.on()
        one = asyncio.create_task(client.translate(context.texts[0]))
        await context.wait_until("the request is stuck", lambda: _running(server, 1))
        inside = [asyncio.create_task(client.translate(text)) for text in context.session.long_texts(16, 60)]
        await context.wait_until("others run", lambda: _running(server, 8))
        signalled = server.signal(signal.SIGTERM)
        ended = await server.exited(60.0)
        outcome, others = await one, await asyncio.gather(*inside)
        draining = drain_began(server)
        in_flight = [call for call in server.calls_of(others) if begun(call) < draining < call.time]
        checks.at_most("exit after", ended - signalled, deadline + 1.0, "s", timing=True)
        checks.at_least("exit not before the deadline", ended - signalled, deadline, "s")
        checks.equal("exit code", server.exit_code, 0)
        checks.equal("stuck request", outcome.code, UNAVAILABLE)
        checks.equal("other requests", {outcome.code for outcome in others}, {OK})
        checks.at_least("others in flight when the drain began", len(in_flight), len(inside) // 2, timing=True)
        checks.clean("every request ended once", checker.ended_once(list(context.history)))
        checks.clean("client and server agree", checker.server_agrees(list(context.history), server.calls()))


def _drains(server: Server) -> bool:
    return bool(server.events("draining"))


async def _running(server: Server, sentences: int) -> bool:
    return (await server.scrape()).sum("lingon_running_sentences") >= sentences


@case(
    "second signal: exit <= 1 s, no traceback; while loading: exit <= 2 s",
    figures=(
        "exit after SIGTERM, SIGTERM",
        "exit after SIGTERM, SIGINT",
        "exit after SIGINT, SIGINT",
        "exit while loading",
    ),
)
async def test_second_signal(context: CaseContext, checks: Checks) -> None:
    """A second signal ends a drain that would take a minute. The first signal ends a load."""
    for first, second in ((signal.SIGTERM, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT), (signal.SIGINT,) * 2):
        names = f"{first.name}, {second.name}"
        stuck = context.switch(f"stuck-{first.name}-{second.name}")
        more: dict[str, Any] = {"failpoints": f"step=hang?{stuck}", "hang_seconds": 600, "drain_seconds": 60}
        async with context.server(**more) as server:
            client = context.client(server, names.replace(", ", "-"))
            stuck.on()
            one = asyncio.create_task(client.translate(context.texts[0]))
            await context.wait_until("the request is stuck", partial(_running, server, 1))
            server.signal(first)
            await context.wait_until("it drains", partial(_drains, server))
            signalled = server.signal(second)
            ended = await server.exited(10.0)
            checks.at_most(f"exit after {names}", ended - signalled, 1.0, "s", timing=True)
            checks.clean(f"no traceback after {names}", server.tracebacks())
            checks.equal("stuck request", (await one).code, UNAVAILABLE)
    async with context.server(failpoints="load=sleep:60", wait=False) as server:
        await context.wait_until("answers /metrics", lambda: _answers(server))
        signalled = server.signal(signal.SIGTERM)
        ended = await server.exited(70.0)
        checks.at_most("exit while loading", ended - signalled, 2.0, "s", timing=True)
        checks.equal("exit code while loading", server.exit_code, 0)
        checks.clean("no traceback while loading", server.tracebacks())


@case(
    "clients see OK and UNAVAILABLE only; ready again <= load time + 5 s; no file changed or left behind",
    figures=(
        "ready again after",
        "UNAVAILABLE during the restart",
        "OK after the restart",
        "model files unchanged",
        "temporary files left",
    ),
)
async def test_sigkill_and_restart(context: CaseContext, checks: Checks) -> None:
    """SIGKILL under load, and a new process on the same ports."""
    temporary = context.scratch / "temporary"
    temporary.mkdir()
    before = _files(context.session.model)
    async with context.server(environment={"TMPDIR": str(temporary), "HOME": str(temporary)}, wait=False) as server:
        normal = await server.ready()
        client = context.client(server)
        loop = asyncio.create_task(closed_loop(client.translate, context.texts[:100], 16, seconds=6.0))
        await context.wait_until("some answers", lambda: len(context.history.of(OK)) > 200)
        server.kill()
        killed = time.monotonic()
        server.start()
        again = await server.ready()
        await loop
        later = [outcome for outcome in context.history.of(OK) if outcome.sent > killed]
        counted = (await context.idle_scrape(server)).sum("lingon_requests_total", method="Translate", code="OK")
        checks.at_most("ready again after", again, normal + 5.0, "s", timing=True)
        checks.equal("OK counted by the new process", int(counted), len(later))
        checks.at_least("OK after the restart", len(later), 10)
        checks.clean("only OK and UNAVAILABLE", checker.only_codes(context.history, {OK, UNAVAILABLE}))
        checks.at_least("UNAVAILABLE during the restart", len(context.history.of(UNAVAILABLE)), 1)
        checks.equal("model files unchanged", _files(context.session.model) == before, True)
        checks.equal("temporary files left", sorted(path.name for path in temporary.rglob("*")), [])
        await context.check_run(checks, server, calls_logged=False)


def _files(folder: Path) -> dict[str, str]:
    """Return the checksums of all files below a folder."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
