"""A second translator that is dead, slow or lies: the time, the texts and the quality of the server's answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from lingon.bench.second_server import LIES, Fault, Faults, References, SecondServer, running
from lingon.files import read_parallel
from lingon.scoring import score
from lingon.serving.second.bounds import REJECTIONS
from tests.reliability import checker
from tests.reliability.case import case
from tests.reliability.checks import Checks
from tests.reliability.clients import Client, closed_loop
from tests.reliability.context import CaseContext
from tests.reliability.history import OK, Outcome, p99
from tests.reliability.server import Server
from tests.support.ports import free_port
from tests.support.repository import ROOT

TIMEOUT = 0.5  # seconds that the second translator has for a sentence
LATE = 25.0  # milliseconds; of the timer of a question, while four of them end at once on cores that others use too
CLIENTS, LEAST = 4, 100  # clients that wait; requests, so that the 99th percentile is not the slowest of all
FAILURES = (Fault.DEAD, Fault.SLOW, Fault.HANG, Fault.ERROR, Fault.MALFORMED, Fault.REDIRECT, Fault.HUGE)
DATA = ROOT / "tests" / "data"


@cache
def references() -> dict[str, str]:
    """Return the translations by people of the sentences that cases translate."""
    return dict(read_parallel(DATA / "tatoeba.en", DATA / "tatoeba.de"))


def settings(url: str, **more: Any) -> dict[str, Any]:
    """Return the settings of a server that sends every sentence to a second translator."""
    own = {"second_url": url, "second_model": "stand-in", "second_below": 1.0, "second_timeout": TIMEOUT}
    return {**own, "second_sentences": 1000, "second_hourly": 1_000_000, **more}


@asynccontextmanager
async def stand_in(fault: Fault | None = None, port: int = 0, share: float = 1.0) -> AsyncIterator[SecondServer]:
    """Run a second translator, all of whose answers have a fault, if one is given; share: of them that have it."""
    faults = Faults({fault: share} if fault else {})
    async with running(References(references().items()), faults, port=port) as server:
        yield server


async def translate_all(client: Client, texts: Sequence[str]) -> list[str]:
    """Return the translations of texts. Each is a request, and CLIENTS are in progress."""
    room = asyncio.Semaphore(CLIENTS)

    async def one(text: str) -> str:
        async with room:
            outcome = await client.translate(text)
        return outcome.results[0].text if outcome.good else ""

    return list(await asyncio.gather(*map(one, texts)))


async def load(context: CaseContext, server: Server) -> list[Outcome]:
    """Return the outcomes of clients that wait for their answers, from the first request to a server on."""
    client = context.client(server)
    return await closed_loop(client.translate, context.texts[:50], CLIENTS, requests=context.choose(1000, LEAST))


@case(
    "p99 <= the time-out, p99 without it and 25 ms for late timers; every text as alone; no request fails",
    figures=("p99 without it", *(f"{fault}: p99" for fault in FAILURES), "nothing listens: p99"),
)
async def test_second_translator_fails(context: CaseContext, checks: Checks) -> None:
    """Every sentence is sent to a second translator that gives no answer: each way to fail has its own server."""
    async with context.server(calls=True) as server:
        alone = p99(await load(context, server))
        checks.measured("p99 without it", alone, "ms")
        await context.check_run(checks, server)
    for fault in FAILURES:
        async with stand_in(fault) as second:
            await _judge_failure(context, checks, fault, second.url, alone)
            checks.at_least(f"{fault}: questions", second.asked.total(), 1)
    await _judge_failure(context, checks, "nothing listens", f"http://127.0.0.1:{free_port()}/v1", alone)


async def _judge_failure(context: CaseContext, checks: Checks, name: str, url: str, alone: float) -> None:
    context.new_history()
    async with context.server(**settings(url), calls=True) as server:
        found = await load(context, server)
        checks.at_most(f"{name}: p99", p99(found), 1000 * TIMEOUT + alone + LATE, "ms", timing=True)
        checks.clean(f"{name}: only OK", checker.only_codes(found, {OK}))
        await context.check_run(checks, server)


@case(
    "taken again within 20 s after it listens again, without a restart of the server",
    figures=("taken again after",),
    daily=True,
)
async def test_second_translator_returns(context: CaseContext, checks: Checks) -> None:
    """Nothing listens while many sentences are sent, so that the second translator is left alone; then it starts."""
    port, texts = free_port(), [each for each in context.texts if len(each) > 30][:20]
    golden = await context.session.golden([(1, each) for each in texts])
    text = next(each for each in texts if golden[1, each] != references()[each])
    async with context.server(**settings(f"http://127.0.0.1:{port}/v1")) as server:
        client = context.client(server)
        before = await closed_loop(client.translate, context.texts[:20], CLIENTS, requests=40)
        checks.clean("only OK without it", checker.only_codes(before, {OK}))
        async with stand_in(port=port) as second:

            async def is_taken() -> bool:
                outcome = await client.translate(text)
                return outcome.good and outcome.results[0].text == references()[text]

            began = asyncio.get_running_loop().time()
            ended = await context.wait_until("an answer is taken", is_taken, 20.0)
            checks.at_most("taken again after", ended - began, 20.0, "s")
            checks.at_least("questions", second.asked["translated"], 1)
        checks.clean("no unhandled error", server.tracebacks())


@case(
    "every sentence may be sent: chrF and BLEU not below our model's if all answers are wrong, or half of them",
    figures=("chrF of our model alone", "right answers: chrF", *(f"{lie}: chrF" for lie in LIES), "half other: chrF"),
)
async def test_second_translator_lies(context: CaseContext, checks: Checks) -> None:
    """Answers in the right form with a wrong text are refused by the checks. Right ones are taken."""
    texts = context.texts[: context.choose(500, 200)]
    wanted = [references()[text] for text in texts]
    async with context.server() as server:
        ours = await translate_all(context.client(server), texts)
    alone = score(ours, wanted, "de")
    checks.measured("chrF of our model alone", alone.chrf)
    kinds: list[tuple[str, Fault | None, float]] = [(str(lie), lie, 1.0) for lie in LIES]
    for name, fault, share in [("right answers", None, 0.0), *kinds, ("half other", Fault.OTHER, 0.5)]:
        least = alone.chrf + (0.0 if share == 1 else 20.0 - 20.0 * share)
        async with (
            stand_in(fault, share=share) as second,
            context.server(**settings(second.url, second_timeout=10.0)) as server,
        ):
            found = score(await translate_all(context.client(server), texts), wanted, "de")
            checks.at_least(f"{name}: chrF", found.chrf, least)
            checks.at_least(f"{name}: BLEU", found.bleu, alone.bleu)
            checks.at_least(f"{name}: questions", second.asked.total(), REJECTIONS)
            checks.clean(f"{name}: no unhandled error", server.tracebacks())


@case(
    "its connection is closed within 1 s after the caller cancels; with a deadline, our translation comes in time",
    figures=("closed after", "milliseconds with a deadline of 2,000"),
    daily=True,
)
async def test_second_translator_is_not_waited_for(context: CaseContext, checks: Checks) -> None:
    """It takes 30 s for an answer, and has 30 s. One caller cancels, and one has a deadline before that."""
    async with stand_in(Fault.SLOW) as second, context.server(**settings(second.url, second_timeout=30.0)) as server:
        client = context.client(server)
        cancelled = asyncio.create_task(client.translate(context.texts[0], cancel_after=0.5))
        began = await context.wait_until("it is asked", lambda: second.open == 1)
        await cancelled
        ended = await context.wait_until("the connection is closed", lambda: second.left == 1)
        checks.at_most("closed after", ended - began - 0.5, 1.0, "s", timing=True)
        outcome = await client.translate(context.texts[1], deadline=2.0)
        checks.equal("code of the one with a deadline", outcome.code, OK)
        golden = await context.session.golden([(1, context.texts[1])])
        checks.equal("its text", outcome.results[0].text, golden[1, context.texts[1]])
        checks.at_most("milliseconds with a deadline of 2,000", outcome.milliseconds, 2000.0, "ms", timing=True)
        checks.clean("gauges back to 0", checker.gauges_at_zero(await context.idle_scrape(server)))
        checks.clean("no unhandled error", server.tracebacks())
