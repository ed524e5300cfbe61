"""Clients that crash, clients that read slowly, and many idle connections."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from tests.reliability import checker
from tests.reliability.case import case
from tests.reliability.checks import Checks
from tests.reliability.clients import Client, closed_loop
from tests.reliability.context import CaseContext
from tests.reliability.history import Outcome, p99
from tests.reliability.server import Server

KEEPALIVE = 60.0 + 20.0  # seconds after which the server closes the connection of a silent peer: serving/rpc/ports.py
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04\x00" + bytes(4)  # with an empty SETTINGS frame
STREAMS = 100  # streams of a client that crashes


@case(
    f"a dead peer is detected <= {KEEPALIVE:g} s (+ 5 s); its places are freed; no file descriptor leaks",
    figures=(
        "frozen client detected after",
        "places free after a kill",
        "file descriptors leaked",
    ),
)
async def test_crashed_clients(context: CaseContext, checks: Checks) -> None:
    """A client with 100 streams is killed. Another is frozen: its kernel answers, but the client reads nothing."""
    slow = context.switch("slow")
    async with context.server(failpoints=f"step=sleep:1?{slow}", calls=True, max_rows=100) as server:
        client, texts = context.client(server), context.session.long_texts(STREAMS, 85)
        await closed_loop(client.translate, context.texts[:50], 8, requests=50)
        fds = server.fds()
        await _kill_while_streaming(context, checks, server, texts)
        if context.quick:
            checks.not_run("half-open connections, which take 80 s (quick)")
        else:
            await _freeze_while_streaming(context, checks, server, texts, slow.on)
            slow.off()
        await context.wait_until("its sockets are closed", lambda: server.fds() <= fds)
        checks.at_most("file descriptors leaked", server.fds() - fds, 0)
        after = await closed_loop(client.translate, context.texts[:50], 8, requests=50)
        checks.equal("OK afterwards", sum(outcome.good for outcome in after), 50)
        await context.check_run(checks, server)


async def _kill_while_streaming(context: CaseContext, checks: Checks, server: Server, texts: list[str]) -> None:
    slow = context.switch("slow")
    slow.on()
    crashing = await context.crashing_client(server, texts, STREAMS)
    await context.wait_until("its streams run", lambda: _running(server, 1))
    killed = time.monotonic()
    context.history.extend(crashing.kill())
    slow.off()
    await context.idle_scrape(server)
    checks.at_most("places free after a kill", time.monotonic() - killed, 2.0, "s", timing=True)
    checks.equal("streams that the server cancelled", await _given_up(server), STREAMS)


async def _freeze_while_streaming(
    context: CaseContext, checks: Checks, server: Server, texts: list[str], slow: Callable[[], None]
) -> None:
    crashing = await context.crashing_client(server, texts, STREAMS)
    await context.wait_until("its streams run", lambda: _running(server, 1))
    slow()
    crashing.freeze()
    frozen = time.monotonic()
    before = server.fds()
    await context.wait_until("the dead peer is found", lambda: server.fds() < before, seconds=KEEPALIVE + 30.0)
    checks.at_most("frozen client detected after", time.monotonic() - frozen, KEEPALIVE + 5.0, "s", timing=True)
    await context.idle_scrape(server)
    checks.clean("places free after that", checker.gauges_at_zero(await server.scrape()))
    checks.at_least("frozen streams that the server cancelled", await _given_up(server) - STREAMS, STREAMS // 10)
    context.history.extend(crashing.kill())


async def _given_up(server: Server) -> float:
    return (await server.scrape()).sum("lingon_requests_total", method="TranslateStream", code="CANCELLED")


async def _running(server: Server, least: int) -> bool:
    return (await server.scrape()).sum("lingon_running_sentences") >= least


@case(
    "RSS growth <= 20 MB; p99 of other streams <= 1.1 x alone",
    figures=(
        "RSS growth",
        "p99 of other streams relative to alone",
        "slow readers still reading",
    ),
)
async def test_slow_readers(context: CaseContext, checks: Checks) -> None:
    """Ten clients with 64 texts each read one message a second, long after all is decoded."""
    async with context.server(calls=True) as server:
        others = [context.client(server, f"other{number}") for number in range(2)]
        slow = [context.client(server, f"slow{number}") for number in range(10)]
        await _streams(context, others)
        for _ in range(3):  # a batch of beam 4 allocates memory once, which is not to be counted as the slow readers'
            await asyncio.gather(*(each.stream(*context.texts[:64], beam_size=4, return_tokens=True) for each in slow))
        usual, memory = p99(await _streams(context, others)), server.rss()
        reading = [
            asyncio.create_task(
                each.stream(*context.texts[:64], beam_size=4, pause=1.0, cancel_after=120.0, return_tokens=True)
            )
            for each in slow
        ]
        await context.wait_until("all is decoded", lambda: _decoded(server, 4 * 640), seconds=60.0)
        await context.wait_until("all messages are made", lambda: _rests(server), seconds=60.0)
        beside = p99(await _streams(context, others))
        grown = server.rss() - memory
        checks.equal("slow readers still reading", sum(not task.done() for task in reading), 10)
        checks.at_most("p99 of other streams relative to alone", beside / usual, 1.1, "x", timing=True)
        checks.at_most("RSS growth", grown, 10 * 2.0, "MB")
        for each in slow:
            await each.close()
        await asyncio.gather(*reading)
        await context.check_run(checks, server)


async def _streams(context: CaseContext, clients: Sequence[Client]) -> list[Outcome]:
    """Open streams of a few clients, each of which waits for the end of its stream."""
    loops = (
        closed_loop(each.stream, context.texts[:100], 2, requests=context.choose(500, 50), seed=seed)
        for seed, each in enumerate(clients)
    )
    return [outcome for outcomes in await asyncio.gather(*loops) for outcome in outcomes]


async def _rests(server: Server, seconds: float = 0.5) -> bool:
    """Return whether the server takes less than a tenth of a core for a while."""
    before = server.cpu_seconds()
    await asyncio.sleep(seconds)
    return server.cpu_seconds() - before < seconds / 10


async def _decoded(server: Server, sentences: int) -> bool:
    scrape = await server.scrape()
    return scrape.sum("lingon_running_sentences") == 0 == scrape.sum("lingon_queue_depth") and (
        scrape.sum("lingon_sentences_total", outcome="OK") >= sentences
    )


@case(
    "2000 idle connections: p99 of other traffic <= 1.2 x; at the limit of file descriptors no crash and no error",
    figures=(
        "p99 with 2000 idle connections relative to none",
        "established traffic that failed",
        "a new client afterwards",
    ),
)
async def test_connection_flood(context: CaseContext, checks: Checks) -> None:
    """Idle HTTP/2 connections and many open streams, then more connections than the server may open files."""
    count = context.choose(2000, 200)
    async with context.server(calls=True) as server:
        client, watcher = context.client(server), context.client(server, "watcher")
        await _traffic(context, client)
        usual = p99(await _traffic(context, client))
        async with idle_connections(server, count):
            await context.wait_until("all are accepted", lambda: server.fds() >= count, seconds=60.0)
            watches = [asyncio.create_task(watcher.watch(lambda _: None)) for _ in range(100)]
            beside = p99(await _traffic(context, client))
            for watch in watches:
                watch.cancel()
        checks.at_most(f"p99 with {count} idle connections relative to none", beside / usual, 1.2, "x", timing=True)
        await context.wait_until("they are gone", lambda: server.fds() < 100)
        await context.check_run(checks, server)
    context.new_history()
    await _beyond_limit(context, checks)


async def _beyond_limit(context: CaseContext, checks: Checks) -> None:
    """Serve with 256 files, of which half are not for connections, and 400 connections."""
    async with context.server(prefix=["prlimit", "--nofile=256:256"]) as server:
        client = context.client(server, "established")
        before = await _traffic(context, client)
        async with idle_connections(server, 400):
            await context.wait_until("no more are taken", lambda: server.fds() >= 128)
            beside = await _traffic(context, client)
            health, _ = await server.get("/healthz", 5.0)
        await context.wait_until("they are gone", lambda: server.fds() < 100, seconds=30.0)
        after = await context.client(server, "late").translate(context.texts[0])
        checks.equal("established traffic that failed", sum(not outcome.good for outcome in [*before, *beside]), 0)
        checks.equal("status of /healthz beside them", health, 200)
        checks.equal("a new client afterwards", after.code, "OK")
        checks.equal("exit code", server.exit_code, None)
        checks.clean("no unhandled error at the limit", server.tracebacks())


async def _traffic(context: CaseContext, client: Client) -> list[Outcome]:
    return await closed_loop(client.translate, context.texts[:100], 4, requests=context.choose(1000, 100))


@asynccontextmanager
async def idle_connections(server: Server, count: int) -> AsyncIterator[None]:
    """Open connections that have sent the preface of HTTP/2 and no request. Ignore refused ones."""
    sockets = await asyncio.to_thread(_connected, server.port, count)
    try:
        yield
    finally:
        for each in sockets:
            each.close()


def _connected(port: int, count: int) -> list[socket.socket]:
    sockets = []
    for _ in range(count):
        each = socket.socket()
        sockets.append(each)
        each.settimeout(0.1)
        try:
            each.connect(("127.0.0.1", port))
            each.send(PREFACE)
        except OSError:  # a server at its limit may refuse connections
            continue
    return sockets
