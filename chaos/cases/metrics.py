"""Case 44: what the metrics say is true, also under load."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from chaos.case import case
from chaos.cases.engine_failure import measured
from chaos.cases.overload import QUEUE, SLOW
from chaos.cases.queueing import QUEUE as PLACES
from chaos.cases.queueing import RUNNING, full_queue, paused_server, storm
from chaos.cases.start_stop import drained
from chaos.checks import Findings
from chaos.clients import open_loop
from chaos.context import World
from chaos.history import Fate
from chaos.server import Server
from lingon.bench.statistics import percentile


@case(
    44,
    "metrics truth",
    "every counter equals the clients' by code over cases 2, 10, 17; scrape p99 <= 50 ms; no new series",
)
async def metrics_truth(world: World, found: Findings) -> None:
    """Runs those three again, small, and looks at the figures alone; then scrapes at an overload."""
    *_, wrong = await drained(world, seed=44)
    found.clean("the drain of case 2", wrong)
    world.begin()
    async with paused_server(world, max_rows=RUNNING, max_queue_texts=PLACES) as server:
        await full_queue(world, found, server)
        await world.judge(found, server)
    world.begin()
    async with world.server(calls=True) as server:
        await storm(world, found, server, 300)
        await world.judge(found, server)
    world.begin()
    await _scrapes(world, found)


async def _scrapes(world: World, found: Findings) -> None:
    """Scrapes at twice the capacity, with names that clients make up: none becomes a label."""
    async with world.server(**SLOW, max_queue_texts=QUEUE) as server:
        client = world.client(server, "invented-name")

        async def send(text: str, due: float | None = None) -> Fate:
            return await client.translate(text, deadline=2.0, due=due)

        capacity = await measured(world, send, world.texts, 16)
        before, times = (await server.scrape()).series, list[float]()
        seconds = world.choose(10.0, 3.0)
        load = asyncio.create_task(open_loop(send, world.texts, 2 * capacity, seconds))
        while not load.done():
            start = time.monotonic()
            await server.scrape()
            times.append(1000 * (time.monotonic() - start))
            await asyncio.sleep(0.05)
        await load
        await _odd_requests(world, server)
        after = await world.resting(server)
        found.at_least("scrapes", len(times), int(seconds * 5))
        found.at_most("scrape p99 at 2x", percentile(times, 99), 50.0, "ms", timing=True)
        found.equal("new series", sorted(name for name, _ in after.series - before), [])
        labels = " ".join(value for _, own in after.series for _, value in own)
        found.equal("labels made of what clients say", [w for w in ("invented", "canary") if w in labels], [])


async def _odd_requests(world: World, server: Server) -> None:
    """Models, languages and methods that clients make up."""
    import grpc

    from lingon.translation.v1 import translation_pb2 as pb

    client = world.client(server, "odd")
    for request in (
        pb.TranslateRequest(texts=["x"], model="canary"),
        pb.TranslateRequest(texts=["x"], source_language_code="canary"),
        pb.TranslateRequest(texts=[""] * 3),
        pb.TranslateRequest(),
    ):
        try:
            await client.stub.Translate(request, metadata=(("x-request-id", "canary"),), timeout=5)
        except grpc.aio.AioRpcError:
            continue  # how it is refused is other cases' matter
    odd: Any = client.channel.unary_unary("/lingon.translation.v1.TranslationService/Canary")
    try:
        await odd(b"", timeout=5)
    except grpc.aio.AioRpcError:
        return
