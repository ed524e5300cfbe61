"""The metrics are correct, also under load."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from chaos.callers.clients import open_loop
from chaos.case import case
from chaos.cases.load.queueing import PLACES, RUNNING, full_queue, paused_server, refused_in_time, storm
from chaos.context import SLOWED, SLOWED_QUEUE, CaseContext
from chaos.drains import drained
from chaos.server import Server
from chaos.verdict.checks import Checks
from chaos.verdict.history import Outcome
from lingon.bench.statistics import percentile
from lingon.serving.observability.http import PAUSE


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
async def metrics_truth(context: CaseContext, checks: Checks) -> None:
    """Run small versions of those three cases and compare the metrics; then scrape during an overload."""
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
    """Scrapes at twice the capacity, with names that clients invent: none of them becomes a label."""
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
