"""The HTTP port under requests that are too large, too slow, without a key, or given up."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from lingon.gateway import body as body_module
from lingon.gateway import connection as connection_module
from lingon.gateway import server as server_module
from lingon.serving.auth.api_keys import new_key
from lingon.serving.rpc import ports
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.credentials import write_key_file
from tests.support.echo_engine import EchoRunner
from tests.support.gateway import Gateway, gateway
from tests.support.timing import eventually

IDLE = 2000  # connections without a request
TEXTS = {"texts": ["Tom"]}
ROUTES: dict[str, dict[str, object] | None] = {
    "/v1/translate": TEXTS,
    "/v1/translate:stream": TEXTS,
    "/v1/translate:source": {**TEXTS, "targetLanguageCode": "de"},
    "/v1/score": {"pairs": [{"source": "Tom", "target": "Tom"}]},
    "/v1/detect": TEXTS,
    "/v1/models": None,
    "/v2/translate": {"text": "Tom", "target_lang": "DE"},
    "/v2/languages": None,
    "/v3/languages": None,
    "/v2/usage": None,
    "/translate": {"q": "Tom", "source": "en", "target": "de"},
    "/languages": None,
    "/detect": {"q": "Tom"},
    "/frontend/settings": None,
    "/language/translate/v2": {"q": "Tom", "target": "de"},
    "/language/translate/v2/languages": None,
    "/language/translate/v2/detect": {"q": "Tom"},
    "/v3/projects/p:translateText": {"contents": ["Tom"], "targetLanguageCode": "de"},
    "/v3/projects/p:detectLanguage": {"content": "Tom"},
    "/v3/projects/p/supportedLanguages": None,
}
"""The routes that call the server, with a body that it would answer, or None for a GET."""


async def exchange(http: Gateway, sent: bytes, seconds: float = 10.0) -> bytes:
    """Send bytes on a connection of their own; returns what arrives until it is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
    writer.write(sent)
    arrived = b""
    try:
        async with asyncio.timeout(seconds):
            while part := await reader.read(65536):
                arrived += part
    except ConnectionResetError:  # the server closes without reading the rest
        pass
    finally:
        writer.close()
    return arrived


def ask(path: str, body: bytes = b"", *headers: str, length: int | None = None) -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        "host: localhost",
        "connection: close",
        "content-type: application/json",
        *headers,
    ]
    return "\r\n".join([*lines, f"content-length: {len(body) if length is None else length}", "", ""]).encode() + body


async def test_a_body_that_is_too_large_is_refused_before_it_is_read():
    async with gateway() as http:
        told = await exchange(http, ask("/v1/translate", length=200 << 20))
        chunks = b"".join(b"80000\r\n" + b"x" * 0x80000 + b"\r\n" for _ in range(10))
        head = ask("/v1/translate", b"", "transfer-encoding: chunked").replace(b"content-length: 0\r\n", b"")
        streamed = await exchange(http, head + chunks)
        packed = await http.send("POST", "/v1/translate", b"\x1f\x8b", "application/json", {"content-encoding": "gzip"})
    assert told.startswith(b"HTTP/1.1 413")
    assert b"4,194,304 bytes at most" in told
    assert streamed.startswith(b"HTTP/1.1 413")
    assert packed.status == 415


async def test_headers_that_do_not_end_are_refused():
    async with gateway() as http:
        begun = b"POST /v1/translate HTTP/1.1\r\nhost: localhost\r\n"
        for sent in (
            begun + (b"x: " + b"y" * 1000 + b"\r\n") * 1000,
            begun + b"x: " + b"y" * 1_000_000,
            b"GET /" + b"a" * 1_000_000,
        ):
            refused = await exchange(http, sent)
            assert refused.startswith(b"HTTP/1.1 431"), sent[:60]
            assert refused.endswith(b"the address and the headers may have 65,536 bytes at most")
        reply = await http.post("/v1/translate", TEXTS, {"x": "y" * 20_000})
        assert reply.status == 200


async def test_a_body_of_many_small_values_is_refused_before_it_takes_memory():
    async with gateway() as http:
        most = body_module.MAX_VALUES
        for value in (b"1", b"[]", b'""', b'"\\""'):
            body = b'{"texts": [' + b",".join([value] * most) + b"]}"
            refused = await http.send("POST", "/v1/translate", body, "application/json")
            assert refused.status == 413
            assert f"the body may have {most:,} values at most, got ".encode() in refused.body
        form = await http.send("POST", "/translate", b"q=a&" * 2000 + b"source=en", "application/x-www-form-urlencoded")
        assert (form.status, form.json["error"]) == (400, "a form may have 2,000 fields at most, got 2,001")
        marks = "one, two, [three], {four}. " * (most // 5)
        assert (await http.post("/v1/detect", {"texts": [marks]})).status == 200
        cut = await http.send("POST", "/v1/translate", b'{"texts": ["' + b'\\"' * most * 4, "application/json")
        assert cut.status == 400


async def test_slow_headers_and_a_slow_body_end_their_connection(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connection_module, "HEADER_SECONDS", 0.2)
    monkeypatch.setattr(body_module, "BODY_SECONDS", 0.2)
    async with gateway() as http:
        assert await exchange(http, b"POST /v1/translate HTTP/1.1\r\nhost: localhost\r\n") == b""
        assert await exchange(http, b"") == b""
        late = await exchange(http, ask("/v1/translate", b"{", length=9))
    assert late.startswith(b"HTTP/1.1 408")


def ask_and_stay(body: bytes) -> bytes:
    return ask("/v1/translate", body).replace(b"connection: close\r\n", b"")


async def test_the_body_of_a_request_is_not_counted_in_the_headers_of_the_next_one():
    async with gateway() as http:
        reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
        body = b'{"texts": ["Tom"]}' + b" " * 100_000
        writer.write(ask_and_stay(body) + b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n")
        first = await asyncio.wait_for(reader.readuntil(b"}"), 10)
        writer.write(b"connection: close\r\n\r\n")
        rest = await asyncio.wait_for(reader.read(), 10)
        writer.close()
    assert first.startswith(b"HTTP/1.1 200")
    assert b"HTTP/1.1 200" in rest
    assert b"HTTP/1.1 431" not in rest


async def test_slow_headers_end_their_connection_only_after_the_earlier_reply(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server_module, "LATE_SECONDS", 0.05)
    runner = EchoRunner()
    async with gateway(runner) as http:
        runner.gate.clear()
        reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
        writer.write(ask_and_stay(b'{"texts": ["Tom"]}') + b"GET /v1/models HTTP/1.1\r\n")
        await eventually(lambda: http.server.metric("lingon_requests_in_flight") == 1)
        monkeypatch.setattr(connection_module, "HEADER_SECONDS", 0.1)  # only now: the first request is not slow
        writer.write(b"host: localhost\r\n")
        await asyncio.sleep(0.5)
        assert not reader.at_eof()
        runner.gate.set()
        found = await asyncio.wait_for(reader.read(), 60)
        writer.close()
    assert found.startswith(b"HTTP/1.1 200")
    assert found.count(b"HTTP/1.1") == 1


async def test_headers_that_do_not_end_are_refused_only_after_the_earlier_reply():
    runner = EchoRunner()
    async with gateway(runner) as http:
        runner.gate.clear()
        reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
        writer.write(ask_and_stay(b'{"texts": ["Tom"]}') + b"GET /")
        await eventually(lambda: http.server.metric("lingon_requests_in_flight") == 1)
        for _ in range(66):  # more than the bound, but so little that the server reads all of it
            writer.write(b"a" * 1000)
            await asyncio.sleep(0.001)
        runner.gate.set()
        found = await asyncio.wait_for(reader.read(), 10)
        writer.close()
    assert found.startswith(b"HTTP/1.1 200")
    assert b"HTTP/1.1 431" in found
    assert found.endswith(b"the address and the headers may have 65,536 bytes at most")


async def test_no_more_of_headers_that_do_not_end_is_read_while_an_earlier_reply_is_open():
    runner = EchoRunner()
    async with gateway(runner) as http:
        runner.gate.clear()
        _, writer = await asyncio.open_connection("127.0.0.1", http.port)
        writer.write(ask_and_stay(b'{"texts": ["Tom"]}') + b"GET /")
        await eventually(lambda: http.server.metric("lingon_requests_in_flight") == 1)
        writer.write(b"a" * (64 << 20))  # much more than the system keeps for both ends
        await asyncio.sleep(0.5)
        left = writer.transport.get_write_buffer_size()
        writer.transport.abort()
        runner.gate.set()
    assert left > 32 << 20


@pytest.mark.parametrize("spaces", [0, 300_000])  # a long body pauses the reading of its connection
async def test_a_client_that_leaves_frees_its_rows_at_once(spaces: int):
    runner = EchoRunner(endless=True, delay=0.02)
    async with gateway(runner) as http:
        body = b'{"texts": ["one two three"], "options": {"beamSize": 1}}' + b" " * spaces
        for path, method in (("/v1/translate", "Translate"), ("/v1/translate:stream", "TranslateStream")):
            cancelled = {"method": method, "code": "CANCELLED"}
            _, writer = await asyncio.open_connection("127.0.0.1", http.port)
            writer.write(ask(path, body))
            await eventually(lambda: http.server.metric("lingon_requests_in_flight") == 1)
            writer.close()
            await eventually(lambda: http.server.metric("lingon_requests_in_flight") == 0)
            await eventually(lambda cancelled=cancelled: http.server.metric("lingon_requests_total", **cancelled) == 1)


async def test_no_route_but_health_and_settings_answers_without_a_key(tmp_path):
    key = new_key()
    keys = write_key_file(tmp_path, {"web": key})
    async with gateway(api_keys=keys, http_data_dir=tmp_path / "data") as http:
        replies = {
            path: await (http.get(path) if body is None else http.post(path, body)) for path, body in ROUTES.items()
        }
        replies |= {
            path: await http.upload(path, "a.txt", b"Tom", target_lang="DE", source="en", target="de")
            for path in ("/v2/document", "/translate_file")
        }
        assert {path: reply.status for path, reply in replies.items() if reply.status not in (401, 403)} == {
            "/frontend/settings": 200
        }
        assert (await http.get("/health")).status == 200
        settings = await http.get("/frontend/settings")
        assert (settings.json["keyRequired"], settings.json["apiKeys"]) == (True, True)
        assert "send it as api_key" in (await http.get("/languages")).json["error"]
        assert not list((tmp_path / "data/documents").iterdir())
        sent = (
            {"authorization": f"Bearer {key}"},
            {"authorization": f"DeepL-Auth-Key {key}"},
            {"x-goog-api-key": key},
        )
        for path, headers in zip(("/v1/models", "/v2/usage", "/language/translate/v2/languages"), sent, strict=True):
            assert (await http.get(path, headers)).status == 200
        request = {"q": "Tom", "source": "en", "target": "de", "api_key": key}
        assert (await http.post("/translate", request)).status == 200
        assert (await http.get("/v1/models", {"authorization": "Bearer \xe4"})).status == 401


async def test_the_address_of_a_client_is_that_of_the_caller(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """The calls of the gateway come by a Unix socket; nobody else can say by metadata who calls."""
    forged = (("x-lingon-client-address", "192.0.2.1"),)
    with caplog.at_level(logging.INFO):
        async with gateway(api_keys=write_key_file(tmp_path, {"web": new_key()})) as http:
            await http.post("/v1/translate", {"texts": ["Tom"]})
            with suppress(grpc.aio.AioRpcError):
                await http.server.stub.Translate(pb.TranslateRequest(texts=["Tom"]), metadata=forged)
    callers = [getattr(each, "fields", {}).get("caller") for each in caplog.records if each.message == "call"]
    assert callers == ["http/127.0.0.1", "address/127.0.0.1"]


async def test_a_full_queue_is_an_overload_in_every_api():
    runner = EchoRunner()
    async with gateway(runner, max_queue_texts=1, max_rows=1, engines=1) as http:
        runner.gate.clear()
        waiting = [asyncio.create_task(http.post("/v1/translate", TEXTS))]
        model = {"model": "en-de", "version": "1"}
        await eventually(lambda: http.server.metric("lingon_running_sentences", **model) == 1)
        waiting.append(asyncio.create_task(http.post("/v1/translate", TEXTS)))
        await eventually(lambda: http.server.metric("lingon_queue_depth", **model) == 1)
        replies = [
            await http.post("/v1/translate", {"texts": ["Tom"]}),
            await http.form("/v2/translate", {"text": "Tom", "target_lang": "DE", "source_lang": "EN"}),
            await http.post("/translate", {"q": "Tom", "source": "en", "target": "de"}),
            await http.post("/language/translate/v2", {"q": "Tom", "source": "en", "target": "de"}),
        ]
        runner.gate.set()
        await asyncio.gather(*waiting)
    assert [reply.status for reply in replies] == [429, 503, 429, 429], replies
    assert all("retry-after" in reply.headers for reply in replies)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """Allow this process both ends of IDLE connections, and some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = descriptors() + 2 * IDLE + 200
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"both ends of {IDLE:,} connections need {needed:,} open files, and the hard limit is {hard:,}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connect(port: int, count: int) -> list[socket.socket]:
    """Connect from several addresses, because one has half of the connections at most."""
    return [
        socket.create_connection(("127.0.0.1", port), timeout=60, source_address=(f"127.0.0.{2 + number % 3}", 0))
        for number in range(count)
    ]


@pytest.mark.ops
@pytest.mark.usefixtures("many_descriptors")
async def test_2000_idle_connections_do_not_stop_a_request_and_one_more_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connection_module, "HEADER_SECONDS", 600.0)  # a busy machine may need long for so many
    monkeypatch.setattr(connection_module, "IDLE_SECONDS", 600)
    monkeypatch.setattr(ports, "HTTP_CONNECTIONS", IDLE + 1)
    async with gateway() as http:

        async def connected(count: int) -> None:
            await eventually(lambda: http.server.metric("lingon_http_connections") == count, seconds=60)

        assert (await http.post("/v1/translate", TEXTS)).status == 200  # opens what stays open
        await connected(0)
        before = descriptors()
        idle = await asyncio.to_thread(connect, http.port, IDLE)
        try:
            await connected(IDLE)
            assert descriptors() >= before + 2 * IDLE
            assert (await http.post("/v1/translate", TEXTS)).status == 200
            await connected(IDLE)
            idle += await asyncio.to_thread(connect, http.port, 1)
            await connected(IDLE + 1)
            assert (await http.post("/v1/translate", TEXTS)).status == 503
            idle.pop().close()
            await connected(IDLE)
            assert (await http.post("/v1/translate", TEXTS)).status == 200
        finally:
            for each in idle:
                each.close()
        await connected(0)
        await eventually(lambda: descriptors() <= before, seconds=60)
        assert (await http.post("/v1/translate", TEXTS)).status == 200


async def test_above_the_limit_of_connections_a_request_is_refused_at_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ports, "HTTP_CONNECTIONS", 3)
    async with gateway() as http:
        idle = [
            socket.create_connection(("127.0.0.1", http.port), source_address=(f"127.0.0.{2 + number}", 0))
            for number in range(3)
        ]
        await eventually(lambda: http.server.metric("lingon_http_connections") == 3)
        assert (await exchange(http, ask("/v1/translate", b'{"texts": ["Tom"]}'))).startswith(b"HTTP/1.1 503")
        for each in idle:
            each.close()
        await eventually(lambda: http.server.metric("lingon_http_connections") == 0)
        assert (await http.post("/v1/translate", {"texts": ["Tom"]})).status == 200


@pytest.mark.parametrize(
    ("trusted", "caller"), [("", "127.0.0.1"), ("192.0.2.9", "127.0.0.1"), ("127.0.0.1", "192.0.2.7")]
)
async def test_the_address_that_a_proxy_tells_is_believed_if_the_proxy_is_trusted(
    trusted: str, caller: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    keys = write_key_file(tmp_path, {"web": new_key()})
    with caplog.at_level(logging.INFO):
        async with gateway(api_keys=keys, http_trusted_proxies=trusted) as http:
            await http.post("/v1/translate", {"texts": ["Tom"]}, {"x-forwarded-for": "192.0.2.7"})
    callers = [getattr(each, "fields", {}).get("caller") for each in caplog.records if each.message == "call"]
    assert callers == [f"http/{caller}"]


async def test_a_request_is_answered_although_the_server_is_told_to_stop():
    runner = EchoRunner(delay=0.02)
    async with gateway(runner) as http:
        sent = asyncio.create_task(http.post("/v1/translate", {"texts": ["one two three four five six seven"]}))
        model = {"model": "en-de", "version": "1"}
        await eventually(lambda: http.server.metric("lingon_running_sentences", **model) == 1)
        http.server.server.stop()
        assert (await sent).status == 200
        assert await http.server.task == 0


async def test_requests_are_counted_by_api_and_status():
    async with gateway() as http:
        await http.post("/translate", {"q": "Tom", "source": "en", "target": "de"})
        await http.post("/translate", {"q": "Tom", "source": "en", "target": "fr"})
        assert http.server.metric("lingon_http_requests_total", api="libretranslate", status="200") == 1
        assert http.server.metric("lingon_http_requests_total", api="libretranslate", status="400") == 1


async def test_pages_of_other_origins_may_call_only_if_they_are_listed():
    asked = {"origin": "https://a.example", "access-control-request-method": "POST"}
    async with gateway() as http:
        assert (await http.send("OPTIONS", "/translate", headers=asked)).status == 405
    async with gateway(http_cors=("https://a.example",)) as http:
        allowed = await http.send("OPTIONS", "/translate", headers=asked)
        other = await http.send("OPTIONS", "/translate", headers={**asked, "origin": "https://b.example"})
    assert allowed.headers["access-control-allow-origin"] == "https://a.example"
    assert "access-control-allow-origin" not in other.headers
