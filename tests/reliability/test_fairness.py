"""Fairness between callers: hostile and polite ones, the full queue, quotas and files of keys."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lingon.bench.results_file import percentile
from lingon.bundle.store import open_bundle
from lingon.errors import LingonError
from tests.reliability.attackers import (
    PAIRS,
    SLOWER,
    Attack,
    HostileCaller,
    attacking_process,
    costly_requests,
    one_by_one,
    score,
    split,
    target_text,
    translate,
)
from tests.reliability.case import case
from tests.reliability.checks import Checks
from tests.reliability.clients import Client
from tests.reliability.context import CaseContext
from tests.reliability.history import OK, Outcome, p99
from tests.reliability.server import NO_HANG, Server, write_api_keys

MIX = "a random mix of them"
POLITE_SENTENCES = 24  # of the polite caller in a full queue, with about 100 tokens each
CALL, CALLS = 32, 40  # pairs of a hostile request, and its requests: 32 of them fill the queue exactly


@case(
    "one short sentence at a time, beside 4 costly requests of another key, of each kind and mixed: p99 <= 3 x alone",
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
async def test_polite_beside_hostile(context: CaseContext, checks: Checks) -> None:
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
    """Return one attack of each kind on the model of the session."""
    bundle = open_bundle(context.session.model)
    tokenizer = bundle.tokenizer()
    target = target_text(tokenizer, "ja", bundle.manifest.limits.max_target_tokens - 1)
    short = [text for text in context.texts if len(text) <= 40]
    return costly_requests(short, context.session.long_texts(PAIRS, 90), target)


class Waited(NamedTuple):
    """A request, and the milliseconds of CPU time that the server used between its sending and its end.

    The server has one core, so this is the latency on a quiet machine, without the times in which the server is idle.
    """

    outcome: Outcome
    busy: float


async def _one_by_one(server: Server, client: Client, texts: Sequence[str], seconds: float) -> list[Waited]:
    async def send(text: str) -> Waited:
        before = server.busy_seconds()
        outcome = await client.translate(text)
        return Waited(outcome, 1000 * (server.busy_seconds() - before))

    return await one_by_one(send, texts, seconds)


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
    """Apply the checks of every run, but not of the requests of hostile callers, which are not in the history."""
    await context.check_outcomes(checks, server)
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
async def test_full_queue_drops(context: CaseContext, checks: Checks) -> None:
    """The engine is paused. Both callers send all their requests, in either order. Then the engine continues."""
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
    """Send more requests than the queue holds, which end when the engine continues."""
    tokenizer = open_bundle(context.session.model).tokenizer()
    attack = score("pairs", [("a", target_text(tokenizer, "ja", 255))] * CALL)
    caller = HostileCaller(server.address, key)

    async def send() -> None:
        tally[(await caller.send(attack)).code] += 1

    await asyncio.gather(*(send() for _ in range(CALLS)))
    await caller.close()


async def _running(server: Server) -> bool:
    return (await server.scrape()).sum("lingon_running_sentences") >= 1


REQUESTS, CHARACTERS = 10, 110_000  # quota of the hostile key for a minute
LENGTH = 97_000  # characters of each of its requests
REFUSALS = 2.0  # requests a second that may be looked at and refused beyond the quota
EARLY = {"QUOTA_EXCEEDED"}
"""Reasons of a refusal before the texts are looked at."""
UNUSABLE = "lingon_file_unusable"
GRACE = 2.0  # seconds for which keys of a file that became unusable stay valid
NOTICE = 15.0  # seconds in which a server notices a change of its files without a call


@case(
    "full queue of another caller; a key of 10 requests a minute sends 97,000 characters again and again: <= 10 and 2 "
    "a second are looked at, the others are refused by the quota",
    figures=(
        "requests looked at",
        "requests sent",
        "seconds",
        "CPU seconds a second",
    ),
)
async def test_quota_of_refused_requests(context: CaseContext, checks: Checks) -> None:
    """The engine is paused with a queue that another key has nearly filled with short texts, so nothing is served."""
    pause, seconds = context.switch("pause"), context.choose(10.0, 5.0)
    quota = {"requests_per_minute": REQUESTS, "characters_per_minute": CHARACTERS}
    keys = write_api_keys(context.scratch / "keys.toml", "flood", "hostile", "polite", hostile=quota)
    more: dict[str, Any] = {"failpoints": f"step=hang?{pause}", "hang_seconds": NO_HANG}
    async with context.server(api_keys=context.scratch / "keys.toml", **more) as server:
        polite, flood = (
            context.client(server, "polite", key=keys["polite"]),
            HostileCaller(server.address, keys["flood"]),
        )
        await polite.translate(context.texts[0])
        pause.on()
        short = translate("short texts", [text for text in context.texts if len(text) <= 25][:200], beam_size=1)
        filling = [asyncio.create_task(flood.send(short)) for _ in range(5)]
        await context.wait_until("the queue is nearly full", lambda: _queued(server, 800), seconds=30.0)
        hostile = HostileCaller(server.address, keys["hostile"])
        before = server.cpu_seconds()
        async with hostile.attacking([_chapter(context)]) as tally:
            await asyncio.sleep(seconds)
            spent, ended = server.cpu_seconds() - before, tally.ended.total()
            early = sum(tally.reasons[reason] for reason in EARLY)
        pause.off()
        await asyncio.gather(*filling)
        await asyncio.gather(hostile.close(), flood.close())
        checks.measured("requests sent", ended)
        checks.measured("seconds", seconds, "s")
        checks.measured("CPU seconds a second", spent / seconds, "s")
        checks.at_least("requests refused for the full queue", tally.reasons["QUEUE_FULL"], 1)
        checks.at_most("requests looked at", ended - early, REQUESTS + REFUSALS * seconds)
        checks.at_least("requests refused by the quota", early, 1)
        checks.equal("a call of another key afterwards", (await polite.translate(context.texts[1])).code, OK)


def _chapter(context: CaseContext) -> Attack:
    """Return a long text whose sentences are so long that a queue could hold them all."""
    plain = [text.rstrip(".!?") for text in context.texts]
    joined = [", and ".join(plain[place : place + 3]) + "." for place in range(0, len(plain) - 3, 3)]
    sentences = [text for text in joined if len(text) >= 100]
    text = " ".join(sentences[place % len(sentences)] for place in range(LENGTH // 80))[:LENGTH]
    return split("a chapter", [text])


async def _queued(server: Server, texts: int) -> bool:
    return (await server.scrape()).sum("lingon_queue_depth") >= texts


@case(
    "a removed key is refused; a file with a typo, or none, shows in a metric and in the log within 15 s, without a "
    "call, and after credential_grace_seconds lets nobody in; after it is mended the metric is 0",
    figures=(
        "a key that the file no longer has",
        "metric, a typo",
        "metric, no file",
        "metric, mended",
        "a call after the grace",
    ),
)
async def test_unusable_key_file(context: CaseContext, checks: Checks) -> None:
    """A key is removed. Then the file is broken in two ways. Then it is repaired."""
    path = context.scratch / "keys.toml"
    first = write_api_keys(path, "old")["old"]
    async with context.server(api_keys=path) as server:
        old = context.client(server, "old", key=first)
        checks.equal("a key of the file", (await old.translate(context.texts[0])).code, OK)
        second = write_api_keys(path, "new")["new"]
        new = context.client(server, "new", key=second)
        await context.wait_until("the new file is used", lambda: _works(context, new))
        checks.equal("a key that the file no longer has", (await old.translate(context.texts[1])).code, REFUSED)
        keys = KeyFile(path)
        checks.equal("metric, usable", await _unusable(server), 0.0)
        keys.damage()
        checks.equal("metric, a typo", await _unusable_within(server, 1.0), 1.0)
        checks.at_least("log lines, a typo", _complaints(server, path), 1)
        path.unlink()
        await asyncio.sleep(2.0)
        checks.equal("metric, no file", await _unusable_within(server, 1.0), 1.0)
        checks.equal("the latest good content still counts", (await new.translate(context.texts[2])).code, OK)
        keys.mend()
        checks.equal("metric, mended", await _unusable_within(server, 0.0), 0.0)
    context.new_history()
    try:
        await _grace_ends(context, checks, path)
    except LingonError as error:  # the server of an older checkout does not know the setting
        context.note(f"{error}")
        checks.equal("a call after the grace", "the server does not start", NOBODY)


async def _grace_ends(context: CaseContext, checks: Checks, path: Path) -> None:
    """Check that after credential_grace_seconds a file that cannot be used admits nobody, until it is repaired."""
    key = write_api_keys(path, "some")["some"]
    keys = KeyFile(path)
    async with context.server(api_keys=path, credential_grace_seconds=GRACE) as server:
        client = context.client(server, "some", key=key)
        checks.equal("a call before the grace", (await client.translate(context.texts[0])).code, OK)
        keys.damage()
        await _unusable_within(server, 1.0)
        await asyncio.sleep(GRACE + 1.0)
        checks.equal("a call after the grace", (await client.translate(context.texts[1])).reason, NOBODY)
        keys.mend()
        await _unusable_within(server, 0.0)
        checks.equal("a call after the file was mended", (await client.translate(context.texts[2])).code, OK)


NOBODY = "AUTHENTICATION_UNAVAILABLE"  # the reason of a refusal while the server cannot tell who may call
REFUSED = "UNAUTHENTICATED"


class KeyFile:
    """A usable file of keys, which can be damaged and mended."""

    def __init__(self, path: Path) -> None:
        self._path, self._good = path, path.read_text(encoding="utf-8")

    def damage(self) -> None:
        """Write a typo into the file."""
        self._path.write_text(self._good.replace("[[key]]", "[[key]"), encoding="utf-8")

    def mend(self) -> None:
        """Write what was in the file at first."""
        self._path.write_text(self._good, encoding="utf-8")


async def _works(context: CaseContext, client: Any) -> bool:
    return bool((await client.translate(context.texts[0])).code == OK)


async def _unusable(server: Server) -> float:
    """Return how many of the server's files it cannot use, by its metric; nan if it has none."""
    try:
        return (await server.scrape()).sum(UNUSABLE)
    except KeyError:
        return math.nan


async def _unusable_within(server: Server, expected: float) -> float:
    """Return the metric when it has the expected value, or after NOTICE seconds. Make no call meanwhile."""
    end = time.monotonic() + NOTICE
    while (value := await _unusable(server)) != expected and time.monotonic() < end:  # noqa: ASYNC110
        await asyncio.sleep(0.25)
    return value


def _complaints(server: Server, path: Path) -> int:
    """Return the warnings and errors in the log that name the file."""
    levels = ("warning", "error")
    return sum(event["level"] in levels and path.name in str(event) for event in server.events())
