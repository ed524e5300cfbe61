"""The engine dies, hangs, takes all of a core, or lacks memory."""

from __future__ import annotations

import asyncio
import math
import time

from lingon.bench.results_file import percentile
from tests.reliability import checker
from tests.reliability.case import case
from tests.reliability.checks import Checks
from tests.reliability.clients import Client, closed_loop, open_loop
from tests.reliability.context import CaseContext
from tests.reliability.history import DEADLINE_EXCEEDED, OK, TO_WALL, UNAVAILABLE, Outcome
from tests.reliability.server import CHECK_PAUSE, Server, wall


@case(
    "requests in flight fail <= 1 s with UNAVAILABLE or INTERNAL; restart <= 5 s; the next requests OK",
    figures=(
        "requests lost with the engine",
        "last of them ended after",
        "NOT_SERVING after",
        "ready again after",
        "OK after the restart",
    ),
)
async def test_engine_death(context: CaseContext, checks: Checks) -> None:
    """Step 11 of the decoder raises with 64 requests in flight. The supervisor restarts the engine in the process."""
    broken = context.switch("broken")
    async with context.server(failpoints=f"step=raise@11?{broken}", calls=True) as server:
        client, health = context.client(server), list[tuple[float, str]]()
        watch = asyncio.create_task(client.watch(lambda state: health.append((time.monotonic(), state))))
        await closed_loop(client.translate, context.texts[:50], 8, requests=50)
        broken.on()
        flight = await asyncio.gather(*(client.translate(text) for text in context.session.long_texts(64, 60)))
        broken.off()
        after = await client.translate(context.texts[0])
        died = wall(server.events("the engine died")[0]["time"]) - TO_WALL
        await context.wait_until("it was restarted", lambda: bool(server.events("an engine was restarted")))
        await context.wait_until("it is ready", lambda: _ready(server))
        recovered = time.monotonic()
        later = await closed_loop(client.translate, context.texts[:50], 8, requests=50)
        watch.cancel()
        lost = [outcome for outcome in flight if outcome.code != OK]
        checks.at_least("requests lost with the engine", len(lost), 1)
        checks.clean("codes of the lost requests", checker.only_codes(lost, {UNAVAILABLE, "INTERNAL"}))
        last = max((outcome.ended or math.inf) - died for outcome in lost) if lost else math.nan
        checks.at_most("last of them ended after", last, 1.0, "s", timing=True)
        unready = [moment - died for moment, state in health if state == "NOT_SERVING"]
        checks.at_most("NOT_SERVING after", min(unready, default=float("nan")), 1.0, "s", timing=True)
        checks.at_most("ready again after", recovered - died, 5.0, "s", timing=True)
        checks.at_least("OK after the restart", sum(outcome.code == OK for outcome in [after, *later]), 50)
        checks.equal("restarts counted", (await server.scrape()).sum("lingon_engine_restarts_total", cause="death"), 1)
        log = [text for text in server.tracebacks() if "the engine died" not in text]
        checks.clean("no unhandled error but the injected one", log)
        await _judge_survivors(context, checks, server)


async def _ready(server: Server) -> bool:
    return (await server.get("/healthz"))[0] == 200


async def _judge_survivors(context: CaseContext, checks: Checks, server: Server) -> None:
    outcomes, scrape = await context.check_outcomes(checks, server)
    calls = server.calls()
    checks.clean("client and server agree", checker.server_agrees(outcomes, calls))
    checks.clean("counters equal the log", checker.counters_equal_log(calls, scrape))


@case(
    "not ready <= 2 x hang_seconds (1 s); exit 1; deadlines kept within 100 ms; no request hangs",
    figures=(
        "not ready after",
        "exit code",
        "process ended after",
        "largest distance from a deadline",
        "other requests",
        "other requests ended after",
    ),
)
async def test_engine_hang(context: CaseContext, checks: Checks) -> None:
    """A step never ends, while requests have deadlines before and after the one of the watchdog."""
    hang, budget = context.switch("hang"), 1.0
    async with context.server(failpoints=f"step=hang?{hang}", hang_seconds=budget, calls=True) as server:
        client = context.client(server)
        await closed_loop(client.translate, context.texts[:50], 8, requests=50)
        hang.on()
        soon = [asyncio.create_task(client.translate(text, deadline=0.4)) for text in context.texts[:10]]
        late = [asyncio.create_task(client.translate(text, deadline=30.0)) for text in context.texts[10:30]]
        began = await context.wait_until("it hangs", lambda: _runs(server))
        off = await context.wait_until("not ready", lambda: _not_ready(server))
        ended = await server.exited(10.0)
        early, others = await asyncio.gather(*soon), await asyncio.gather(*late)
        checks.at_most("not ready after", off - began, 2 * budget, "s", timing=True)
        checks.at_most("process ended after", ended - began, 5.0, "s", timing=True)
        checks.equal("exit code", server.exit_code, 1)
        checks.equal("requests with a short deadline", {outcome.code for outcome in early}, {DEADLINE_EXCEEDED})
        off_by = max(abs(outcome.milliseconds - 400.0) for outcome in early)
        checks.at_most("largest distance from a deadline", off_by, 100.0, "ms", timing=True)
        off_by = max(abs(call.milliseconds - 400.0) for call in server.calls_of(early))
        checks.at_most("largest distance in the server's log", off_by, 100.0, "ms", timing=True)
        checks.equal("other requests", {outcome.code for outcome in others}, {UNAVAILABLE})
        checks.at_most(
            "other requests ended after", max((f.ended or 0.0) - began for f in others), 5.0, "s", timing=True
        )
        checks.clean("every request ended once", checker.ended_once(list(context.history)))
        checks.clean("client and server agree", checker.server_agrees(list(context.history), server.calls()))


async def _runs(server: Server) -> bool:
    return (await server.scrape()).sum("lingon_running_sentences") > 0


async def _not_ready(server: Server) -> bool:
    """Return whether the readiness probe fails."""
    try:
        return (await server.get("/healthz", 1.0))[0] != 200
    except OSError:
        return True


@case(
    "loop lag <= 50 ms, health p99 <= 100 ms at 2x overload with the decoder at 100 % CPU",
    figures=(
        "largest loop lag",
        "health p99",
        "load relative to the capacity",
    ),
)
async def test_event_loop_stall(context: CaseContext, checks: Checks) -> None:
    """Beam 8 over long texts at twice the capacity. The load is real computation, without a failpoint that sleeps."""
    texts = context.session.long_texts(50, 50)
    async with context.server(max_queue_texts=64, max_rows=64) as server:
        client, prober = context.client(server), context.client(server, "prober")

        async def send(text: str, due: float | None = None) -> Outcome:
            return await client.translate(text, beam_size=8, due=due)

        capacity = await context.capacity(send, texts, 16)
        before = await server.scrape()
        probes = asyncio.create_task(_probe(prober, context.choose(20.0, 5.0)))
        load = await open_loop(send, texts, 2 * capacity, context.choose(20.0, 5.0))
        health = await probes
        after = await server.scrape()
        checks.at_least("load relative to the capacity", len(load) / context.choose(20.0, 5.0) / capacity, 1.5)
        lag = after.quantile("lingon_event_loop_lag_seconds", 1.0, before)
        checks.at_most("largest loop lag", 1000 * lag, 50.0, "ms", timing=True)
        p99 = 1000 * after.quantile("lingon_event_loop_lag_seconds", 0.99, before)
        checks.at_most("99th percentile of the lag", p99, 50.0, "ms", timing=True)
        checks.at_most("health p99", percentile(health, 99), 100.0, "ms", timing=True)
        checks.at_least("health probes", len(health), context.choose(200, 50))
        checks.clean("only OK and refusals", checker.only_codes(context.history, {OK, "RESOURCE_EXHAUSTED"}))
        await context.check_run(checks, server, calls_logged=False)


@case(
    "only the affected requests fail, with RESOURCE_EXHAUSTED; fewer rows afterwards; the next requests OK; no restart",
    figures=(
        "requests without memory",
        "row limit afterwards",
        "OK afterwards",
    ),
)
async def test_out_of_memory(context: CaseContext, checks: Checks) -> None:
    """There is no memory for step 11 of the decoder with 64 requests in flight, which are more than one batch holds."""
    full = context.switch("full")
    async with context.server(failpoints=f"step=memory@11?{full}", max_rows=32, calls=True) as server:
        client = context.client(server)
        await closed_loop(client.translate, context.texts[:50], 8, requests=50)
        provider = (await server.scrape()).sum("lingon_model_info", provider="CPUExecutionProvider")
        full.on()
        flight = await asyncio.gather(*(client.translate(text) for text in context.session.long_texts(64, 60)))
        full.off()
        later = await closed_loop(client.translate, context.texts[:50], 8, requests=50)
        lost, scrape = [outcome for outcome in flight if outcome.code != OK], await server.scrape()
        checks.at_least("requests without memory", len(lost), 1)
        checks.at_most("of all in flight", len(lost), 40)
        checks.clean("codes of these requests", checker.only_codes(lost, {"RESOURCE_EXHAUSTED"}))
        checks.equal("row limit afterwards", scrape.sum("lingon_row_limit"), 16)
        checks.equal("OK afterwards", sum(outcome.code == OK for outcome in later), 50)
        checks.equal("restarts", scrape.sum("lingon_engine_restarts_total"), 0)
        still = scrape.sum("lingon_model_info", provider="CPUExecutionProvider")
        checks.equal("model on the same provider", still, provider)
        await _judge_survivors(context, checks, server)


async def _probe(client: Client, seconds: float) -> list[float]:
    """Return the milliseconds of health checks, one after the other. One that is not SERVING counts as infinite."""
    end, found = time.monotonic() + seconds, list[float]()
    while time.monotonic() < end:
        start = time.monotonic()
        serving = await client.health() == "SERVING"
        found.append(1000 * (time.monotonic() - start) if serving else math.inf)
        await asyncio.sleep(5 * CHECK_PAUSE)
    return found
