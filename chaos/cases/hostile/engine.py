"""Requests that keep an engine busy for long, their memory, and replies of megabytes.

The first two use a model of the size of a Transformer base, because the shipped one is too small to show either.
"""

from __future__ import annotations

import asyncio
import math
import subprocess
from typing import Any

from chaos.callers.clients import Client, closed_loop
from chaos.case import case
from chaos.context import ROOT, CaseContext
from chaos.hostile.attacks import Attack, score, target_text, translate
from chaos.hostile.base_model import MAX_SOURCE, MAX_TARGET, base_model, text_of
from chaos.hostile.callers import HostileCaller, Reply
from chaos.hostile.probes import MAY_NEED, QUIET, SLOWER, may_need, observed
from chaos.server import Server, write_api_keys
from chaos.verdict.checks import Checks
from chaos.verdict.history import OK, Outcome, p99
from lingon.bundle import open_bundle
from lingon.translation.v1 import translation_pb2 as pb

CACHE = ROOT / "build" / "chaos"
TARGET = MAX_TARGET - 1  # target tokens of a pair, without the end token
MOST_PAIRS = 250  # pairs of a request: with their targets they have nearly the 65,536 tokens that a queue holds
POLITE = 6  # words of a sentence of the polite caller
HOLDS = 1.1  # times the printed bound that memory may reach
LOOSE = 3.0  # times the memory at its peak that the printed bound may be, so that it says something
LIMITED = 'mount -t tmpfs none /sys/fs/cgroup && echo 134217728 > /sys/fs/cgroup/memory.max && exec "$@"'


def _pairs(count: int) -> Attack:
    """A Score of so many different pairs of one source word and TARGET target words."""
    return score(f"Score of {count} pairs", [(text_of(1, place), text_of(TARGET, place)) for place in range(count)])


@case(
    "base-size model, 64 and 250 pairs of one source word and 255 target tokens: answered, though they take longer "
    "than hang_seconds; nothing is called a hang; p99 of a polite caller meanwhile <= 3 x alone",
    figures=(
        "answer, Score of 64 pairs",
        "hang_seconds that it takes, Score of 64 pairs",
        "p99 relative to alone, Score of 64 pairs",
        "answer, Score of 250 pairs",
        "hang_seconds that it takes, Score of 250 pairs",
        "p99 relative to alone, Score of 250 pairs",
    ),
)
async def long_score(context: CaseContext, checks: Checks) -> None:
    """One Score at a time to a server of its own, beside one caller with another key."""
    for count in context.choose((64, MOST_PAIRS), (64,)):
        context.new_history()
        await _one_score(context, checks, _pairs(count))


async def _one_score(context: CaseContext, checks: Checks, attack: Attack) -> None:
    keys = write_api_keys(context.scratch / "keys.toml", "polite", "hostile")
    hang_seconds = 4.0
    model = base_model(CACHE).folder
    settings: dict[str, Any] = {"api_keys": context.scratch / "keys.toml", "hang_seconds": hang_seconds}
    async with context.server(model=model, **settings) as server:
        caller = HostileCaller(server.address, keys["hostile"])
        polite = context.client(server, "polite", key=keys["polite"])
        alone = await _polite_loop(polite, requests=20)
        single = await caller.send(_pairs(1))
        before, loop = asyncio.get_running_loop().time(), asyncio.get_running_loop()
        sent = asyncio.create_task(caller.send(attack))
        await asyncio.sleep(0.5)
        beside = await _polite_loop(polite, until=sent)
        reply, spent = await sent, loop.time() - before
        await caller.close()
        checks.equal(f"answer, {attack.name}", reply.code, OK)
        _same_scores(checks, attack, single, reply)
        checks.at_least(f"hang_seconds that it takes, {attack.name}", spent / hang_seconds, 1.0)
        hung = len(server.events("an engine hangs"))
        if hung:
            await server.exited(60.0)  # the code is that of the end, which takes a moment
        checks.equal(f"engines called hung, {attack.name}", hung, 0)
        checks.equal(f"exit code, {attack.name}", server.exit_code, None)
        checks.equal(f"errors of the polite caller, {attack.name}", sum(not outcome.good for outcome in beside), 0)
        checks.measured(f"p99 of the polite caller alone, {attack.name}", p99(alone), "ms")
        checks.measured(f"requests of the polite caller meanwhile, {attack.name}", len(beside))
        what = f"p99 relative to alone, {attack.name}"
        checks.at_most(what, p99(beside) / p99(alone), SLOWER, "x", timing=True)
        if server.exit_code is None:
            again = await polite.translate(text_of(POLITE))
            checks.equal(f"a request afterwards, {attack.name}", again.code, OK)


async def _polite_loop(
    client: Client, *, requests: int | None = None, until: asyncio.Task[Reply] | None = None
) -> list[Outcome]:
    """One short sentence after the other, a number of times or until the task is done, at least once."""
    texts = [text_of(POLITE, place) for place in range(8)]
    if until is None:
        return await closed_loop(client.translate, texts, 1, requests=requests)
    return await closed_loop(client.translate, texts, 1, until=lambda _: until.done())


def _same_scores(checks: Checks, attack: Attack, single: Reply, reply: Reply) -> None:
    """The control of the answer: one result for each pair, and the first as it is alone."""
    alone, scored = pb.ScoreResponse.FromString(single.body), pb.ScoreResponse.FromString(reply.body)
    asked = len(pb.ScoreRequest.FromString(attack.body).pairs)
    finite = sum(math.isfinite(result.log_prob) and len(result.tokens) == TARGET + 1 for result in scored.results)
    checks.equal(f"pairs scored, {attack.name}", finite, asked)
    same = [result.log_prob for result in scored.results[:1]] == [result.log_prob for result in alone.results]
    checks.equal(f"the first pair as it is alone, {attack.name}", same, True)


@case(
    "base-size model: long translations, beam 8 with alignment, Score: memory at most 10 % above the printed 'may need "
    "N MiB', and N at most 3 x the peak; no engine dies; a control group with less than N is noticed at the start",
    figures=(
        "memory that the server says it may need",
        "memory at its peak",
        "memory when ready",
        "memory after all",
        "warnings at the start, a limit of 128 MiB",
    ),
)
async def memory_of_costly_requests(context: CaseContext, checks: Checks) -> None:
    """Each kind of request in turn, on one server.

    Every translation is as long as the model allows. There, an alignment once asked the scorer for one position more
    than it has, which ended the engine.
    """
    count = context.choose(64, 16)
    long = [text_of(MAX_SOURCE - 1, 100 * place) for place in range(count)]
    attacks = [
        translate("long translations", long, beam_size=1),
        translate("beam 8 with alignment", long[: count // 4], beam_size=8, num_hypotheses=8, return_alignment=True),
        _pairs(count),
        score("Score with alignment", [(text, text_of(TARGET)) for text in long], alignment=True),
    ]
    async with context.server(model=base_model(CACHE).folder, hang_seconds=600) as server:
        caller = HostileCaller(server.address)
        ready = server.rss()
        checks.measured("memory when ready", ready, "MB")
        server.forget_peak()
        for attack in attacks:
            reply = await caller.send(attack)
            checks.equal(f"answer, {attack.name}", reply.code, OK)
            checks.measured(f"peak until after {attack.name}", server.peak_rss(), "MB")
            checks.measured(f"kept after {attack.name}", server.rss(), "MB")
        await caller.close()
        checks.equal("engines that died", len(server.events("the engine died")), 0)
        _within_bound(checks, server, ready)
    await _limit_is_noticed(context, checks)


def _within_bound(checks: Checks, server: Server, ready: float) -> None:
    peak, kept = server.peak_rss(), server.rss()
    checks.measured("memory at its peak", peak, "MB")
    checks.measured("memory after all", kept, "MB")
    checks.at_least("memory that the requests took", peak - ready, 50.0, "MB")
    needed = may_need(server.log)
    checks.at_least("memory that the server says it may need", needed, 1.0, "MB")
    checks.at_most("memory at its peak relative to that", peak / needed, HOLDS, "x")
    checks.at_most("memory after all relative to that", kept / needed, HOLDS, "x")
    checks.at_most("that relative to the memory at its peak", needed / peak, LOOSE, "x")


async def _limit_is_noticed(context: CaseContext, checks: Checks) -> None:
    """A server whose control group allows less than it may need says so at its start."""
    prefix = ["unshare", "--mount", "sh", "-c", LIMITED, "sh"]
    probe = subprocess.run([*prefix, "true"], capture_output=True, text=True, check=False)  # noqa: ASYNC221
    if probe.returncode:
        checks.not_run(f"a limit of the control group: {probe.stderr.strip()}")
        return
    servers: tuple[tuple[str, dict[str, Any], int], ...] = (
        ("a limit of 128 MiB", {"prefix": prefix}, 1),
        ("no limit", {}, 0),
    )
    for name, more, warnings in servers:
        async with context.server(**more) as server:
            found = [event for event in server.events() if MAY_NEED.search(event["message"])]
            warned = [event for event in found if event["level"] == "warning"]
        checks.equal(f"warnings at the start, {name}", len(warned), warnings)


@case(
    "Score of 128 pairs with alignment, beam 8 with tokens and alignment of 8 hypotheses: answered; health silent <= "
    "0.25 s while the replies are made",
    figures=(
        "health silent, Score with alignment",
        "health silent, beam 8 with all",
        "reply, Score with alignment",
        "reply, beam 8 with all",
    ),
)
async def large_replies(context: CaseContext, checks: Checks) -> None:
    """Small requests with replies of megabytes, on the model of the session, whose results end together."""
    bundle = open_bundle(context.session.model)
    target = target_text(bundle.tokenizer(), "ja", bundle.manifest.limits.max_target_tokens - 1)
    long = context.session.long_texts(context.choose(128, 64), 80)
    attacks = [
        score("Score with alignment", [(text, target) for text in long], alignment=True),
        translate(
            "beam 8 with all",
            [text for text in context.texts if len(text) <= 40][: context.choose(256, 64)],
            beam_size=8,
            num_hypotheses=8,
            return_tokens=True,
            return_alignment=True,
        ),
    ]
    async with context.server(hang_seconds=600) as server:
        client, caller = context.client(server), HostileCaller(server.address)
        await client.translate(context.texts[0])
        for attack in attacks:
            async with observed(server, client) as found:
                reply = await caller.send(attack)
            checks.equal(f"answer, {attack.name}", reply.code, OK)
            checks.at_least(f"reply, {attack.name}", len(reply.body) / 1e6, 0.1, "MB")
            checks.at_most(f"health silent, {attack.name}", found.health.longest, QUIET, "s", timing=True)
        await caller.close()
