"""Connections of the HTTP port: what arrives early, what is not read, what is ambiguous, and how many there are."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
import uvloop
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from lingon.gateway import connection as connection_module
from lingon.gateway import server as server_module
from lingon.gateway.connection import OpenConnections
from lingon.gateway.metrics import GatewayMetrics
from lingon.gateway.server import HttpOptions, listening
from lingon.serving.rpc import ports
from tests.reliability.http_storm import Storm, chunked, get, pieces, post
from tests.support.echo_engine import EchoRunner
from tests.support.gateway import Gateway, gateway
from tests.support.timing import eventually, eventually_blocking

BODY = b'{"texts": ["Tom"]}'
LARGE = "/openapi.json"
Kind = TypeVar("Kind")


def alive(kind: type[Kind]) -> list[Kind]:
    gc.collect()
    return [
        each for each in gc.get_objects() if issubclass(type(each), kind)
    ]  # isinstance would load what others load lazily


def unanswered() -> int:
    """The number of requests that are objects and not answered."""
    return sum(not (each.response_complete or each.disconnected) for each in alive(RequestResponseCycle))


def new_one(before: list[OpenConnections]) -> OpenConnections:
    """Return the connections of the server that was started last."""
    (found,) = [each for each in alive(OpenConnections) if each not in before]
    return found


async def connect(http: Gateway, address: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", http.port, local_addr=(address, 0))


async def exchange(http: Gateway, sent: bytes, address: str = "127.0.0.1") -> bytes:
    """Send bytes on a connection of their own; returns what arrives until the server closes it."""
    reader, writer = await connect(http, address)
    writer.write(sent)
    try:
        return await asyncio.wait_for(reader.read(), 20)
    finally:
        writer.close()


async def status(http: Gateway, sent: bytes) -> bytes:
    """Return the status of the first reply."""
    reader, writer = await connect(http)
    writer.write(sent)
    try:
        return (await asyncio.wait_for(reader.readexactly(12), 20))[-3:]
    finally:
        writer.close()


def connections(http: Gateway) -> float:
    return http.server.metric("lingon_http_connections")


async def test_only_one_of_many_pipelined_requests_is_an_object_and_all_are_answered_in_order():
    runner = EchoRunner()
    async with gateway(runner) as http:
        runner.gate.clear()
        asked = asyncio.create_task(
            exchange(http, post("/v1/translate", BODY) + get("/health") * 3000 + get("/none", "connection: close"))
        )
        await eventually(lambda: http.server.metric("lingon_requests_in_flight") == 1)
        await asyncio.sleep(0.2)
        assert unanswered() == 1
        runner.gate.set()
        statuses = re.findall(rb"HTTP/1.1 (\d+)", await asked)
    assert statuses == [b"200"] * 3001 + [b"404"]


def request(draw: random.Random) -> bytes:
    """Return a request of a random kind, in whose body may be what looks like the end of it."""
    noise = bytes(draw.choices(b"\r\n0a", k=draw.randrange(12)))
    return draw.choice(
        (
            get("/health"),
            b"\r\n\r\n" + get("/none?" + "a" * draw.randrange(300)),
            post("/none", noise),
            post("/v1/translate", BODY + b"\r\n\r\n" * draw.randrange(5)),
            chunked("/v1/translate", [BODY[:4], BODY[4:]], *draw.choice(((), ("a: b", "host: y")))),
            chunked("/none", [noise + b"0", b"\r\n\r\n" * draw.randrange(1, 2000)]),
            get("/v1/models", "connection: upgrade", "upgrade: h2c"),
        )
    )


def replies(arrived: bytes) -> list[tuple[bytes, bytes]]:
    """Return status and body of each reply."""
    found = []
    while arrived:
        head, _, rest = arrived.partition(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        found.append((head[9:12], rest[:size]))
        arrived = rest[size:]
    return found


def first_reads(port: int, sent: bytes, count: int) -> list[bytes]:
    """Send bytes on as many connections, one after the other; returns what the first read of each gives."""
    found = []
    for _ in range(count):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as made:
            made.sendall(sent)
            found.append(made.recv(1 << 20))
    return found


async def test_a_small_reply_arrives_at_once_with_its_head():
    async with gateway() as http:
        found = await asyncio.to_thread(first_reads, http.port, post("/v1/translate", BODY), 100)
    for each in found:
        head, _, body = each.partition(b"\r\n\r\n")
        assert b"content-length: %d\r\n" % len(body) in head
        assert body


async def test_every_reply_has_its_head_whatever_its_body_is():
    async def parts(request: Request) -> AsyncIterator[bytes]:
        if "fails" in request.url.path:
            raise ValueError("on purpose")
        if "some" in request.url.path:
            yield b"x" * 10

    async def handle(request: Request) -> Response:
        if "stream" in request.url.path:
            return StreamingResponse(parts(request))
        return Response(await request.body(), 204 if "none" in request.url.path else 200)

    paths = ["/plain", "/none", "/stream", "/stream/some", "/stream/fails"]
    app = Starlette(routes=[Route(path, handle, methods=["GET", "HEAD", "POST"]) for path in paths])
    async with listening(app, GatewayMetrics(CollectorRegistry()), HttpOptions(port=0)) as opened:
        http: Any = SimpleNamespace(port=opened.port)
        for path in paths:
            for close in ("connection: close", "connection: keep-alive"):
                awaited = b"204" if path == "/none" else b"200"
                assert await status(http, get(path, close)) == awaited
                assert await status(http, get(path, close).replace(b"GET", b"HEAD", 1)) == awaited
                if path == "/plain":
                    interim = post(path, BODY, f"{close}\r\nexpect: 100-continue").replace(BODY, b"")
                    assert await status(http, interim) == b"100"


async def test_requests_on_one_connection_get_the_replies_that_they_get_alone_however_they_are_cut():
    async with gateway() as http:
        last = get("/health", "connection: close")
        for seed in range(12):
            draw = random.Random(seed)
            asked = [request(draw) for _ in range(20)]
            alone = [replies(await exchange(http, each + last))[0] for each in asked]
            reader, writer = await connect(http)
            writer.transport.set_write_buffer_limits(high=0)
            writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            together = asyncio.create_task(reader.read())
            for piece in pieces(draw, draw.choice(("reads", "sends slowly")), b"".join(asked) + last):
                writer.write(piece)
                await asyncio.sleep(0)
            found = replies(await asyncio.wait_for(together, 20))
            writer.close()
            assert found[:-1] == alone, seed


@pytest.mark.parametrize("later", [1, 2, 3])
async def test_an_empty_line_that_arrives_in_two_reads_ends_one_request(later: int):
    async with gateway() as http:
        reader, writer = await connect(http)
        first = get("/v1/models")
        writer.write(first[:-later])
        await asyncio.sleep(0.1)
        writer.write(first[-later:] + get("/health") + get("/none", "connection: close"))
        found = replies(await asyncio.wait_for(reader.read(), 10))
        writer.close()
    assert [each for each, _ in found] == [b"200", b"200", b"404"]


async def test_a_stream_of_requests_that_does_not_end_is_read_only_as_it_is_answered():
    runner, before = EchoRunner(), alive(OpenConnections)
    async with gateway(runner) as http:
        runner.gate.clear()
        _, writer = await connect(http)
        writer.write(post("/v1/translate", BODY) + get("/health") * 1_000_000)
        await eventually(lambda: http.server.metric("lingon_requests_in_flight") == 1)
        await asyncio.sleep(0.3)
        shared = new_one(before)
        assert shared.budget.held_bytes < 300_000  # one read of the event loop, and what may wait
        writer.transport.abort()
        runner.gate.set()
        await eventually(lambda: connections(http) == 0)
        assert shared.budget.held_bytes == 0


@pytest.mark.parametrize("form", ["length", "chunks"])
async def test_a_body_that_the_application_does_not_read_stays_with_the_client(form: str):
    done = asyncio.Event()

    async def wait(request: Request) -> Response:
        await done.wait()
        return Response()

    app = Starlette(routes=[Route("/", wait, methods=["POST"])])
    part = b"x" * 1000
    sent = post("/", part * 20_000) if form == "length" else chunked("/", [part] * 20_000)
    async with listening(app, GatewayMetrics(CollectorRegistry()), HttpOptions(port=0)) as opened:
        reader, writer = await asyncio.open_connection("127.0.0.1", opened.port)
        writer.write(sent)
        await asyncio.sleep(0.5)
        assert max(len(each.body) for each in alive(RequestResponseCycle)) < 1_000_000
        assert writer.transport.get_write_buffer_size() > 10_000_000  # type: ignore[attr-defined]
        writer.write(post("/", b"", "connection: close"))
        done.set()
        assert (await asyncio.wait_for(reader.read(), 20)).count(b"HTTP/1.1 200") == 2
        writer.close()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short time limits."""
    monkeypatch.setattr(server_module, "LATE_SECONDS", 0.05)
    for name in ("UNREAD_SECONDS", "IDLE_SECONDS", "BODY_SECONDS"):
        monkeypatch.setattr(connection_module, name, 0.5)


def unread(http: Gateway, sent: bytes) -> socket.socket:
    """Send bytes and read nothing."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect(("127.0.0.1", http.port))
    made.sendall(sent)
    return made


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("last", [b"", get(LARGE, "connection: close")], ids=["stays", "closes"])
async def test_a_connection_whose_client_does_not_read_is_closed(last: bytes):
    async with gateway() as http:
        made = await asyncio.to_thread(unread, http, get(LARGE) * 300 + last)
        await eventually(lambda: connections(http) == 1)
        await eventually(lambda: connections(http) == 0, seconds=20)
        made.close()


@pytest.mark.usefixtures("soon")
async def test_a_stream_of_events_ends_if_its_client_does_not_read():
    ended = asyncio.Event()

    async def events() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x" * 10_000
                await asyncio.sleep(0)
        finally:
            ended.set()

    async def stream(request: Request) -> Response:
        return StreamingResponse(events())

    app = Starlette(routes=[Route("/", stream)])
    async with listening(app, GatewayMetrics(CollectorRegistry()), HttpOptions(port=0)) as opened:
        _, writer = await asyncio.open_connection("127.0.0.1", opened.port, limit=1000)
        writer.write(get("/"))
        await asyncio.wait_for(ended.wait(), 20)
        writer.close()


@pytest.mark.usefixtures("soon")
async def test_an_idle_connection_is_closed():
    async with gateway() as http:
        reader, writer = await connect(http)
        writer.write(get("/health"))
        assert (await asyncio.wait_for(reader.read(), 10)).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_a_client_that_reads_slowly_gets_all(soon: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connection_module, "UNREAD_SECONDS", 2.0)
    async with gateway() as http:
        made = await asyncio.to_thread(unread, http, get(LARGE) * 150 + get("/health", "connection: close"))
        made.setblocking(False)
        loop, size, begun = asyncio.get_running_loop(), 0, asyncio.get_running_loop().time()
        while part := await asyncio.wait_for(loop.sock_recv(made, 200_000), 10):
            size += len(part)
            if loop.time() - begun < 3.0:
                await asyncio.sleep(0.05)
        made.close()
        alone = len((await http.get(LARGE)).body)
    assert size > 150 * alone


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("missing", [0, 5])
async def test_a_connection_ends_whose_body_comes_after_the_reply_or_never(missing: int):
    async with gateway() as http:
        reader, writer = await connect(http)
        writer.write(b"POST /none HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n")
        assert b"404" in await reader.readuntil(b"\r\n\r\n")
        writer.write(b"x" * (10 - missing))
        await asyncio.wait_for(reader.read(), 10)
        writer.close()


async def test_an_address_has_half_of_the_connections_and_others_are_answered_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(ports, "HTTP_CONNECTIONS", 6)
    async with gateway() as http:
        held = [await connect(http, "127.0.0.2") for _ in range(3)]
        for _ in range(3):
            refused = await exchange(http, get("/health"), "127.0.0.2")
            assert refused.startswith(b"HTTP/1.1 503")
            assert refused.endswith(b"an address may have 3 connections, and this one has them")
            assert b"200" in await exchange(http, get("/health", "connection: close"), "127.0.0.3")
        reader, writer = held[0]
        writer.write(get("/health", "connection: close"))
        assert b"200" in await reader.read()
        for _, each in held:
            each.close()
        await eventually(lambda: connections(http) == 0)
        assert b"200" in await exchange(http, get("/health", "connection: close"), "127.0.0.2")


@pytest.mark.parametrize("trusted", ["127.0.0.2", "127.0.0.0/29", "*"])
async def test_a_trusted_proxy_may_have_all_connections(trusted: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ports, "HTTP_CONNECTIONS", 6)
    async with gateway(http_trusted_proxies=trusted) as http:
        held = [await connect(http, "127.0.0.2") for _ in range(5)]
        assert b"200" in await exchange(http, get("/health", "connection: close"), "127.0.0.2")
        for _, each in held:
            each.close()


async def test_connections_above_the_limits_are_bounded_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connection_module, "REFUSED_SECONDS", 600.0)
    monkeypatch.setattr(ports, "HTTP_CONNECTIONS", 2)
    async with gateway() as http:
        held = [await connect(http) for _ in range(300)]
        await eventually(lambda: connections(http) <= 1 + 256)
        for _, each in held:
            each.close()


LINES = b"a: b\r\n"
REFUSED: dict[str, tuple[bytes, bytes]] = {
    "without Host": (b"GET /health HTTP/1.1\r\n\r\n", b"400"),
    "two of Host": (b"GET /health HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n", b"400"),
    "two of Host, 1.0": (b"GET /health HTTP/1.0\r\nHost: a\r\nhost: a\r\n\r\n", b"400"),
    "0.9": (b"GET /health\r\n\r\n", b"400"),
    "0.9 by name": (b"GET /health HTTP/0.9\r\nHost: a\r\n\r\n", b"400"),
    "2.0": (b"GET /health HTTP/2.0\r\nHost: a\r\n\r\n", b"400"),
    "authority": (b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", b"400"),
    "two lengths": (b"POST / HTTP/1.1\r\nHost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", b"400"),
    "length and chunks": (
        b"POST / HTTP/1.1\r\nHost: a\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"400",
    ),
    "a body of another protocol": (post("/v1/translate", BODY, "connection: upgrade", "upgrade: h2c"), b"400"),
    "many fields": (get("/health?" + "&" * 2001), b"400"),
    "many lines": (b"GET /health HTTP/1.1\r\nHost: a\r\n" + LINES * 128 + b"\r\n", b"431"),
    "long headers in one segment": (get("/health", *["a: " + "b" * 1000] * 70), b"431"),
    "long address": (get("/health?" + "a" * 70_000), b"431"),
    "long trailers": (chunked("/v1/detect", [BODY], *["a: " + "b" * 1000] * 300)[:-2], b"431"),
    "without Host, no proxy": (b"GET http://a/health HTTP/1.1\r\n\r\n", b"400"),
}
SERVED = {
    "1.0 without Host": b"GET /health HTTP/1.0\r\n\r\n",
    "empty Host": b"GET /health HTTP/1.1\r\nHost:\r\n\r\n",
    "absolute address": b"GET http://localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "offer of HTTP/2": get("/health", "connection: upgrade, http2-settings", "upgrade: h2c", "http2-settings: AAM"),
    "as many lines as may be": b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + LINES * 127 + b"\r\n",
    "as many bytes as may be": get("/health", "a: " + "b" * (65_536 - 49)),
}


async def test_ambiguous_and_long_requests_are_refused_and_nothing_behind_them_is_answered():
    async with gateway() as http:
        for name, (sent, expected) in REFUSED.items():
            arrived = await exchange(http, sent + get("/health"))
            assert re.findall(rb"HTTP/1.1 (\d+)", arrived) == [expected], name
        for name, sent in SERVED.items():
            assert await status(http, sent) == b"200", name


async def test_trailers_are_not_headers():
    async with gateway() as http:
        many = chunked("/v1/translate", [BODY], *["accept: b"] * 1000, "authorization: Bearer x")
        assert await status(http, many) == b"200"


async def test_refused_requests_log_a_few_lines(caplog: pytest.LogCaptureFixture):
    async with gateway() as http:
        with caplog.at_level(logging.INFO):
            for _ in range(300):
                await exchange(http, b"x\r\n\r\n")
    lines = [each for each in caplog.records if "was refused" in each.getMessage()]
    assert 0 < len(lines) < 200
    assert {each.getMessage() for each in lines} == {
        "an HTTP request was refused with 400: this is no request of HTTP/1.1: Invalid method encountered"
    }


async def raged_until_answered(storm: Storm, clients: int) -> None:
    """Run for three seconds, and on a machine that stands still meanwhile until a reply was read."""
    await storm.run(3.0, clients)
    while not storm.did["replies"]:
        await storm.run(3.0, clients)


async def test_a_storm_of_clients_leaves_nothing_behind():
    clients, before = 24, alive(OpenConnections)
    async with gateway() as http:
        shared = new_one(before)
        storm = Storm(http.port, seed=7)
        raging = asyncio.create_task(raged_until_answered(storm, clients))
        most = [0, 0]
        while not raging.done():
            most = [max(most[0], unanswered()), max(most[1], shared.budget.held_bytes)]
            await asyncio.sleep(0.1)
        await raging
        await eventually(lambda: connections(http) == 0 and shared.budget.held_bytes == 0, seconds=20)
        assert (await http.post("/v1/translate", {"texts": ["Tom"]})).status == 200
    assert most[0] <= clients + 1
    assert most[1] <= 64 << 20


def waiting_to_be_accepted(port: int) -> int:
    """Return the connections of a listening port that the kernel has made and its process has not accepted."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, queues, *_ = line.split()
        if (state, int(local.partition(":")[2], 16)) == ("0A", port):
            return int(queues.partition(":")[2], 16)
    raise LookupError(f"no socket listens at {port}")


def test_connections_that_wait_are_taken_several_at_a_time():
    """uvloop 0.23.0 takes one in an iteration of the event loop, in which other work may take long."""
    count, registry = 64, CollectorRegistry()

    async def iterations() -> int:
        metrics, found = GatewayMetrics(registry), 0
        async with listening(Starlette(), metrics, HttpOptions(port=0, drain_seconds=0.1)) as opened:
            clients = [socket.create_connection(("127.0.0.1", opened.port)) for _ in range(count)]
            eventually_blocking(lambda: waiting_to_be_accepted(opened.port) == count)
            while registry.get_sample_value("lingon_http_connections") < count:
                await asyncio.sleep(0)
                found += 1
            for client in clients:
                client.close()
        return found

    assert uvloop.run(iterations()) < count // 2
