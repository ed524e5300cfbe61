"""Calls that cost memory as long as their callers like, with and without a key."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from chaos.callers.clients import Client
from chaos.case import case
from chaos.context import CaseContext
from chaos.hostile.callers import OPTIONS
from chaos.hostile.probes import Observed, observed
from chaos.hostile.unfinished import UnfinishedCalls, wait
from chaos.server import Server, write_api_keys
from chaos.verdict.checks import Checks
from chaos.verdict.history import OK

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
async def health_watch_flood(context: CaseContext, checks: Checks) -> None:
    """API keys are on; the flood has none. A watch of a load balancer, which needs none either, goes on."""
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
    """Open Watch calls and hold them for a while; returns what the server did, and how the calls ended."""
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
    """One call; `answered` counts the first answers, which show that the server has taken the call."""
    try:
        async for _ in channel.unary_stream(WATCH)(request):
            ended["answered"] += 1
    except grpc.aio.AioRpcError as error:
        ended[error.code().name] += 1


async def _decided(ended: Counter[str], calls: int, seconds: float = 60.0) -> None:
    """Wait until every call was answered or ended, for `seconds` at most, and a second more; forget the answers."""
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
async def unfinished_messages(context: CaseContext, checks: Checks) -> None:
    """One connection after the other; the caller answers the server's pings and never finishes a message."""
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
