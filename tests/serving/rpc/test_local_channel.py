"""A call in the same process ends as one by a connection: its reply, its errors, its limits, its counts."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from lingon.serving.auth.api_keys import new_key
from lingon.serving.rpc.calls import SERVICE
from lingon.serving.rpc.local_channel import WRITTEN, LocalChannel
from lingon.status import CLIENT_ADDRESS
from lingon.translation.v1 import translation_pb2 as pb
from lingon.translation.v1 import translation_pb2_grpc as pb_grpc
from tests.support.credentials import write_key_file
from tests.support.echo_engine import EchoRunner, RunningServer, running
from tests.support.gateway import gateway
from tests.support.timing import eventually

GREEDY = pb.DecodingOptions(beam_size=1)
FROM = ((CLIENT_ADDRESS, "192.0.2.7"),)


def local_stub(server: RunningServer) -> Any:
    """A stub whose calls take no connection."""
    return pb_grpc.TranslationServiceStub(server.server.channel)


def request(*texts: str, **fields: Any) -> pb.TranslateRequest:
    return pb.TranslateRequest(texts=texts, options=GREEDY, **fields)


async def error_of(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


async def test_replies_and_streams_are_those_of_a_connection():
    async with running() as server:
        stub = local_stub(server)
        asked = request("It is raining. Tom is here.", "", "Tom")
        streamed = pb.TranslateStreamRequest(texts=asked.texts, options=GREEDY)
        assert await stub.Translate(asked) == await server.stub.Translate(asked)
        found = [event async for event in stub.TranslateStream(streamed)]
        done = {each.done.text_index: each.done for each in found if each.HasField("done")}
        expected = {
            each.done.text_index: each.done
            async for each in server.stub.TranslateStream(streamed)
            if each.HasField("done")
        }
    assert done == expected
    assert len(done) == 3


@pytest.mark.parametrize("asked", [request(), request("Tom", model="none"), request(*["Tom"] * 400)])
async def test_errors_have_the_code_message_and_details_of_a_connection(asked: pb.TranslateRequest):
    metadata = (("x-request-id", "r-1"),)
    async with running() as server:
        stubs = local_stub(server), server.stub
        local, remote = [await error_of(stub.Translate(asked, metadata=metadata)) for stub in stubs]
    assert (local.code(), local.details()) == (remote.code(), remote.details())
    assert dict(local.trailing_metadata() or ()) == dict(remote.trailing_metadata() or ())


async def test_a_request_above_the_limit_of_bytes_is_refused():
    async with running(max_message_bytes=70_000) as server:
        error = await error_of(local_stub(server).Translate(request("x" * 80_000)))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "at most 70000 bytes" in str(error.details())


async def test_a_request_without_a_key_is_refused_as_by_a_connection(tmp_path: Any):
    key = new_key()
    async with running(api_keys=write_key_file(tmp_path, {"web": key})) as server:
        stub = local_stub(server)
        local, remote = [await error_of(each.Translate(request("Tom"))) for each in (stub, server.stub)]
        allowed = await stub.Translate(request("Tom"), metadata=(("authorization", f"Bearer {key}"), *FROM))
    assert local.code() is remote.code() is grpc.StatusCode.UNAUTHENTICATED
    assert len(allowed.results) == 1


async def test_a_deadline_ends_a_call_and_frees_its_rows():
    async with running(EchoRunner(endless=True, delay=0.02)) as server:
        error = await error_of(local_stub(server).Translate(request("one two three"), timeout=0.3))
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        late = {"method": "Translate", "code": "DEADLINE_EXCEEDED"}
        await eventually(lambda: server.metric("lingon_requests_total", **late) == 1)
        await eventually(lambda: server.metric("lingon_requests_in_flight") == 0)


@pytest.mark.parametrize("arrived", [True, False])
async def test_a_call_that_its_caller_cancels_is_cancelled_in_the_engine_too(arrived: bool):
    runner = EchoRunner(endless=True, delay=0.02)
    async with running(runner) as server:
        call = asyncio.create_task(local_stub(server).Translate(request("one two three"), timeout=20))
        if arrived:
            await eventually(lambda: server.metric("lingon_requests_in_flight") == 1)
        else:
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait({call})
        cancelled = {"method": "Translate", "code": "CANCELLED"}
        await eventually(lambda: server.metric("lingon_requests_in_flight") == 0)
        if arrived:
            await eventually(lambda: server.metric("lingon_requests_total", **cancelled) == 1)


async def test_a_stream_that_is_not_read_stops_its_method_and_a_cancel_ends_it():
    texts = [f"number {count}" for count in range(3 * WRITTEN)]
    async with running() as server:
        call = local_stub(server).TranslateStream(pb.TranslateStreamRequest(texts=texts, options=GREEDY), timeout=20)
        await anext(call)
        await eventually(lambda: call._call._room.locked())
        assert call._call.replies.qsize() == WRITTEN
        assert server.metric("lingon_requests_in_flight") == 1
        call.cancel()
        await eventually(lambda: server.metric("lingon_requests_in_flight") == 0)


async def test_a_call_that_waits_while_the_server_closes_its_gate_is_refused_as_draining():
    async with running() as server:
        server.server._gate.close()
        local, remote = [await error_of(stub.Translate(request("Tom"))) for stub in (local_stub(server), server.stub)]
    assert (local.code(), local.details()) == (remote.code(), remote.details())
    assert local.code() is grpc.StatusCode.UNAVAILABLE


async def test_calls_by_http_are_counted_as_received():
    async with gateway() as http:
        before = http.server.metric("lingon_received_calls_total")
        assert (await http.post("/v1/translate", {"texts": ["Tom"]})).status == 200
        assert http.server.metric("lingon_received_calls_total") == before + 2  # the first one checks the key


async def test_messages_of_the_translation_service_are_passed_on_without_bytes():
    def no_bytes(_: Any) -> Any:
        raise AssertionError

    async with running() as server:
        channel, asked = server.server.channel, request("It is raining. Tom is here.")
        sent, expected = asked.SerializeToString(), await server.stub.Translate(asked)
        assert await channel.unary_unary(f"{SERVICE}Translate", no_bytes, no_bytes)(asked) == expected
        stream = channel.unary_stream(f"{SERVICE}TranslateStream", no_bytes, no_bytes)
        events = [each async for each in stream(pb.TranslateStreamRequest(texts=asked.texts, options=GREEDY))]
    assert asked.SerializeToString() == sent
    assert events[-1].done.result.hypotheses[0].text == expected.results[0].hypotheses[0].text


class _OneMethod:
    """The services of a server with one handler, which accept every call."""

    interceptors = ()

    def __init__(self, path: str, method: Any) -> None:
        handler = grpc.stream_stream_rpc_method_handler(method)
        self.handlers = {path: handler}

    def arrive(self, path: str, call: Any, start: Any) -> None:
        start()


def talking(method: Any) -> Any:
    """The function that calls a method with requests and replies in streams."""
    path = f"{SERVICE}TranslateLive"
    channel = LocalChannel(_OneMethod(path, method), lambda: None)  # type: ignore[arg-type]
    return channel.stream_stream(path, bytes, bytes)


async def echo(_: Any, context: Any) -> None:
    while (request := await context.read()) is not grpc.aio.EOF:
        await context.write(request)


async def test_requests_and_replies_pass_each_other():
    sent = asyncio.Queue[Any]()

    async def requests() -> Any:
        while (each := await sent.get()) is not None:
            yield each

    call = talking(echo)(requests())
    for number in range(2 * WRITTEN):
        sent.put_nowait(number)
        assert await anext(call) == number  # before the next request is there
    sent.put_nowait(None)
    assert [each async for each in call] == []


async def test_a_request_is_taken_when_the_method_reads_it():
    taken = []

    async def two(_: Any, context: Any) -> None:
        await context.read()
        await context.read()

    def requests() -> Any:
        for number in range(100):
            taken.append(number)
            yield number

    assert [each async for each in talking(two)(requests())] == []
    assert taken == [0, 1]


async def test_an_error_of_the_requests_ends_the_call_and_is_that_of_the_replies():
    ended = asyncio.Event()

    async def method(_: Any, context: Any) -> None:
        try:
            await echo(_, context)
        finally:
            ended.set()

    async def requests() -> Any:
        yield "one"
        raise ValueError("the words ended")

    call = talking(method)(requests())
    assert await anext(call) == "one"
    with pytest.raises(ValueError, match="the words ended"):
        await anext(call)
    assert ended.is_set()
