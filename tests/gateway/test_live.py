"""Live translation over a WebSocket, in front of a scripted server: messages, keys, origins, bounds and ends."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from prometheus_client import CollectorRegistry
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode

from lingon.gateway import live, web_socket
from lingon.gateway.app import GatewayOptions, _open
from lingon.gateway.backend import Backend
from lingon.gateway.server import HttpOptions
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.gateway import send
from tests.support.scripted_server import FakeService, ScriptedFault, serving
from tests.support.timing import eventually

START = {"start": {"sourceLanguageCode": "en", "targetLanguageCode": "de"}}
END: dict[str, Any] = {"end": {}}


class Door:
    """A gateway in front of a scripted server."""

    def __init__(self, service: FakeService, port: int, registry: CollectorRegistry) -> None:
        self.service, self.port, self._registry = service, port, registry

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/translate:live"

    def metric(self, name: str, **labels: str) -> float:
        return self._registry.get_sample_value(name, labels) or 0.0


@asynccontextmanager
async def door(service: FakeService | None = None, *, http: Any = None, **options: Any) -> AsyncIterator[Door]:
    service, registry = service or FakeService(), CollectorRegistry()
    with serving(service) as address:
        made = HttpOptions(port=0, drain_seconds=1.0, **(http or {}))
        async with _open(Backend.connect(address), registry, made, GatewayOptions(**options)) as opened:
            yield Door(service, opened.port, registry)


async def said(socket: ClientConnection, *messages: Any) -> None:
    for message in messages:
        await socket.send(json.dumps(message))


async def answers(socket: ClientConnection) -> list[Any]:
    """Return what is answered until the connection closes."""
    found = []
    with suppress(ConnectionClosed):
        while True:
            found.append(json.loads(await socket.recv()))
    return found


def words(first: int, *texts: str) -> dict[str, Any]:
    return {"words": {"from": first, "words": [{"text": text} for text in texts]}}


async def test_messages_are_those_of_the_service_as_json():
    async with door() as gateway, connect(gateway.url) as socket:
        await said(socket, START, words(0, "one", "two"), {"pause": {}}, words(2, "three"), END)
        found = await answers(socket)
    assert found[0] == {
        "ready": {
            "model": "en-de",
            "version": "1",
            "sourceLanguageCode": "en",
            "targetLanguageCode": "de",
            "policy": "LIVE_POLICY_LOCAL_AGREEMENT",
            "lagWords": 3,
        }
    }
    assert found[1]["update"] == {"agreed": "ONE", "tentative": " TWO", "words": 2, "agreedWords": 1}
    assert "".join(each["update"].get("agreed", "") for each in found[1:-1]) == "ONE TWO THREE"
    assert found[-1] == {"done": {"words": 3, "usage": {"sourceTokens": 3, "targetTokens": 3}}}
    assert (socket.close_code, gateway.metric("lingon_http_requests_total", api="lingon", status="101")) == (1000, 1)


async def test_an_update_arrives_before_the_next_words_are_sent():
    async with door() as gateway, connect(gateway.url) as socket:
        await said(socket, START, words(0, "w0"))
        assert "ready" in json.loads(await socket.recv())
        for number in range(1, 20):
            assert json.loads(await socket.recv())["update"]["words"] == number
            await said(socket, words(number, f"w{number}"))


@pytest.mark.parametrize("way", ["header", "subprotocol"])
async def test_a_key_is_passed_on_as_a_header_or_as_a_subprotocol(way: str):
    key = "k-1_~!"
    written = base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")
    offered: Any = ["lingon.live.v1", f"lingon.key.{written}"]
    given = {"subprotocols": offered} if way == "subprotocol" else {}
    headers = {"authorization": f"Bearer {key}"} if way == "header" else {}
    async with door() as gateway, connect(gateway.url, additional_headers=headers, **given) as socket:
        await said(socket, START)
        await socket.recv()
        assert ("authorization", f"Bearer {key}") in [tuple(each) for each in gateway.service.metadata]
        assert socket.subprotocol == ("lingon.live.v1" if way == "subprotocol" else None)  # the key is not sent back


async def refused(url: str, **options: Any) -> tuple[int, Any]:
    """Return the status and the body of the reply that refuses a WebSocket."""
    with pytest.raises(InvalidStatus) as caught:
        async with connect(url, **options):
            pass
    return caught.value.response.status_code, json.loads(caught.value.response.body)


async def test_a_subprotocol_without_a_key_is_refused():
    offered: Any = ["lingon.key.***"]
    async with door() as gateway:
        status, body = await refused(gateway.url, subprotocols=offered)
    assert (status, body["code"]) == (401, 16)


@pytest.mark.parametrize("origin", ["https://example.com", "http://127.0.0.1:1", "null"])
async def test_a_page_of_another_origin_is_refused(origin: str):
    async with door() as gateway:
        status, body = await refused(gateway.url, origin=origin)
        assert gateway.service.requests == []
    assert (status, body["message"]) == (403, f"pages of {origin} may not call: --http-cors does not list them")


@pytest.mark.parametrize(
    ("origin", "options"),
    [
        ("http://127.0.0.1:{port}", {}),
        ("https://example.com", {"cors": ["https://example.com"]}),
        ("https://example.com", {"cors": ["*"]}),
        ("moz-extension://1234", {}),
    ],
)
async def test_the_own_page_and_origins_that_are_listed_may_call(origin: str, options: Any):
    async with door(**options) as gateway, connect(gateway.url, origin=origin.format(port=gateway.port)) as socket:
        await said(socket, START)
        assert "ready" in json.loads(await socket.recv())


async def test_at_another_path_a_request_is_answered_without_the_upgrade():
    async with door() as gateway:
        with pytest.raises(InvalidStatus) as caught:
            async with connect(f"ws://127.0.0.1:{gateway.port}/v1/models"):
                pass
    assert caught.value.response.status_code == 200


async def test_a_request_without_the_upgrade_is_refused():
    async with door() as gateway:
        reply = await asyncio.to_thread(send, gateway.port, "GET", "/v1/translate:live", b"", "", {})
        assert gateway.metric("lingon_http_requests_total", api="lingon", status="426") == 1
    assert (reply.status, reply.headers["upgrade"], reply.json["code"]) == (426, "websocket", 9)


@pytest.mark.parametrize(
    ("message", "code", "reason"),
    [
        ("no json", 4400, "the message is not a TranslateLiveRequest"),
        ('{"wrods": {}}', 4400, "the message is not a TranslateLiveRequest"),
        ('{"pause": {}, "end": {}}', 4400, "the message is not a TranslateLiveRequest"),
        ("[]", 4400, "the message is not a TranslateLiveRequest: it must be an object, got an array"),
        ("null", 4400, "the message is not a TranslateLiveRequest: it must be an object, got null"),
        ("5", 4400, "the message is not a TranslateLiveRequest: it must be an object, got a number"),
        (b"bytes", 1003, "a message must be text, got bytes"),
        ("x" * (web_socket.MESSAGE_BYTES + 1), 1009, ""),
    ],
)
async def test_a_wrong_message_ends_the_speaker_with_a_reason(message: Any, code: int, reason: str):
    async with door() as gateway, connect(gateway.url) as socket:
        await said(socket, START)
        await socket.recv()
        await socket.send(message)
        found = await answers(socket)
        if code == 4400:
            assert found[-1]["error"]["message"].startswith(reason)
        assert socket.close_code == code
        assert (socket.close_reason or "").startswith(reason)
        assert await asyncio.to_thread(gateway.service.speakers_left.acquire, timeout=30)


@pytest.mark.parametrize("after", [0, 2])
async def test_an_error_of_the_server_is_a_message_and_the_close_code_of_its_status(after: int):
    fault = ScriptedFault(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many speakers " + "é" * 100, after_events=after)
    async with door(FakeService(faults=[fault])) as gateway, connect(gateway.url) as socket:
        await said(socket, START, words(0, "one", "two"), words(2, "three"))
        found = await answers(socket)
        assert found[-1]["error"] == {"code": 8, "message": fault.message}
        assert (socket.close_code, len((socket.close_reason or "").encode())) == (4429, 122)  # whole characters


async def test_a_server_that_shuts_down_ends_a_speaker_with_the_close_code_of_a_restart():
    info = error_details_pb2.ErrorInfo(reason="DRAINING", domain="lingon")
    fault = ScriptedFault(grpc.StatusCode.UNAVAILABLE, "shutting down; try again", (info,), after_events=2)
    async with door(FakeService(faults=[fault])) as gateway, connect(gateway.url) as socket:
        await said(socket, START, words(0, "one", "two"), words(2, "three"))
        found = await answers(socket)
        assert found[-1]["error"]["message"] == "shutting down; try again"
        assert (socket.close_code, socket.close_reason) == (1012, "shutting down; try again")


async def test_a_client_that_vanishes_ends_the_call():
    async with door() as gateway:
        socket = await connect(gateway.url)
        await said(socket, START, words(0, "one"))
        await socket.recv()
        socket.transport.abort()
        assert await asyncio.to_thread(gateway.service.speakers_left.acquire, timeout=30)
        await eventually(lambda: gateway.metric("lingon_http_requests_total", api="lingon", status="499") == 1)
        await eventually(lambda: gateway.metric("lingon_http_connections") == 0)


async def test_a_client_that_says_nothing_is_disconnected(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(live, "START_SECONDS", 0.05)
    async with door() as gateway, connect(gateway.url) as socket:
        (found,) = await answers(socket)
        assert (socket.close_code, found["error"]["message"]) == (
            4408,
            "the first message did not arrive within 0.05 s",
        )
        assert gateway.service.requests == []


async def test_empty_frames_of_one_message_are_bounded():
    async with door() as gateway, connect(gateway.url) as socket:
        begin = Frame(Opcode.TEXT, b"", fin=False).serialize(mask=True)
        more = Frame(Opcode.CONT, b"", fin=False).serialize(mask=True)
        socket.transport.write(begin + more * (3 * web_socket.FRAGMENTS))
        with pytest.raises(ConnectionClosed):
            await socket.recv()
        assert socket.close_code == 1009


async def test_what_sockets_hold_is_in_the_budget_of_all_connections():
    part = Frame(Opcode.TEXT, b"x" * 60_000, fin=False).serialize(mask=True)
    async with door(http={"held_bytes": 100_000}) as gateway, connect(gateway.url) as first:
        first.transport.write(part)
        with pytest.raises(ConnectionClosed):
            await first.recv()
        assert first.close_code == 1013


async def test_many_frames_in_one_read_leave_the_loop_to_others():
    ping = Frame(Opcode.PING, b"").serialize(mask=True)
    async with door() as gateway, connect(gateway.url) as socket:
        await said(socket, START)
        await socket.recv()
        socket.transport.write(ping * 20_000)
        await said(socket, words(0, "one", "two"))
        assert json.loads(await socket.recv())["update"]["agreed"] == "ONE"


async def test_a_server_that_stops_says_so_after_its_time():
    async with door() as gateway:
        socket = await connect(gateway.url)
        await said(socket, START, words(0, "one", "two"))
        await socket.recv()
    found = await answers(socket)
    assert found[-1]["error"]["message"] == "the server is shutting down; try again"
    assert socket.close_code == 1012


class DeafChannel:
    """A channel to a server that reads no words. It counts the calls that began, and those that were cancelled."""

    def __init__(self) -> None:
        self.begun = self.cancelled = 0

    def unary_unary(self, path: str, **_: Any) -> Any:
        async def call(request: Any, **_: Any) -> Any:
            return pb.ListModelsResponse()

        return call

    unary_stream = stream_unary = unary_unary

    def stream_stream(self, path: str, **_: Any) -> Any:
        def call(requests: Any, **_: Any) -> Any:
            self.begun += 1
            return self

        return call

    def __aiter__(self) -> DeafChannel:
        return self

    async def __anext__(self) -> Any:
        await asyncio.Event().wait()

    def cancel(self) -> None:
        self.cancelled += 1

    async def close(self) -> None:
        pass


async def test_a_client_that_vanishes_ends_a_call_that_reads_nothing():
    channel, registry = DeafChannel(), CollectorRegistry()
    async with _open(Backend(channel), registry, HttpOptions(port=0, drain_seconds=1.0), GatewayOptions()) as opened:
        socket = await connect(f"ws://127.0.0.1:{opened.port}/v1/translate:live")
        await said(socket, START, *[words(number, "w") for number in range(20)])
        await eventually(lambda: channel.begun == 1)
        socket.transport.abort()
        await eventually(lambda: channel.cancelled == 1)


async def test_a_flood_waits_in_the_connection_while_the_server_reads_nothing():
    channel, registry = DeafChannel(), CollectorRegistry()
    async with _open(Backend(channel), registry, HttpOptions(port=0, drain_seconds=1.0), GatewayOptions()) as opened:
        socket = await connect(f"ws://127.0.0.1:{opened.port}/v1/translate:live")
        await said(socket, START)
        await eventually(lambda: channel.begun == 1)
        message = Frame(Opcode.TEXT, b"x" * 60_000).serialize(mask=True)
        for _ in range(200):  # 12 MB, more than the kernel keeps
            socket.transport.write(message)
        await eventually(lambda: socket.transport.get_write_buffer_size() > 0)
        gc.collect()  # connections of other tests, which are in cycles
        held = [each for each in gc.get_objects() if type(each) is web_socket.WebSocket]
        assert len(held) == 1
        await eventually(lambda: held[0]._is_full)
        assert held[0].queue.qsize() <= web_socket.SLICE_BYTES
        assert len(held[0]._unparsed) < 2**20  # one read of the system
        socket.transport.abort()
    assert channel.cancelled == 1
