"""Cases 18, 19 and 21: clients that vanish, that read slowly, or that are many and say nothing."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from chaos import checker
from chaos.case import case
from chaos.checks import Findings
from chaos.clients import Client, closed_loop
from chaos.context import World
from chaos.history import Fate, p99
from chaos.server import Server

KEEPALIVE = 60.0 + 20.0  # seconds after which the server gives up a silent peer: serving/rpc/ports.py
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04\x00" + bytes(4)  # and empty SETTINGS
STREAMS = 100


@case(
    18,
    "crashed and half-open clients",
    f"dead peers found <= {KEEPALIVE:g} s, places freed, fds back to where they were",
)
async def dead_peers(world: World, found: Findings) -> None:
    """A client is killed with 100 streams under way; another is frozen: its kernel answers, nobody reads."""
    slow = world.switch("slow")
    async with world.server(failpoints=f"step=sleep:1?{slow}", calls=True, max_rows=100) as server:
        client, texts = world.client(server), world.session.long_texts(STREAMS, 85)
        await closed_loop(client.translate, world.texts[:50], 8, requests=50)
        fds = server.fds()
        await _kill_in_the_midst(world, found, server, texts)
        if world.quick:
            found.not_run("half-open connections, which take 80 s (quick)")
        else:
            await _freeze_in_the_midst(world, found, server, texts, slow.on)
            slow.off()
        await world.until("its sockets are closed", lambda: server.fds() <= fds)
        found.at_most("fds afterwards, beyond before", server.fds() - fds, 0)
        after = await closed_loop(client.translate, world.texts[:50], 8, requests=50)
        found.equal("OK afterwards", sum(fate.good for fate in after), 50)
        await world.judge(found, server)


async def _kill_in_the_midst(world: World, found: Findings, server: Server, texts: list[str]) -> None:
    slow = world.switch("slow")
    slow.on()
    victim = await world.crashing(server, texts, STREAMS)
    await world.until("its streams run", lambda: _running(server, 1))
    killed = time.monotonic()
    world.history.extend(victim.kill())
    slow.off()
    await world.resting(server)
    found.at_most("places free after a kill", time.monotonic() - killed, 2.0, "s", timing=True)
    found.equal("streams that the server gave up", await _given_up(server), STREAMS)


async def _freeze_in_the_midst(
    world: World, found: Findings, server: Server, texts: list[str], slow: Callable[[], None]
) -> None:
    victim = await world.crashing(server, texts, STREAMS)
    await world.until("its streams run", lambda: _running(server, 1))
    slow()
    victim.freeze()
    frozen = time.monotonic()
    before = server.fds()
    await world.until("the dead peer is found", lambda: server.fds() < before, seconds=KEEPALIVE + 30.0)
    found.at_most("frozen peer found after", time.monotonic() - frozen, KEEPALIVE + 5.0, "s", timing=True)
    await world.resting(server)
    found.clean("places free after that", checker.at_rest(await server.scrape()))
    found.at_least("frozen streams that it gave up", await _given_up(server) - STREAMS, STREAMS // 10)
    world.history.extend(victim.kill())


async def _given_up(server: Server) -> float:
    return (await server.scrape()).sum("lingon_requests_total", method="TranslateStream", code="CANCELLED")


async def _running(server: Server, least: int) -> bool:
    return (await server.scrape()).sum("lingon_running_sentences") >= least


@case(19, "slow readers", "RSS bounded, p99 of other streams unaffected (+10 %)")
async def slow_readers(world: World, found: Findings) -> None:
    """Ten clients with 64 texts each read one message a second, long after all is decoded."""
    async with world.server(calls=True) as server:
        others = [world.client(server, f"other{number}") for number in range(2)]
        slow = [world.client(server, f"slow{number}") for number in range(10)]
        await _streams(world, others)
        for _ in range(3):  # a batch of beam 4 has room of its own, which is not that of slow readers
            await asyncio.gather(*(each.stream(*world.texts[:64], beam_size=4, return_tokens=True) for each in slow))
        usual, memory = p99(await _streams(world, others)), server.rss()
        reading = [
            asyncio.create_task(
                each.stream(*world.texts[:64], beam_size=4, pause=1.0, cancel_after=120.0, return_tokens=True)
            )
            for each in slow
        ]
        await world.until("all is decoded", lambda: _decoded(server, 4 * 640), seconds=60.0)
        beside = p99(await _streams(world, others))
        grown = server.rss() - memory
        found.equal("slow readers still at it", sum(not task.done() for task in reading), 10)
        found.at_most("p99 of other streams beside them, of alone", beside / usual, 1.1, "times", timing=True)
        found.at_most("RSS growth", grown, 10 * 2.0, "MB")
        for each in slow:
            await each.close()
        await asyncio.gather(*reading)
        await world.judge(found, server)


async def _streams(world: World, clients: Sequence[Client]) -> list[Fate]:
    """Streams by a few clients that wait for their ends."""
    loops = (
        closed_loop(each.stream, world.texts[:100], 2, requests=world.choose(500, 50), seed=seed)
        for seed, each in enumerate(clients)
    )
    return [fate for fates in await asyncio.gather(*loops) for fate in fates]


async def _decoded(server: Server, sentences: int) -> bool:
    scrape = await server.scrape()
    return scrape.sum("lingon_running_sentences") == 0 == scrape.sum("lingon_queue_depth") and (
        scrape.sum("lingon_sentences_total", outcome="OK") >= sentences
    )


@case(21, "connection flood", "2000 idle connections: p99 of established traffic +20 %; at the limit of fds no crash")
async def connection_flood(world: World, found: Findings) -> None:
    """Idle connections that speak HTTP/2 and ask nothing, and many open streams; then more than the server may open."""
    count = world.choose(2000, 200)
    async with world.server(calls=True) as server:
        client, watcher = world.client(server), world.client(server, "watcher")
        await _traffic(world, client)
        usual = p99(await _traffic(world, client))
        async with idle_connections(server, count):
            await world.until("all are accepted", lambda: server.fds() >= count, seconds=60.0)
            watches = [asyncio.create_task(watcher.watch(lambda _: None)) for _ in range(100)]
            beside = p99(await _traffic(world, client))
            for watch in watches:
                watch.cancel()
        found.at_most(f"p99 beside {count} connections, of alone", beside / usual, 1.2, "times", timing=True)
        await world.until("they are gone", lambda: server.fds() < 100)
        await world.judge(found, server)
    world.begin()
    await _beyond_limit(world, found)


async def _beyond_limit(world: World, found: Findings) -> None:
    """A server that may have 256 files open, and 400 connections."""
    async with world.server(prefix=["prlimit", "--nofile=256:256"]) as server:
        client = world.client(server, "established")
        before = await _traffic(world, client)
        async with idle_connections(server, 400):
            await world.until("no more may be opened", lambda: server.fds() >= 250)
            beside = await _traffic(world, client)
        await world.until("they are gone", lambda: server.fds() < 100, seconds=30.0)
        after = await world.client(server, "late").translate(world.texts[0])
        found.equal("established traffic that failed", sum(not fate.good for fate in [*before, *beside]), 0)
        found.equal("a new client afterwards", after.code, "OK")
        found.equal("exit code", server.exit_code, None)
        found.clean("no error unhandled at the limit", server.tracebacks())


async def _traffic(world: World, client: Client) -> list[Fate]:
    return await closed_loop(client.translate, world.texts[:100], 4, requests=world.choose(1000, 100))


@asynccontextmanager
async def idle_connections(server: Server, count: int) -> AsyncIterator[None]:
    """Connections that have said who they are and ask nothing; those that are refused are left out."""
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
        except OSError:  # refused, which is the server's right at its limit
            continue
    return sockets
