"""Overload: goodput, which requests are refused, and how both ports and all callers share what is left.

Most cases slow the server, so that they measure how it treats overload, not how fast this process sends. Two cases
measure the server as it ships: one with h2load, which shares no code with Lingon. Its calls have a deadline of a
second, and only those that the server answers in time count: with OK, by its own counter, since a call that its client
has given up is counted as CANCELLED or DEADLINE_EXCEEDED. The peak is the goodput of a closed loop of 64 calls at once.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

import tests.reliability.checker as checker
from lingon.bench.results_file import percentile
from lingon.bench.worker_process import Cores, on_cores
from lingon.translation.v1 import translation_pb2 as pb
from tests.reliability.case import case
from tests.reliability.checks import Checks, Skip
from tests.reliability.clients import Client, HttpClient, Send, closed_loop, open_loop
from tests.reliability.context import SLOWED, SLOWED_QUEUE, CaseContext
from tests.reliability.history import DEADLINE_EXCEEDED, NOT_BEGUN, OK, RESOURCE_EXHAUSTED, Outcome, p99
from tests.reliability.server import CHECK_PAUSE, Server, write_api_keys
from tests.support.ports import free_port

TEXT = "Tom lives in Boston."
METHODS: dict[str, Message] = {
    "Translate": pb.TranslateRequest(texts=[TEXT]),
    "TranslateStream": pb.TranslateStreamRequest(texts=[TEXT]),
}
PATH = "/lingon.translation.v1.TranslationService/"
CONNECTIONS = 20
CLOSED = ["--clients=4", "--max-concurrent-streams=16"]  # 64 calls at once
SETTLED = 2.0  # seconds between two loads, in which the calls of the first one end


@dataclass(frozen=True, slots=True)
class Point:
    """One load. offered: calls a second, 0 for the closed loop; goodput: calls a second that ended with OK."""

    method: str
    times: float
    offered: float
    goodput: float


async def h2load(address: str, method: str, cores: Cores, seconds: float, options: Sequence[str], folder: Path) -> None:
    """Send calls of a method for some seconds. Raise Skip without h2load."""
    if shutil.which("h2load") is None:
        raise Skip("no h2load command; make e2e installs it")
    body, message = folder / f"{method}.bin", METHODS[method].SerializeToString()
    body.write_bytes(b"\0" + len(message).to_bytes(4, "big") + message)
    headers = ["--header=content-type: application/grpc", "--header=te: trailers", "--header=grpc-timeout: 1S"]
    with on_cores(cores):
        process = await asyncio.create_subprocess_exec(
            *["h2load", f"--duration={seconds:g}", *options, *headers, f"--data={body}"],
            f"http://{address}{PATH}{method}",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
    await process.wait()


async def goodput(server: Server, method: str, cores: Cores, seconds: float, options: Sequence[str]) -> float:
    """Return the calls of a load that ended with OK, per second."""

    async def answered() -> float:
        return (await server.scrape()).sum("lingon_requests_total", method=method, code="OK")

    before = await answered()
    await h2load(server.address, method, cores, seconds, options, server.folder)
    await asyncio.sleep(SETTLED)
    return (await answered() - before) / seconds


async def measure(server: Server, cores: Cores, seconds: float, loads: Sequence[float]) -> list[Point]:
    """Return the goodput of each method at each load, the closed loop first."""
    points = []
    for method in METHODS:
        await goodput(server, method, cores, min(seconds, 2.0), CLOSED)  # warms up
        peak = await goodput(server, method, cores, seconds, CLOSED)
        points.append(Point(method, 0.0, 0.0, peak))
        for times in loads:
            rate = max(round(times * peak / CONNECTIONS), 1)
            options = [f"--clients={CONNECTIONS}", "--max-concurrent-streams=200", f"--rps={rate}"]
            found = await goodput(server, method, cores, seconds, options)
            points.append(Point(method, times, float(rate * CONNECTIONS), found))
    return points


OBJECTIVE = 1000.0  # milliseconds of the latency objective
LOADS = (1, 2, 5, 10)  # multiples of the capacity

SHIPPED = {1.5: 75.0, 2.0: 55.0, 5.0: 40.0, 10.0: 25.0}
"""Multiples of the capacity of the server as it ships, and the goodput that is left at least, in % of the peak.

On one core a refusal takes a fifth to a tenth of a translation, most of it inside gRPC and the network.
"""


SENDERS = ("HTTP alone", "gRPC alone", "both")
PATIENCE = 3.0  # seconds that a client of either port waits
PAUSE = 3.0  # seconds between two loads, in which the calls of the first one end


def _shipped(method: str, times: float) -> str:
    return f"{method} at {times:g}x"


def refused(outcome: Outcome) -> bool:
    """Return whether the server rejected or dropped the request before it ran."""
    return outcome.code == RESOURCE_EXHAUSTED or outcome.reason in NOT_BEGUN


@case(
    "a server slowed to 25 texts/s: goodput at 5x and 10x >= 90 % of the peak; accepted p99 <= 1.2 s; "
    "refusals p99 <= 50 ms; RSS growth <= 50 MB",
    figures=(
        "goodput at 1x",
        "goodput at 2x",
        "goodput at 5x",
        "goodput at 10x",
        "accepted p99 at 1x",
        "accepted p99 at 2x",
        "accepted p99 at 5x",
        "accepted p99 at 10x",
        "refusals p99 at 5x",
        "refusals p99 at 10x",
        "RSS growth",
    ),
)
async def test_goodput_of_a_slowed_server(context: CaseContext, checks: Checks) -> None:
    """Open loops of Poisson arrivals, 60 s each, with a deadline of 2 s and an objective of 1 s."""
    async with context.server(**SLOWED, max_queue_texts=SLOWED_QUEUE) as server:
        client, seconds = context.client(server), context.choose(60.0, 6.0)

        async def send(text: str, due: float | None = None) -> Outcome:
            return await client.translate(text, deadline=2 * OBJECTIVE / 1000, due=due)

        capacity = await context.capacity(send, context.texts, 16)
        before, good = server.rss(), dict[int, float]()
        for times in LOADS:
            outcomes = await open_loop(send, context.texts, times * capacity, seconds, seed=times)
            good[times] = sum(outcome.good and outcome.milliseconds <= OBJECTIVE for outcome in outcomes) / seconds
            taken, turned_away = [f for f in outcomes if not refused(f)], [f for f in outcomes if refused(f)]
            checks.at_most(f"accepted p99 at {times}x", p99(taken), 1.2 * OBJECTIVE, "ms", timing=True)
            if turned_away:
                slowest = percentile([outcome.milliseconds for outcome in turned_away], 99)
                checks.at_most(f"refusals p99 at {times}x", slowest, 50.0, "ms", timing=True)
            context.note(f"{times}x: {dict(Counter(outcome.code for outcome in outcomes))}")
        checks.at_most("capacity", capacity, 100.0, "/s")
        peak = max(good.values())
        for times in LOADS:
            what = f"goodput at {times}x ({good[times]:.1f}/s), of the peak"
            checks.at_least(what, 100 * good[times] / peak, 90.0 if times >= 5 else 0.0, "%", timing=True)
        checks.at_most("RSS growth", server.rss() - before, 50.0, "MB")
        checks.clean("codes", checker.only_codes(context.history, {OK, RESOURCE_EXHAUSTED, DEADLINE_EXCEEDED}))
        await context.check_run(checks, server, calls_logged=False)


@case(
    "of the peak, at 1.5x of the capacity >= 75 %, at 2x >= 55 %, at 5x >= 40 %, at 10x >= 25 %",
    figures=tuple(_shipped(method, times) for method in METHODS for times in SHIPPED),
)
async def test_goodput_as_shipped(context: CaseContext, checks: Checks) -> None:
    """The settings and the model of `make serve`, calls of a second, and h2load."""
    async with context.server() as server:
        points = await measure(server, context.session.pinning.clients, context.choose(10.0, 4.0), tuple(SHIPPED))
        peaks = {point.method: point.goodput for point in points if not point.times}
        for point in points:
            if point.times:
                share, bound = 100 * point.goodput / peaks[point.method], SHIPPED[point.times]
                checks.at_least(_shipped(point.method, point.times), share, bound, "%", timing=True)
        checks.equal("server is ready", await context.client(server).health(), "SERVING")


@case(
    "of the capacity, HTTP alone, gRPC alone and both >= 85 %; with both, the port with fewer >= 80 % of the other",
    figures=(
        "capacity",
        *(f"goodput of {name}" for name in SENDERS),
        "the port with fewer, of the other",
        "CPU of the client",
    ),
)
async def test_http_and_grpc_overload(context: CaseContext, checks: Checks) -> None:
    """Poisson arrivals with deadlines of 3 s, which clients of HTTP say in a header, on connections that stay open.

    The capacity is that of a closed loop of 48 calls at once, half over each port. One client process on the other core
    sends all of it: its CPU time is a figure, since a client that lags measures itself.
    """
    port, used = free_port(), time.process_time()
    async with context.server(http_port=port) as server:
        client, http, began = (
            context.client(server),
            HttpClient(port, context.history, keep_alive=True),
            time.monotonic(),
        )
        send = {
            "gRPC": partial(client.translate, deadline=PATIENCE),
            "HTTP": partial(http.translate, deadline=PATIENCE),
        }
        turns = itertools.count()

        async def both(text: str, **more: Any) -> Outcome:
            return await tuple(send.values())[next(turns) % 2](text, **more)

        seconds = context.choose(20.0, 5.0)
        await closed_loop(both, context.texts, 48, seconds=2.0)  # warms up
        capacity = sum(each.good for each in await closed_loop(both, context.texts, 48, seconds=seconds)) / seconds
        checks.at_least("capacity", capacity, 1.0, "/s")
        senders: tuple[Send, ...] = send["HTTP"], send["gRPC"], both
        for name, sender in zip(SENDERS, senders, strict=True):
            outcomes = await open_loop(sender, context.texts, 2 * capacity, seconds, seed=61)
            good = Counter(each.id.partition("-")[0] for each in outcomes if each.good)
            share = 100 * good.total() / seconds / capacity
            checks.at_least(f"goodput of {name}", share, 85.0, "%", timing=True)
            context.note(f"{name}: {dict(Counter((each.code, each.reason) for each in outcomes))}")
            await asyncio.sleep(PAUSE)
        fewer = 100 * min(good["http"], good["client"]) / max(*good.values(), 1)
        checks.at_least("the port with fewer, of the other", fewer, 80.0, "%", timing=True)
        cpu = 100 * (time.process_time() - used) / (time.monotonic() - began)
        checks.at_most("CPU of the client", cpu, 70.0, "%", timing=True)
        http.close()
        await context.check_run(checks, server, calls_logged=False)


@case(
    "5 s after a 10x load of 30 s, the p99 at 0.5x is at most 1.2 x its baseline, without errors",
    figures=(
        "p99 5 s after the overload relative to the baseline",
        "errors 5 s after the overload",
        "refused in the overload",
    ),
)
async def test_recovery_after_overload(context: CaseContext, checks: Checks) -> None:
    """Load of half the capacity, then of ten times the capacity, then of half the capacity again."""
    async with context.server(**SLOWED, max_queue_texts=SLOWED_QUEUE) as server:
        client, seconds = context.client(server), context.choose(20.0, 6.0)

        async def send(text: str, due: float | None = None) -> Outcome:
            return await client.translate(text, deadline=5.0, due=due)

        capacity = await context.capacity(send, context.texts, 16)
        usual = p99(await open_loop(send, context.texts, capacity / 2, seconds, seed=1))
        flood = await open_loop(send, context.texts, 10 * capacity, context.choose(30.0, 5.0), seed=2)
        over = time.monotonic()
        after = await open_loop(send, context.texts, capacity / 2, 5.0 + seconds, seed=1)
        later = [outcome for outcome in after if outcome.due > over + 5.0]
        checks.at_least("refused in the overload", sum(map(refused, flood)), len(flood) / 2)
        checks.at_most("p99 5 s after the overload relative to the baseline", p99(later) / usual, 1.2, "x", timing=True)
        checks.equal("errors 5 s after the overload", sum(not outcome.good for outcome in later), 0)
        await context.check_run(checks, server, calls_logged=False)


@case(
    "p99 of small requests <= 2 x alone while 4 large ones run; queued source tokens never above the limit of 24,000",
    figures=(
        "p99 of small requests relative to alone",
        "most queued source tokens",
        "further large requests refused",
    ),
)
async def test_token_weighted_admission(context: CaseContext, checks: Checks) -> None:
    """Four clients send 200 texts at a time, three more find the queue full, and 200 short requests come too.

    Steps take 20 ms longer, so that a full batch slows them little, and the case measures the order of scheduling. All
    texts have the same memory width, because every further width would take a step of its own.
    """
    settings: dict[str, Any] = {"failpoints": "step=sleep:0.02", "max_queue_texts": 4096, "max_queue_tokens": 24_000}
    tiny_texts = [text for text in context.texts if len(text) <= 25][:50]
    async with context.server(**settings, calls=True) as server:
        tiny, rate, seconds = context.client(server, "tiny"), 20.0, context.choose(10.0, 5.0)
        alone = await open_loop(tiny.translate, tiny_texts, rate, seconds, seed=13)
        giant, texts = context.client(server, "giant"), context.session.long_texts(200, 24, 31)
        stop = asyncio.Event()

        async def send(_: str) -> Outcome:
            return await giant.translate(*texts)

        loop = asyncio.create_task(closed_loop(send, [""], 4, until=lambda _: stop.is_set(), seconds=120.0))
        watch = asyncio.create_task(_most_tokens(server, stop))
        await context.wait_until("large requests run and are queued", lambda: _in_full_swing(server), seconds=60.0)
        more = asyncio.create_task(closed_loop(send, [""], 3, until=lambda outcome: not outcome.good, seconds=seconds))
        beside = await open_loop(tiny.translate, tiny_texts, rate, seconds, seed=13)
        stop.set()
        giants, (most, limit) = await loop, await watch
        checks.at_least("small requests", len(beside), context.choose(150, 40))
        checks.equal("small requests that failed", sum(not outcome.good for outcome in [*alone, *beside]), 0)
        checks.at_most("p99 of small requests relative to alone", p99(beside) / p99(alone), 2.0, "x", timing=True)
        checks.at_most("most queued source tokens", most, limit)
        checks.at_least("most queued source tokens, so that the limit matters", most, 10_000)
        checks.at_least("further large requests refused", sum(map(refused, await more)), 1)
        checks.at_least("large requests done", sum(outcome.good for outcome in giants), 4)
        await context.check_run(checks, server)


async def _in_full_swing(server: Server) -> bool:
    """Return whether so many texts are done that the running ones did not start together."""
    scrape = await server.scrape()
    return scrape.sum("lingon_sentences_total", outcome="OK") > 500 and scrape.sum("lingon_queue_tokens") > 5000


async def _most_tokens(server: Server, stop: asyncio.Event) -> tuple[float, float]:
    """Return the most queued source tokens seen until stopped, and the limit in the server's metrics."""
    most, limit = 0.0, 0.0
    while not stop.is_set():
        scrape = await server.scrape()
        most, limit = max(most, scrape.sum("lingon_queue_tokens")), scrape.sum("lingon_queue_tokens_limit")
        await asyncio.sleep(2 * CHECK_PAUSE)
    return most, limit


@case(
    "p99 of three clients B during a flood from client A <= 1.5 x their p99 while A keeps to its fair share",
    figures=(
        "p99 of B relative to the usual",
        "errors of B",
        "refused requests of A",
    ),
)
async def test_fair_share(context: CaseContext, checks: Checks) -> None:
    """Clients with their own API keys: A sends two fifths of the capacity, then five times it; each B sends a tenth.

    The two loads alternate, because the speed of a machine drifts. There are three clients B, because a p99 of
    the 100 requests of one rests on two of them.
    """
    keys = write_api_keys(context.scratch / "keys.toml", "a", "b1", "b2", "b3")
    usual, beside, flood = list[Outcome](), list[Outcome](), list[Outcome]()
    async with context.server(**SLOWED, max_queue_texts=SLOWED_QUEUE, api_keys=context.scratch / "keys.toml") as server:
        flooding, *modest = (context.client(server, name, key=key) for name, key in keys.items())
        capacity = await context.capacity(flooding.translate, context.texts, 16)
        for turn in range(context.choose(4, 1)):
            usual += (await _both(context, flooding, modest, 0.4 * capacity, 0.1 * capacity, turn))[1]
            found = await _both(context, flooding, modest, 5 * capacity, 0.1 * capacity, turn)
            flood, beside = flood + found[0], beside + found[1]
        checks.at_least("refused requests of A", sum(map(refused, flood)), len(flood) / 2)
        checks.at_least("requests of B", len(beside), context.choose(200, 12))
        checks.equal("errors of B", Counter(f.code for f in beside if not f.good), Counter())
        checks.at_most("p99 of B relative to the usual", p99(beside) / p99(usual), 1.5, "x", timing=True)
        await context.check_run(checks, server, calls_logged=False)


async def _both(
    context: CaseContext, one: Client, others: Sequence[Client], rate: float, others_rate: float, turn: int
) -> tuple[list[Outcome], list[Outcome]]:
    """Run both loads for ten seconds. turn: selects the arrivals."""
    loads = [(one, rate), *((other, others_rate) for other in others)]
    first, *rest = await asyncio.gather(
        *(
            open_loop(client.translate, context.texts, each, 10.0, seed=20 + 10 * turn + number)
            for number, (client, each) in enumerate(loads)
        )
    )
    return first, [outcome for found in rest for outcome in found]
