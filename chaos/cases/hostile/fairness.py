"""What one hostile caller's legal requests do to a polite one, and whom a full queue drops."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import chaos.verdict.checker as checker
from chaos.callers.clients import Client, no_collection
from chaos.case import case
from chaos.context import CaseContext, translated
from chaos.hostile.attacks import PAIRS, Attack, dear_requests, score, target_text
from chaos.hostile.callers import HostileCaller
from chaos.hostile.probes import ENOUGH, SLOWER
from chaos.hostile.process import attacking_process
from chaos.server import NO_HANG, Server, write_api_keys
from chaos.verdict.checks import Checks
from chaos.verdict.history import Outcome, p99
from lingon.bench.statistics import percentile
from lingon.bundle import open_bundle

MIX = "a random mix of them"
POLITE_SENTENCES = 24  # of the polite caller in a full queue, with about 100 tokens each
CALL, CALLS = 32, 40  # pairs of a hostile request, and its requests: 32 of them fill the queue exactly


@case(
    "one short sentence at a time, beside 4 dear requests of another key, of each kind and mixed: p99 <= 3 x alone",
    figures=(
        "CPU p99 beside 64 short texts relative to alone",
        "CPU p99 beside 64 short texts, sampled relative to alone",
        "CPU p99 beside 64 long texts relative to alone",
        "CPU p99 beside Score of 64 pairs relative to alone",
        "CPU p99 beside beam 8 with alignment relative to alone",
        "CPU p99 beside a book to split relative to alone",
        "CPU p99 beside 256 empty texts relative to alone",
        "CPU p99 beside a random mix of them relative to alone",
        "p99 beside a random mix of them relative to alone",
        "p99 alone",
    ),
)
async def polite_beside_hostile(context: CaseContext, checks: Checks) -> None:
    """The polite caller is measured alone before each attack, so that both have the same machine."""
    keys = write_api_keys(context.scratch / "keys.toml", "polite", "hostile")
    attacks = shipped_attacks(context)
    chosen: list[tuple[str, Sequence[Attack]]] = [*((attack.name, [attack]) for attack in attacks), (MIX, attacks)]
    async with context.server(api_keys=context.scratch / "keys.toml") as server:
        polite = context.client(server, "polite", key=keys["polite"])
        texts = [text for text in context.texts if len(text) <= 25][:50]
        await _one_by_one(server, polite, texts, 1.0)
        alone, beside = list[Waited](), dict[str, list[Waited]]()
        for name, mixed in chosen:
            alone += await _one_by_one(server, polite, texts, context.choose(3.0, 1.0))
            async with attacking_process(server.address, keys["hostile"], mixed, context.pinning.clients) as tally:
                await asyncio.sleep(context.choose(2.0, 1.0))
                beside[name] = await _one_by_one(server, polite, texts, context.choose(10.0, 3.0))
            checks.at_least(f"requests of the hostile caller, {name}", tally.sent, 4)
            checks.equal(f"codes of the hostile caller, {name}", set(tally.ended) - OFFERED, set())
            await context.idle_scrape(server, 30.0)
        _compare(checks, alone, beside)
        await _polite_run(context, checks, server)


OFFERED = {"OK", "RESOURCE_EXHAUSTED", "CANCELLED"}
"""Codes with which the requests of the hostile caller may end."""


def shipped_attacks(context: CaseContext) -> list[Attack]:
    """One attack of each kind on the model of the session."""
    bundle = open_bundle(context.session.model)
    tokenizer = bundle.tokenizer()
    target = target_text(tokenizer, "ja", bundle.manifest.limits.max_target_tokens - 1)
    short = [text for text in context.texts if len(text) <= 40]
    return dear_requests(short, context.session.long_texts(PAIRS, 90), target)


class Waited(NamedTuple):
    """A request, and the milliseconds of CPU time that the server used between its sending and its end.

    The server has one core, so this is the latency on a quiet machine, without the times in which the server is idle.
    """

    outcome: Outcome
    busy: float


async def _one_by_one(server: Server, client: Client, texts: Sequence[str], seconds: float) -> list[Waited]:
    """One request after the other for some seconds, and until there are ENOUGH or three times as long has passed."""
    found, start = list[Waited](), time.monotonic()
    with no_collection():
        while (spent := time.monotonic() - start) < seconds or (len(found) < ENOUGH and spent < 3 * seconds):
            before = server.busy_seconds()
            outcome = await client.translate(texts[len(found) % len(texts)])
            found.append(Waited(outcome, 1000 * (server.busy_seconds() - before)))
    return found


def _compare(checks: Checks, alone: Sequence[Waited], beside: dict[str, list[Waited]]) -> None:
    usual, usual_busy = p99(each.outcome for each in alone), percentile([each.busy for each in alone], 99)
    checks.measured("p50 alone", percentile([each.outcome.milliseconds for each in alone], 50), "ms")
    checks.measured("p99 alone", usual, "ms")
    checks.measured("CPU p99 alone", usual_busy, "ms")
    for name, waited in beside.items():
        outcomes = [each.outcome for each in waited]
        checks.measured(f"requests beside {name}", len(waited))
        checks.measured(f"p50 beside {name}", percentile([outcome.milliseconds for outcome in outcomes], 50), "ms")
        checks.measured(f"p99 beside {name}", p99(outcomes), "ms")
        what = f"p99 beside {name} relative to alone"
        checks.at_most(what, p99(outcomes) / usual, SLOWER, "x", timing=True)
        busy = percentile([each.busy for each in waited], 99) / usual_busy
        checks.at_most(f"CPU {what}", busy, SLOWER, "x", timing=True)
        checks.equal(f"errors beside {name}", Counter(o.code for o in outcomes if not o.good), Counter())


async def _polite_run(context: CaseContext, checks: Checks, server: Server) -> None:
    """The checks of every run, but those that count the requests of hostile callers, which are not in the history."""
    outcomes = list(context.history)
    golden = await context.session.golden(translated(outcomes))
    checks.clean("every request ended once", checker.ended_once(outcomes))
    checks.clean("translations as alone", checker.same_as_alone(outcomes, golden))
    checks.clean("gauges back to 0", checker.gauges_at_zero(await context.idle_scrape(server)))
    checks.clean("no unhandled error", server.tracebacks())


@case(
    "pairs of one source word and 255 target tokens fill the queue: the hostile caller is refused or dropped, 24 "
    "sentences of the polite one are not, in either order",
    figures=(
        "polite, first",
        "hostile requests refused while the queue is full, second",
        "polite, second",
        "hostile requests refused while the queue is full, first",
    ),
)
async def full_queue_drops(context: CaseContext, checks: Checks) -> None:
    """The engine is paused; both callers send what they have, in either order; then it goes on."""
    for polite_first in (True, False):
        context.new_history()
        await _fill_the_queue(context, checks, polite_first=polite_first)


async def _fill_the_queue(context: CaseContext, checks: Checks, *, polite_first: bool) -> None:
    pause = context.switch("pause")
    keys = write_api_keys(context.scratch / "keys.toml", "polite", "hostile", "pilot")
    settings: dict[str, Any] = {"failpoints": f"step=hang?{pause};score=hang?{pause}", "hang_seconds": NO_HANG}
    async with context.server(**settings, api_keys=context.scratch / "keys.toml", calls=True) as server:
        pilot, polite = (context.client(server, name, key=keys[name]) for name in ("pilot", "polite"))
        texts = context.session.long_texts(POLITE_SENTENCES, 90)
        pause.on()
        piloted = asyncio.create_task(pilot.translate(context.texts[0]))
        await context.wait_until("one runs", lambda: _running(server))
        tally = Counter[str]()
        calls = [lambda: polite.translate(*texts), lambda: _hostile(context, server, keys["hostile"], tally)]
        sent = []
        for call in calls if polite_first else reversed(calls):
            sent.append(asyncio.create_task(call()))
            await asyncio.sleep(2.0)
        refused = tally["RESOURCE_EXHAUSTED"]
        pause.off()
        outcome, _ = [await task for task in (sent if polite_first else reversed(sent))]
        order = ("first", "second") if polite_first else ("second", "first")
        checks.equal(f"polite, {order[0]}", outcome.code, "OK")
        checks.at_least(f"hostile requests refused while the queue is full, {order[1]}", refused, 1)
        checks.equal(f"codes of the hostile caller, {order[1]}", set(tally) - OFFERED, set())
        checks.equal(f"pilot, polite {order[0]}", (await piloted).code, "OK")
        await _polite_run(context, checks, server)


async def _hostile(context: CaseContext, server: Server, key: str, tally: Counter[str]) -> None:
    """More requests than the queue holds, which end when the engine goes on."""
    tokenizer = open_bundle(context.session.model).tokenizer()
    attack = score("pairs", [("a", target_text(tokenizer, "ja", 255))] * CALL)
    caller = HostileCaller(server.address, key)

    async def send() -> None:
        tally[(await caller.send(attack)).code] += 1

    await asyncio.gather(*(send() for _ in range(CALLS)))
    await caller.close()


async def _running(server: Server) -> bool:
    return (await server.scrape()).sum("lingon_running_sentences") >= 1
