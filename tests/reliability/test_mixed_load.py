"""Each request of a mixed load has one outcome, below and above the capacity, also when the server stops."""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.reliability.case import case
from tests.reliability.checks import Checks
from tests.reliability.clients import Client, Send, open_loop
from tests.reliability.context import CaseContext
from tests.reliability.drains import drain_began, drain_violations, last_scrape
from tests.reliability.history import (
    CANCELLED,
    DEADLINE_EXCEEDED,
    OK,
    RESOURCE_EXHAUSTED,
    TO_WALL,
    UNAVAILABLE,
    Outcome,
)
from tests.reliability.server import Server

LOADS = (0.5, 2.0)  # multiples of the capacity
CODES = {OK, CANCELLED, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED}
SMALL: dict[str, Any] = {"max_rows": 16, "max_queue_texts": 16}  # so that a load above the capacity is refused soon
CLIENTS = 8  # of the measurement of the capacity
MOST_RESET = 3  # requests in one stop
CONNECTIONS = 4
BEAMS = (1, 4)
STREAMS = 0.3  # share of requests that are streams
DEADLINE, CANCEL = 0.1, 0.05  # seconds, on average, until the deadline and until the client cancels
DRAIN = 30.0  # seconds


@case(
    "at 0.5x and 2x with random deadlines, cancels and SIGTERM: each request ends once, translated as alone; "
    "counters equal the clients' results",
    figures=(
        "requests with OK",
        "requests with CANCELLED",
        "requests with DEADLINE_EXCEEDED",
        "requests with RESOURCE_EXHAUSTED",
        "requests with UNAVAILABLE",
        "SIGTERM at 0.5x",
        "SIGTERM at 2x",
    ),
    daily=True,
)
async def test_mixed_load(context: CaseContext, checks: Checks) -> None:
    """Poisson arrivals of calls and streams with two beam sizes: one run to its end, and one with SIGTERM inside."""
    texts = context.texts[: context.choose(200, 30)]
    await context.session.golden(itertools.product(BEAMS, texts))
    ends, capacity = Counter[str](), 0.0
    for times in LOADS:
        context.new_history()
        async with context.server(calls=True, drain_seconds=DRAIN, **SMALL) as server:
            clients = [context.client(server, f"client{number}") for number in range(CONNECTIONS)]
            # An attempt to connect that takes 100 ms on a busy machine would end calls with UNAVAILABLE.
            await asyncio.gather(*(each.channel.channel_ready() for each in clients))
            capacity = capacity or await context.capacity(sender(clients, seed=1, patient=True), texts, CLIENTS)
            load = (texts, times * capacity, context.choose(20.0, 1.5))
            await open_loop(sender(clients, seed=2), *load)
            await context.check_run(checks, server)
            await _stopped(context, checks, server, sender(clients, seed=3), load, f"{times:g}x")
        ends.update(outcome.code for outcome in context.history)
    for code in (OK, CANCELLED, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNAVAILABLE):
        rare = code == RESOURCE_EXHAUSTED and context.quick  # a second of overload may not fill the queue
        checks.at_least(f"requests with {code}", ends[code], 0 if rare else 1)


def sender(clients: Sequence[Client], seed: int, *, patient: bool = False) -> Send:
    """Return a function that sends a text as a random kind of request. patient: without deadlines and cancels."""
    draw = random.Random(seed)

    async def send(text: str, due: float | None = None) -> Outcome:
        client, more = draw.choice(clients), dict[str, Any](beam_size=draw.choice(BEAMS))
        if not patient:
            more |= draw.choices(
                [
                    {},
                    {"deadline": 0.001 + draw.expovariate(1 / DEADLINE)},
                    {"cancel_after": draw.expovariate(1 / CANCEL)},
                ],
                [2, 1, 1],
            )[0]
        if draw.random() < STREAMS:
            return await client.stream(text, **more)
        return await client.translate(text, due=due, **more)

    return send


async def _stopped(
    context: CaseContext, checks: Checks, server: Server, send: Send, load: tuple[list[str], float, float], name: str
) -> None:
    """Send SIGTERM in the middle of a load, and check every request of the server's life."""
    scrapes = asyncio.create_task(last_scrape(server))
    sent = asyncio.create_task(open_loop(send, *load))
    await asyncio.sleep(load[2] / 2)
    signalled = server.signal(signal.SIGTERM)
    await sent
    await server.exited(DRAIN + 5.0)
    wrong = await drain_violations(context, server, context.history, await scrapes, {*CODES, UNAVAILABLE})
    reset = {f"{outcome.id} was cancelled, but not by its client" for outcome in reset_while_closing(context, server)}
    wrong += [
        f"{outcome.id} ended with {UNAVAILABLE} before SIGTERM"
        for outcome in context.history.of(UNAVAILABLE)
        if outcome.ended and outcome.ended < signalled
    ]
    checks.clean(f"SIGTERM at {name}", [text for text in wrong if text not in reset])
    checks.at_most(f"requests reset while the port closed at {name}", len(reset), MOST_RESET, timing=True)


def reset_while_closing(context: CaseContext, server: Server) -> list[Outcome]:
    """Return requests that gRPC had not passed on when it closed the port, after the drain.

    gRPC resets them, and the client reads that as CANCELLED. A client that respects health or waits after UNAVAILABLE
    sends none by then; this load does neither. Their number grows with the time that a busy machine takes to hand over.
    """
    known = {call.request_id for call in server.calls()}
    return [
        outcome
        for outcome in context.history.of(CANCELLED)
        if outcome.cancel_after is None and outcome.id not in known and outcome.sent + TO_WALL > drain_began(server)
    ]
