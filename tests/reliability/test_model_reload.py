"""Models are swapped under load."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence

from lingon.bench.results_file import percentile
from lingon.client.client import ModelsClient
from tests.reliability import checker
from tests.reliability.case import case
from tests.reliability.checks import Checks
from tests.reliability.clients import open_loop
from tests.reliability.context import CaseContext
from tests.reliability.history import OK, Outcome
from tests.reliability.models import BEAMS, two_versions
from tests.reliability.server import CHECK_PAUSE
from tests.support.ports import free_port

RATE = 50.0  # requests a second
SWAP_PAUSE = 1.0  # seconds between two swaps, and before the first
SETTLED = 10.0  # seconds after the last swap within which memory has to return


def while_swapped(outcomes: Sequence[Outcome], swaps: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Return the latencies in milliseconds of requests during a swap, and of the others."""
    met, calm = list[float](), list[float]()
    for outcome in outcomes:
        touched = any(outcome.sent < end and begin < (outcome.ended or end) for begin, end in swaps)
        (met if touched else calm).append(outcome.milliseconds)
    return met, calm


@case(
    "50 requests/s, 20 swaps: no error; each reply from one version; p99 during a swap <= 2 x; memory back in 10 s",
    figures=(
        "no errors",
        "p99 during a swap relative to other times",
        "memory afterwards",
        "versions seen",
    ),
)
async def test_hot_reload(context: CaseContext, checks: Checks) -> None:
    """Swap back and forth between two versions of the model under steady traffic."""
    count, admin = context.choose(20, 4), free_port()
    paths = two_versions(context.session.model, context.scratch / "models")
    differing = await _differing(context)
    async with context.server(model=paths[0].parent, admin_port=admin, calls=True) as server:
        client, draw = context.client(server), random.Random(33)

        async def send(text: str, due: float) -> Outcome:
            several = draw.sample(differing, 2) if draw.random() < 0.1 else []
            return await client.translate(text, *several, beam_size=None, due=due)

        await open_loop(send, differing, RATE, context.choose(5, 2))
        before = server.rss()
        traffic = asyncio.create_task(open_loop(send, differing, RATE, count * 2 * SWAP_PAUSE))
        swaps = []
        with ModelsClient(f"127.0.0.1:{admin}") as models:
            for number in range(count):
                await asyncio.sleep(SWAP_PAUSE)
                begin = time.monotonic()
                await asyncio.to_thread(models.swap, str(paths[number % 2].resolve()))
                swaps.append((begin, time.monotonic()))
        outcomes = await traffic
        met, calm = while_swapped(outcomes, swaps)
        checks.clean("no errors", checker.only_codes(outcomes, [OK]))
        checks.equal("versions seen", sorted({outcome.version for outcome in outcomes}), ["1", "2"])
        for outcome in context.history:  # so that the checker expects the translations of the version in the reply
            outcome.beam_size = BEAMS.get(outcome.version, 0)
        checks.at_most(
            "p99 during a swap relative to other times",
            percentile(met, 99) / percentile(calm, 99),
            2.0,
            "x",
            timing=True,
        )
        ends = time.monotonic() + SETTLED
        while server.rss() > 1.25 * before and time.monotonic() < ends:  # noqa: ASYNC110
            await asyncio.sleep(CHECK_PAUSE)
        checks.at_most("memory afterwards", server.rss() / before, 1.25, "x")
        await context.check_run(checks, server)


async def _differing(context: CaseContext) -> list[str]:
    """Return texts that the two versions translate differently."""
    texts = context.texts[: context.choose(400, 100)]
    golden = await context.session.golden((beam_size, text) for text in texts for beam_size in BEAMS.values())
    found = [text for text in texts if len({golden[beam_size, text] for beam_size in BEAMS.values()}) > 1]
    assert len(found) >= 20, f"of {len(texts)} texts the versions translate only {len(found)} differently"
    return found
