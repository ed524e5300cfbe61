"""Drains: a server that gets SIGTERM under load, and the checks of every request."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Collection, Sequence

from tests.reliability import checker
from tests.reliability.checker import Call, Scrape
from tests.reliability.clients import Client, HttpClient, closed_loop
from tests.reliability.context import CaseContext, translated
from tests.reliability.history import OK, UNAVAILABLE, History, Outcome
from tests.reliability.server import Server, wall
from tests.support.ports import free_port

DRAIN = 10.0  # seconds of the drain deadline
TICK = 0.005  # seconds of tolerance, because logs round to milliseconds
READING = 250.0  # milliseconds that a request may take to be read and planned under load


async def drained(context: CaseContext, seed: int) -> tuple[float, Counter[str], int, list[str]]:
    """Drain a server with 200 clients, 150 over gRPC and 50 over HTTP.

    Returns the seconds from SIGTERM to the exit, the number of answers over each of them, the number of requests in
    flight when the drain began, and the violations.
    """
    draw, history, port = random.Random(seed), context.new_history(), free_port()
    async with context.server(calls=True, drain_seconds=DRAIN, http_port=port, name=f"drain{seed}") as server:
        clients: list[Client | HttpClient] = [context.client(server, f"client{number}") for number in range(3)]
        clients.append(HttpClient(port, history))
        texts = [*context.texts[:200], *context.session.long_texts(10, 60)]
        loops = [
            asyncio.create_task(
                closed_loop(
                    each.translate, texts, 50, until=lambda outcome: outcome.code != OK, seconds=30.0, seed=seed
                )
            )
            for each in clients
        ]
        scrapes = asyncio.create_task(last_scrape(server))
        await asyncio.sleep(draw.uniform(0.0, 1.0))  # SIGTERM is to come at a random moment, not after a condition
        signalled = server.signal(signal.SIGTERM)
        ended = await server.exited(DRAIN + 5.0)
        await asyncio.gather(*loops)
        wrong = await drain_violations(context, server, history, await scrapes, {OK, UNAVAILABLE})
        closed, calls = drain_began(server), server.calls()
        inside = sum(begun(call) < closed < call.time for call in calls)
        answered = Counter("HTTP" if outcome.id.startswith("http") else "gRPC" for outcome in history.of(OK))
        return ended - signalled, answered, inside, wrong


def accepted_but_refused(unavailable: Sequence[Outcome], calls: Sequence[Call], closed: float) -> list[str]:
    """Return requests that the server accepted before the drain began, but that ended with UNAVAILABLE in the client.

    A request that ended within READING was still being read when the drain began, and is refused as later ones are.

    closed: when the drain began, in seconds since 1970
    """
    by_id, found = {call.request_id: call for call in calls}, []
    for outcome in unavailable:
        call = by_id.get(outcome.id)
        if call is not None and call.code == OK:
            found.append(f"the answer of {outcome.id} was lost")
        elif call is not None and begun(call) < closed and call.milliseconds > READING:
            found.append(f"{outcome.id} had been accepted, but ended with {outcome.code}")
    return found


def begun(call: Call) -> float:
    """Return the seconds since 1970 at which a call began."""
    return call.time - call.milliseconds / 1000


async def last_scrape(server: Server) -> Scrape | None:
    """Return the last metrics of a server before its metrics port closes."""
    last = None
    while True:
        try:
            last = await server.scrape()
        except OSError:
            return last
        await asyncio.sleep(0.05)


def drain_began(server: Server) -> float:
    """Return the seconds since 1970 at which a server began to drain."""
    return wall(server.events("draining")[0]["time"]) - TICK


async def drain_violations(
    context: CaseContext, server: Server, history: History, last: Scrape | None, codes: Collection[str]
) -> list[str]:
    """Return the faults after a drain: requests without one outcome, answers that are lost or differ, leftovers.

    last: the last metrics before the port closed; codes: those with which a request may end
    """
    outcomes, calls = list(history), server.calls()
    golden = await context.session.golden(translated(outcomes))
    wrong = [
        *checker.ended_once(outcomes),
        *checker.same_as_alone(outcomes, golden),
        *checker.only_codes(outcomes, codes),
        *checker.server_agrees(outcomes, calls),
        *accepted_but_refused(history.of(UNAVAILABLE), calls, drain_began(server)),
        *(["no scrape"] if last is None else checker.counters_equal_log_until(calls, last)),
        *server.tracebacks(),
        *(f"child process {pid} still runs" for pid in server.family()),
    ]
    if server.exit_code != 0:
        wrong.append(f"exit code {server.exit_code}")
    if server.events("calls are cut off"):
        wrong.append("calls were cut off within the drain deadline")
    return wrong
