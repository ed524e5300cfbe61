"""Quotas of calls that are refused, and files of keys that cannot be used."""

from __future__ import annotations

import asyncio
import math
import time
from pathlib import Path
from typing import Any

from chaos.case import case
from chaos.context import CaseContext
from chaos.hostile.attacks import Attack, split, translate
from chaos.hostile.callers import HostileCaller
from chaos.server import NO_HANG, Server, write_api_keys
from chaos.verdict.checks import Checks
from chaos.verdict.history import OK
from lingon.errors import LingonError

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
async def quota_of_refused_requests(context: CaseContext, checks: Checks) -> None:
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
    """A long text whose sentences are so long that a queue could hold them all."""
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
async def unusable_key_file(context: CaseContext, checks: Checks) -> None:
    """A key is taken out; then the file is broken in two ways; then it is whole again."""
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
        context.session.log(f"  {error}")
        checks.equal("a call after the grace", "the server does not start", NOBODY)


async def _grace_ends(context: CaseContext, checks: Checks, path: Path) -> None:
    """After credential_grace_seconds nobody is let in by a file that cannot be used any more, until it is mended."""
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
        """Leave a typo in the file."""
        self._path.write_text(self._good.replace("[[key]]", "[[key]"), encoding="utf-8")

    def mend(self) -> None:
        """Write what was in the file at first."""
        self._path.write_text(self._good, encoding="utf-8")


async def _works(context: CaseContext, client: Any) -> bool:
    return bool((await client.translate(context.texts[0])).code == OK)


async def _unusable(server: Server) -> float:
    """How many of the server's files it cannot use, by its metric; nan if it has none."""
    try:
        return (await server.scrape()).sum(UNUSABLE)
    except KeyError:
        return math.nan


async def _unusable_within(server: Server, expected: float) -> float:
    """The metric when it has the expected value, or after NOTICE seconds. No call is made meanwhile."""
    end = time.monotonic() + NOTICE
    while (value := await _unusable(server)) != expected and time.monotonic() < end:  # noqa: ASYNC110
        await asyncio.sleep(0.25)
    return value


def _complaints(server: Server, path: Path) -> int:
    """The warnings and errors in the log that name the file."""
    levels = ("warning", "error")
    return sum(event["level"] in levels and path.name in str(event) for event in server.events())
