"""The bounds of the queue, deadlines, cancellation, and the metrics of all of it, on an engine that can be paused."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Any

import tests.reliability.checker as checker
from lingon.bench.results_file import percentile
from lingon.serving.observability.http import PAUSE
from tests.reliability.case import case
from tests.reliability.checker import Scrape
from tests.reliability.checks import Checks
from tests.reliability.clients import Client, HttpClient, closed_loop, open_loop
from tests.reliability.context import SLOWED, SLOWED_QUEUE, CaseContext, translated
from tests.reliability.drains import drained
from tests.reliability.history import CANCELLED, DEADLINE_EXCEEDED, NOT_BEGUN, OK, RESOURCE_EXHAUSTED, Outcome
from tests.reliability.server import NO_HANG, Server
from tests.support.ports import free_port

RUNNING, PLACES, BEYOND = 8, 40, 25  # sentences that run, places in the queue, requests beyond them
STEP = 0.02  # seconds of a decoder step
LOOK = 0.02  # seconds after a step at which a case checks that the rows are free; the bound is 0.05
OPENMETRICS = "application/openmetrics-text"


@case(
    "exactly 25 RESOURCE_EXHAUSTED, each <= 20 ms; the rest OK after resume",
    figures=(
        "RESOURCE_EXHAUSTED of the burst",
        "reasons",
        "slowest refusal, one by one",
        "slowest refusal of the burst in the server's log",
        "OK after resume",
    ),
)
async def test_queue_bound(context: CaseContext, checks: Checks) -> None:
    """A paused engine with 8 running sentences and a queue of 40: 65 requests at once, then 25 one by one.

    The same again over HTTP, for which the times are not bounded.
    """
    async with paused_server(context, max_rows=RUNNING, max_queue_texts=PLACES) as server:
        refused, alone = await full_queue(context, checks, server, context.client(server))
        refused_in_time(checks, server, refused, alone)
        await context.check_run(checks, server)
    history, port = context.new_history(), free_port()
    async with paused_server(context, max_rows=RUNNING, max_queue_texts=PLACES, http_port=port) as server:
        await full_queue(context, checks, server, HttpClient(port, history), "over HTTP, ")
        await context.check_run(checks, server)


def paused_server(context: CaseContext, **settings: object) -> Server:
    """Return a server whose engine the switch "pause" pauses."""
    failpoints = f"step=hang?{context.switch('pause')}"
    return context.server(calls=True, failpoints=failpoints, hang_seconds=NO_HANG, **settings)


async def full_queue(
    context: CaseContext, checks: Checks, server: Server, client: Client | HttpClient, over: str = ""
) -> tuple[list[Outcome], list[Outcome]]:
    """Fill the queue of a paused engine, send more than it holds, and resume the engine.

    over: begins the names of the checks. Returns the refused requests of the burst, and those one by one.
    """
    pause = context.switch("pause")
    await closed_loop(client.translate, context.texts[:50], 4, requests=20)
    pause.on()
    running = asyncio.create_task(client.translate(*context.texts[:RUNNING]))
    await context.wait_until("they run", lambda: _gauge(server, "lingon_running_sentences", RUNNING))
    burst = [asyncio.create_task(client.translate(text)) for text in context.texts[: PLACES + BEYOND]]
    await context.wait_until("the queue is full", lambda: _gauge(server, "lingon_queue_depth", PLACES))
    await context.wait_until("the rest was refused", lambda: sum(task.done() for task in burst) >= BEYOND)
    alone = [await client.translate(text) for text in context.texts[:BEYOND]]
    waiting = (await server.scrape()).sum("lingon_queue_depth")
    pause.off()
    first, outcomes = await running, list(await asyncio.gather(*burst))
    refused = [outcome for outcome in outcomes if outcome.code == RESOURCE_EXHAUSTED]
    checks.equal(f"{over}RESOURCE_EXHAUSTED of the burst", len(refused), BEYOND)
    checks.equal(f"{over}reasons", {outcome.reason for outcome in refused}, {"QUEUE_FULL"})
    checks.equal(f"{over}OK after resume", sum(outcome.good for outcome in [first, *outcomes]), PLACES + 1)
    checks.equal(f"{over}queued during the pause", waiting, PLACES)
    checks.equal(f"{over}refused one by one", sum(outcome.code == RESOURCE_EXHAUSTED for outcome in alone), BEYOND)
    return refused, alone


def refused_in_time(checks: Checks, server: Server, refused: Sequence[Outcome], alone: Sequence[Outcome]) -> None:
    """Check the result of `full_queue`."""
    slowest = max(outcome.milliseconds for outcome in alone)
    checks.at_most("slowest refusal, one by one", slowest, 20.0, "ms", timing=True)
    # In the burst, requests delay each other in the client, so only the server's log shows how long a refusal takes.
    slowest = max(call.milliseconds for call in server.calls_of(refused))
    checks.at_most("slowest refusal of the burst in the server's log", slowest, 20.0, "ms", timing=True)


async def _gauge(server: Server, name: str, least: float) -> bool:
    return (await server.scrape()).sum(name) >= least


@case(
    "50 DEADLINE_EXCEEDED within the deadline + 50 ms; the engine runs none of their rows",
    figures=(
        "DEADLINE_EXCEEDED",
        "latest end after the deadline",
        "source tokens encoded for them",
    ),
)
async def test_expired_in_queue(context: CaseContext, checks: Checks) -> None:
    """A paused engine and 50 requests with a deadline of 100 ms each."""
    async with paused_server(context) as server:
        client, pause = context.client(server), context.switch("pause")
        await closed_loop(client.translate, context.texts[:50], 4, requests=20)
        pause.on()
        pilot = asyncio.create_task(client.translate(context.texts[0]))
        await context.wait_until("one runs", lambda: _gauge(server, "lingon_running_sentences", 1))
        before = await server.scrape()
        late = await asyncio.gather(*(client.translate(text, deadline=0.1) for text in context.texts[:50]))
        pause.off()
        await pilot
        after = await context.idle_scrape(server)
        checks.equal("DEADLINE_EXCEEDED", sum(outcome.code == DEADLINE_EXCEEDED for outcome in late), 50)
        over = max(outcome.milliseconds for outcome in late) - 100.0
        checks.at_most("latest end after the deadline", over, 50.0, "ms", timing=True)
        over = max(call.milliseconds for call in server.calls_of(late)) - 100.0
        checks.at_most("latest end in the server's log", over, 50.0, "ms", timing=True)
        ended = sum(_ended(after, code) - _ended(before, code) for code in (CANCELLED, DEADLINE_EXCEEDED))
        checks.equal("queued sentences that ended this way", ended, 50)
        checks.equal("source tokens encoded for them", _more("lingon_source_tokens_total", before, after), 0)
        checks.equal("sentences done", _ended(after, OK) - _ended(before, OK), 1)
        checks.equal(
            "rows of the running sentence",
            _more("lingon_live_rows_total", before, after),
            await _steps_of(context, server, pilot),
        )
        await context.check_run(checks, server)


def _ended(scrape: Scrape, outcome: str) -> float:
    return scrape.sum("lingon_sentences_total", outcome=outcome)


def _more(name: str, before: Scrape, after: Scrape) -> float:
    return after.sum(name) - before.sum(name)


async def _steps_of(context: CaseContext, server: Server, done: asyncio.Task[Outcome]) -> float:
    """Return the number of decoder rows that a request takes alone."""
    before = await server.scrape()
    await context.client(server, "alone").translate(*done.result().texts)
    return _more("lingon_live_rows_total", before, await context.idle_scrape(server))


@case(
    ">= 95 % of requests that cannot meet their deadline are refused at once; <= 5 % of the refusals are wrong",
    figures=(
        "refused at once, of those that could not meet it",
        "wrong refusals, of all refusals",
        "requests that could not meet their deadline",
    ),
)
async def test_deadline_aware_refusal(context: CaseContext, checks: Checks) -> None:
    """A steady backlog and pairs of equal requests: one has a deadline, the other shows how long the request takes."""
    async with context.server(calls=True, failpoints="step=sleep:0.005", max_rows=4, max_queue_texts=64) as server:
        client, probe = context.client(server), context.client(server, "probe")
        stop = asyncio.Event()
        load = asyncio.create_task(
            closed_loop(client.translate, context.texts[:100], 32, until=lambda _: stop.is_set(), seconds=120.0)
        )
        await context.wait_until("a backlog", lambda: _gauge(server, "lingon_queue_depth", 20))
        usual = [(await probe.translate(text)).milliseconds for text in context.texts[:8]]
        twins = await _twins(context, probe, percentile(usual, 50) / 1000)
        stop.set()
        await load
        doomed = [(hasty, free) for hasty, free in twins if free.milliseconds > 1000 * (hasty.deadline or 0)]
        refused = [(hasty, free) for hasty, free in twins if hasty.reason == "WONT_FINISH"]
        prompt = [pair for pair in doomed if pair in refused and pair[0].milliseconds <= 50.0]
        wrong = [(hasty, free) for hasty, free in refused if free.milliseconds <= 1000 * (hasty.deadline or 0)]
        checks.at_least("requests that could not meet their deadline", len(doomed), context.choose(50, 10))
        checks.at_least("requests that could meet their deadline", len(twins) - len(doomed), context.choose(50, 10))
        share = len(prompt) / max(len(doomed), 1)
        checks.at_least("refused at once, of those that could not meet it", 100 * share, 95.0, "%", timing=True)
        share = len(wrong) / max(len(refused), 1)
        checks.at_most("wrong refusals, of all refusals", 100 * share, 5.0, "%", timing=True)
        await context.check_run(checks, server)


async def _twins(context: CaseContext, client: Client, usual: float) -> list[tuple[Outcome, Outcome]]:
    """Return pairs of requests for a text: with a deadline well below or above its usual duration, and without one."""
    draw, found = random.Random(15), list[tuple[Outcome, Outcome]]()
    for _ in range(context.choose(40, 8)):
        asked = []
        for share in (0.2, 0.4, 0.6, 1.7, 2.5, 4.0):
            text = draw.choice(context.texts[:100])
            asked.append(asyncio.gather(client.translate(text, deadline=share * usual), client.translate(text)))
            await asyncio.sleep(0.05)  # so that the probes add little load
        pairs = [tuple(pair) for pair in await asyncio.gather(*asked)]
        usual = percentile([free.milliseconds for _, free in pairs], 50) / 1000
        found += [(hasty, free) for hasty, free in pairs]
    return found


@case(
    "the row leaves the batch <= 1 step after the deadline; its place is free <= 1 step + 50 ms after it",
    figures=(
        "most steps after the deadline",
        "place free after",
        "codes",
    ),
)
async def test_deadline_mid_decode(context: CaseContext, checks: Checks) -> None:
    """Steps become slow only when the request runs, so that no estimate could have refused it."""
    slow = context.switch("slow")
    async with context.server(calls=True, failpoints=f"step=sleep:{STEP}?{slow}") as server:
        client, texts = context.client(server), context.session.long_texts(context.choose(20, 5), 80)
        await closed_loop(client.translate, texts, 1, requests=10)
        late, beyond, freed = list[Outcome](), list[float](), list[float]()
        for text in texts:
            slow.on()
            late.append(await client.translate(text, deadline=0.3, whole=True))  # one row, which takes longer
            at_deadline = await server.scrape(OPENMETRICS)
            # The next look must be late enough: the one after it is a quarter of a second later.
            await asyncio.sleep(max((late[-1].ended or 0.0) + STEP + LOOK - time.monotonic(), 0.0))
            rest = await context.idle_scrape(server)
            freed.append(1000 * (time.monotonic() - (late[-1].ended or 0.0)))
            beyond.append(_more("lingon_live_rows_total", at_deadline, rest))
            slow.off()
        checks.equal("codes", {outcome.code for outcome in late}, {DEADLINE_EXCEEDED})
        over = max(call.milliseconds for call in server.calls_of(late)) - 300.0
        checks.at_most("latest end in the server's log", over, 1000 * STEP + 50.0, "ms", timing=True)
        checks.equal("refused before the start", {outcome.reason for outcome in late}.intersection(NOT_BEGUN), set())
        checks.at_most("most steps after the deadline", max(beyond), 1, timing=True)
        checks.at_most("place free after", max(freed), 1000 * STEP + 50.0, "ms", timing=True)
        await context.check_run(checks, server)


@case(
    "places free <= 1 s later; survivors translated as alone; <= 1 row wasted for each; no unhandled error",
    figures=(
        "places free after",
        "cancelled",
        "survivors",
        "survivors as alone",
        "rows wasted for each cancelled",
    ),
)
async def test_cancel_storm(context: CaseContext, checks: Checks) -> None:
    """1000 requests cancelled at uniformly random times, then 8 running ones at the same time, with steps counted."""
    slow = context.switch("slow")
    async with context.server(calls=True, failpoints=f"step=sleep:{STEP}?{slow}") as server:
        await storm(context, checks, server, context.choose(1000, 200))
        wasted = list[float]()
        for _ in range(context.choose(5, 2)):
            client = context.client(server, "counted")
            slow.on()
            running = [asyncio.create_task(client.translate(t)) for t in context.session.long_texts(8, 80)]
            await context.wait_until("all run", lambda: _gauge(server, "lingon_running_sentences", 8))
            at_cancel = await _cancel(client, running, server)
            sentences = at_cancel.sum("lingon_running_sentences")  # of one row each, of which a text has several
            wasted.append(_more("lingon_live_rows_total", at_cancel, await context.idle_scrape(server)) / sentences)
            slow.off()
        checks.at_most("rows wasted for each cancelled", max(wasted), 1.0, timing=True)
        await context.check_run(checks, server)


async def storm(context: CaseContext, checks: Checks, server: Server, count: int) -> None:
    """Send requests and cancel them while they are queued, run, or have just ended."""
    client, draw = context.client(server), random.Random(17)
    usual = await closed_loop(client.translate, context.texts[:100], 32, requests=320)
    longest = 1.5 * percentile([outcome.milliseconds for outcome in usual], 50) / 1000

    async def send(text: str) -> Outcome:
        return await client.translate(text, cancel_after=draw.uniform(0.0, longest))

    outcomes = await closed_loop(send, context.texts[:200], 32, requests=count)
    ended = time.monotonic()
    await context.idle_scrape(server)
    checks.at_most("places free after", time.monotonic() - ended, 1.0, "s", timing=True)
    codes = {code: sum(outcome.code == code for outcome in outcomes) for code in (OK, CANCELLED)}
    checks.equal("requests cancelled or OK", sum(codes.values()), count)
    checks.at_least("cancelled", codes[CANCELLED], count // 10)
    checks.at_least("survivors", codes[OK], count // 10)
    checks.clean(
        "survivors as alone", checker.same_as_alone(outcomes, await context.session.golden(translated(outcomes)))
    )


async def _cancel(client: Client, running: Sequence[asyncio.Task[Outcome]], server: Server) -> Scrape:
    """Cancel all of these at once, and return the metrics just before."""
    before = await server.scrape()
    await client.close()
    await asyncio.gather(*running)
    return before


@case(
    "in a drain, at a full queue and in a storm of cancels every counter equals the clients' results by code; "
    "scrape p99 <= 50 ms; no new series",
    figures=(
        "scrape p99 at 2x",
        "new series",
        "counters equal the log",
        "text counters equal the results",
    ),
)
async def test_metrics_truth(context: CaseContext, checks: Checks) -> None:
    """Run small versions of those three cases, compare the metrics, and scrape during an overload."""
    *_, wrong = await drained(context, seed=44)
    checks.clean("the drain", wrong)
    context.new_history()
    async with paused_server(context, max_rows=RUNNING, max_queue_texts=PLACES) as server:
        refused_in_time(checks, server, *await full_queue(context, checks, server, context.client(server)))
        await context.check_run(checks, server)
    context.new_history()
    async with context.server(calls=True) as server:
        await storm(context, checks, server, 300)
        await context.check_run(checks, server)
    context.new_history()
    await _scrapes(context, checks)


async def _scrapes(context: CaseContext, checks: Checks) -> None:
    """Scrape at twice the capacity, with names that clients invent. None of them becomes a label."""
    async with context.server(**SLOWED, max_queue_texts=SLOWED_QUEUE) as server:
        client = context.client(server, "invented-name")

        async def send(text: str, due: float | None = None) -> Outcome:
            return await client.translate(text, deadline=2.0, due=due)

        capacity = await context.capacity(send, context.texts, 16)
        before, times = (await server.scrape()).series, list[float]()
        seconds = context.choose(15.0, 5.0)
        load = asyncio.create_task(open_loop(send, context.texts, 2 * capacity, seconds))
        while not load.done():
            await asyncio.sleep(PAUSE)  # a scrape before that waits for the next page
            start = time.monotonic()
            await server.scrape()
            times.append(1000 * (time.monotonic() - start))
        await load
        await _odd_requests(context, server)
        after = await context.idle_scrape(server)
        checks.at_least("scrapes", len(times), context.choose(50, 15))
        checks.at_most("scrape p99 at 2x", percentile(times, 99), 50.0, "ms", timing=True)
        checks.equal("new series", sorted(name for name, _ in after.series - before), [])
        labels = " ".join(value for _, own in after.series for _, value in own)
        checks.equal("labels from client data", [w for w in ("invented", "canary") if w in labels], [])


async def _odd_requests(context: CaseContext, server: Server) -> None:
    """Send requests with models, languages and methods that do not exist."""
    import grpc

    from lingon.translation.v1 import translation_pb2 as pb

    client = context.client(server, "odd")
    for request in (
        pb.TranslateRequest(texts=["x"], model="canary"),
        pb.TranslateRequest(texts=["x"], source_language_code="canary"),
        pb.TranslateRequest(texts=[""] * 3),
        pb.TranslateRequest(),
    ):
        try:
            await client.stub.Translate(request, metadata=(("x-request-id", "canary"),), timeout=5)
        except grpc.aio.AioRpcError:
            continue  # other cases check the code of the refusal
    odd: Any = client.channel.unary_unary("/lingon.translation.v1.TranslationService/Canary")
    try:
        await odd(b"", timeout=5)
    except grpc.aio.AioRpcError:
        return
