"""Requests that are legal and cost much: many parts, calls that never end, long scores, large replies.

Two cases use a model of the size of a Transformer base, because the shipped one is too small to show them.
"""

from __future__ import annotations

import asyncio
import math
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from lingon.bundle.store import open_bundle
from lingon.translation.v1 import translation_pb2 as pb
from tests.reliability.attackers import (
    MAY_NEED,
    OPTIONS,
    QUIET,
    SLOWER,
    Attack,
    HostileCaller,
    Observed,
    Reply,
    UnfinishedCalls,
    empty_pairs,
    marked_texts,
    may_need,
    observed,
    score,
    split,
    target_text,
    tiny_sentences,
    translate,
    wait,
)
from tests.reliability.case import case
from tests.reliability.checks import Checks
from tests.reliability.clients import Client, closed_loop
from tests.reliability.context import CaseContext
from tests.reliability.history import OK, Outcome, p99
from tests.reliability.models import MAX_SOURCE, MAX_TARGET, base_model, text_of
from tests.reliability.server import Server, write_api_keys
from tests.support.repository import ROOT

SIZES = ((100_000, 1), (1_048_000, 1), (4_190_000, 4))  # characters of a request, and texts that they are in
PLANNING = 1.0  # seconds of CPU time that planning one request may cost
MEMORY = 64.0  # megabytes above those before it: about 15 times the largest message
PARSED = 160.0  # megabytes: a message of 4 MB in which every two bytes are a message of their own, parsed
STOPPED = 0.5  # seconds for which the positive control stops the server
SENTENCES = 200  # of the book that the server does translate


@case(
    "0.1, 1.05 and 4.19 MB of tiny sentences, 2 million empty pairs: refused; 256 texts of combining marks: answered; "
    "<= 1 s of CPU, health silent <= 0.25 s, memory + 64 MB at most (empty pairs 160 MB)",
    figures=(
        "CPU, 0.1 MB in tiny sentences",
        "CPU, 1.05 MB in tiny sentences",
        "CPU, 4.19 MB in tiny sentences",
        "health silent, 4.19 MB in tiny sentences",
        "memory at its peak, 4.19 MB in tiny sentences",
        "silence while the server is stopped",
    ),
)
async def test_texts_of_many_parts(context: CaseContext, checks: Checks) -> None:
    """One request at a time to a server of its own, then a book that is long but has few enough sentences."""
    for characters, texts in SIZES:
        async with context.server() as server:
            client = context.client(server)
            await client.translate(context.texts[0])
            await _refused(context, checks, server, client, tiny_sentences(characters, texts))
            if characters == SIZES[0][0]:
                await _silence_is_seen(checks, server, client)
                await _book(context, checks, server)
    await _one_by_one(context, checks)


async def _refused(context: CaseContext, checks: Checks, server: Server, client: Client, attack: Attack) -> None:
    caller = HostileCaller(server.address)
    async with observed(server, client) as found:
        reply = await caller.send(attack)
    await caller.close()
    name = attack.name
    checks.equal(f"answer, {name}", reply.code, "INVALID_ARGUMENT")
    checks.at_most(f"CPU, {name}", found.cpu, PLANNING, "s")
    checks.at_most(f"health silent, {name}", found.health.longest, QUIET, "s", timing=True)
    checks.at_most(f"/healthz silent, {name}", found.http.longest, QUIET, "s", timing=True)
    checks.equal(f"answers of /healthz, {name}", set(found.http.answers), {"200"})
    checks.at_most(f"memory at its peak, {name}", found.peak, MEMORY, "MB")
    checks.measured(f"memory kept, {name}", found.kept, "MB")


async def _one_by_one(context: CaseContext, checks: Checks) -> None:
    """Send texts of combining marks, which are answered, and millions of empty messages."""
    async with context.server() as server:
        client, caller = context.client(server), HostileCaller(server.address)
        await client.translate(context.texts[0])
        for attack, code in ((marked_texts(), OK), (empty_pairs(), "INVALID_ARGUMENT")):
            async with observed(server, client) as found:
                reply = await caller.send(attack)
            checks.equal(f"answer, {attack.name}", reply.code, code)
            checks.at_most(f"CPU, {attack.name}", found.cpu, PLANNING, "s")
            checks.at_most(f"health silent, {attack.name}", found.health.longest, QUIET, "s", timing=True)
            checks.at_most(f"memory at its peak, {attack.name}", found.peak, PARSED, "MB")
        await caller.close()


async def _silence_is_seen(checks: Checks, server: Server, client: Client) -> None:
    """Check as a positive control that the probes notice a server that does nothing for a while."""
    async with observed(server, client) as found:
        server.signal(signal.SIGSTOP)
        await asyncio.sleep(STOPPED)
        server.signal(signal.SIGCONT)
    checks.at_least("silence while the server is stopped", found.health.longest, STOPPED, "s")
    checks.at_least("silence of /healthz while the server is stopped", found.http.longest, STOPPED, "s")


async def _book(context: CaseContext, checks: Checks, server: Server) -> None:
    """Check that a long text of whole sentences is still translated, so that not every long text is refused."""
    caller = HostileCaller(server.address)
    sentences = context.texts[: context.choose(SENTENCES, 60)]
    reply = await caller.send(split("a book", [" ".join(sentences)]))
    await caller.close()
    checks.equal("answer, a book", reply.code, OK)
    results = pb.TranslateResponse.FromString(reply.body).results
    words = sum(len(translation.text.split()) for result in results for translation in result.hypotheses)
    checks.at_least("words of the book's translation", words, 3 * len(sentences))


WATCH = "/grpc.health.v1.Health/Watch"
TRANSLATE = "/lingon.translation.v1.TranslationService/Translate"
LARGE, LARGE_CALLS = 4_000_000, 60  # bytes of a service name, and calls with it on one connection
CONNECTIONS = 4  # of the flood of calls without a name
OPEN = "still open"
MIB = 2**20
HELD = 128.0  # megabytes of unfinished requests that a server may hold of one caller: 80 MiB, and what glibc keeps
UNFINISHED, CALLS = 4 * MIB - 16, 64  # bytes of each unfinished message, and calls of a connection


@case(
    "60 calls with a name of 4 MB: refused, memory + 120 MB at most; thousands without a name: bounded, + 64 MB at "
    "most; callers with a key and a proper watch are served meanwhile",
    figures=(
        "calls still open, names of 4 MB",
        "memory kept, names of 4 MB",
        "calls still open, without a name",
        "memory kept, without a name",
    ),
)
async def test_health_watch_flood(context: CaseContext, checks: Checks) -> None:
    """API keys are on, and the flood has none. A watch of a load balancer, which needs none either, continues."""
    keys = write_api_keys(context.scratch / "keys.toml", "polite")
    for name, service, calls in (
        ("names of 4 MB", "x" * LARGE, LARGE_CALLS),
        ("without a name", "", context.choose(6000, 3000)),
    ):
        context.new_history()
        async with context.server(api_keys=context.scratch / "keys.toml") as server:
            polite, states = context.client(server, "polite", key=keys["polite"]), list[str]()
            await polite.translate(context.texts[0])
            proper = asyncio.create_task(polite.watch(states.append))
            await context.wait_until("the watch has its first state", partial(bool, states))
            found, ended = await _flooded(server, polite, service, calls)
            checks.equal(f"watch of a load balancer, {name}", states, ["SERVING"])
            checks.equal(f"a call with a key afterwards, {name}", (await polite.translate(context.texts[1])).code, OK)
            proper.cancel()
        checks.measured(f"calls still open, {name}", ended[OPEN])
        checks.at_least(f"calls refused, {name}", ended.total() - ended[OPEN], LARGE_CALLS)
        refusals = set(ended) - {OPEN}
        checks.equal(f"codes of the refusals, {name}", refusals <= {"RESOURCE_EXHAUSTED", "INVALID_ARGUMENT"}, True)
        checks.measured(f"memory at its peak, {name}", found.peak, "MB")
        checks.at_most(f"memory kept, {name}", found.kept, 120.0 if service else 64.0, "MB")


async def _flooded(server: Server, polite: Client, service: str, calls: int) -> tuple[Observed, Counter[str]]:
    """Open Watch calls, hold them for a while, and return observations of the server and the ends of the calls."""
    request = health_pb2.HealthCheckRequest(service=service).SerializeToString()
    ended: Counter[str] = Counter()
    async with observed(server, polite) as found:
        channels = [grpc.aio.insecure_channel(server.address, options=OPTIONS) for _ in range(CONNECTIONS)]
        tasks = [
            asyncio.create_task(_watch(channels[number % (1 if service else CONNECTIONS)], request, ended))
            for number in range(calls)
        ]
        await _decided(ended, calls)
    ended[OPEN] = sum(not task.done() for task in tasks)
    for channel in channels:
        await channel.close()
    await asyncio.gather(*tasks, return_exceptions=True)
    return found, ended


async def _watch(channel: Any, request: bytes, ended: Counter[str]) -> None:
    """Make one call. `answered` counts the first answers, which show that the server has taken the call."""
    try:
        async for _ in channel.unary_stream(WATCH)(request):
            ended["answered"] += 1
    except grpc.aio.AioRpcError as error:
        ended[error.code().name] += 1


async def _decided(ended: Counter[str], calls: int, seconds: float = 60.0) -> None:
    """Wait until every call was answered or ended, for `seconds` at most and a second more. Reset the answers."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and ended.total() < calls:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    await asyncio.sleep(1.0)  # a call that was answered may still be ended for the sake of another
    del ended["answered"]


@case(
    "256 calls that send 4 MiB but the last byte: memory + 128 MB at most, all ended by the server within 90 s; others "
    "are served meanwhile",
    figures=(
        "megabytes sent",
        "memory at its peak",
        "calls ended by the server",
        "calls",
        "seconds waited",
    ),
)
async def test_unfinished_messages(context: CaseContext, checks: Checks) -> None:
    """One connection after the other: the caller answers the server's pings and never finishes a message."""
    connections = context.choose(4, 2)
    async with context.server() as server:
        client = context.client(server)
        await client.translate(context.texts[0])
        async with observed(server, client) as found:
            held = [UnfinishedCalls(server.port, TRANSLATE, CALLS, UNFINISHED) for _ in range(connections)]
            for each in held:
                each.__enter__()
                await asyncio.to_thread(wait, each, 10.0)
            begun = time.monotonic()
            beside = [await client.translate(text) for text in context.texts[:20]]
            await _ended(held, context.choose(90.0, 20.0))
            waited = time.monotonic() - begun
        sent, ended = sum(each.sent for each in held), sum(each.ended for each in held)
        ended += sum(CALLS - each.ended for each in held if each.closed)
        for each in held:
            each.__exit__(None, None, None)
        after = await client.translate(context.texts[1])
        checks.measured("megabytes sent", sent / 1e6, "MB")
        all_calls = connections * CALLS
        checks.measured("calls", all_calls)
        checks.at_least("calls ended by the server", ended, context.choose(all_calls, 3 * all_calls // 4))
        checks.measured("seconds waited", waited, "s")
        checks.at_most("memory at its peak", found.peak, HELD, "MB")
        checks.at_most("memory kept", found.kept, HELD, "MB")
        checks.equal("other calls that failed", sum(not outcome.good for outcome in [*beside, after]), 0)
        await context.check_run(checks, server, calls_logged=False)


async def _ended(held: Sequence[UnfinishedCalls], seconds: float) -> None:
    """Wait until the server has ended every call, for so many seconds at most."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not all(each.closed or each.ended == CALLS for each in held):  # noqa: ASYNC110
        await asyncio.sleep(0.5)


CACHE = ROOT / "build" / "reliability"
TARGET = MAX_TARGET - 1  # target tokens of a pair, without the end token
MOST_PAIRS = 250  # pairs of a request: with their targets they have nearly the 65,536 tokens that a queue holds
POLITE = 6  # words of a sentence of the polite caller
HOLDS = 1.1  # times the printed bound that memory may reach
LOOSE = 3.0  # times the memory at its peak that the printed bound may be, so that it says something
LIMITED = 'mount -t tmpfs none /sys/fs/cgroup && echo 134217728 > /sys/fs/cgroup/memory.max && exec "$@"'


def _pairs(count: int) -> Attack:
    """Return a Score of this many different pairs of one source word and TARGET target words."""
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
async def test_long_score(context: CaseContext, checks: Checks) -> None:
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
            await server.exited(60.0)  # The code is known at the end, which takes a moment.
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
    """Send one short sentence after the other, a number of times or until the task is done, at least once."""
    texts = [text_of(POLITE, place) for place in range(8)]
    if until is None:
        return await closed_loop(client.translate, texts, 1, requests=requests)
    return await closed_loop(client.translate, texts, 1, until=lambda _: until.done())


def _same_scores(checks: Checks, attack: Attack, single: Reply, reply: Reply) -> None:
    """Check the answer: one result for each pair, and the first as it is alone."""
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
async def test_memory_of_costly_requests(context: CaseContext, checks: Checks) -> None:
    """Each kind of request after the other, on one server.

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
    """Check that a server whose control group allows less than it may need says so at its start."""
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
async def test_large_replies(context: CaseContext, checks: Checks) -> None:
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
