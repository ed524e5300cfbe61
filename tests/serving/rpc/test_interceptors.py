"""What leaves a server: never the status UNKNOWN, never the text of an error; and nothing of a user in its log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc import code_pb2
from prometheus_client.exposition import generate_latest

from lingon.errors import QuotaExceeded
from lingon.serving.auth.api_keys import new_key
from lingon.serving.observability.metrics import Metrics
from lingon.serving.rpc.interceptors import CallInterceptor, ErrorInterceptor
from lingon.status import to_status
from lingon.translation.v1 import translation_pb2 as pb
from lingon.translation.v1 import translation_pb2_grpc as pb_grpc
from tests.support.echo_engine import EchoRunner, running
from tests.support.eventually import eventually
from tests.support.key_files import bearer, keyfile
from tests.support.statuses import BrokenEngine, details, failure

CANARY = "canary"
GARBAGE = b"\xff\xff\xff"
TRANSLATE = "/lingon.translation.v1.TranslationService/Translate"
HEALTH, REFLECTION = "/grpc.health.v1.Health", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


async def ending(channel: grpc.aio.Channel, method: str, message: bytes, *metadata: tuple[str, str]) -> Any:
    """The error that a call ends with."""
    call = channel.unary_stream(method)(message, metadata=metadata, timeout=10)  # on the wire all kinds are alike
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call.read()
    return raised.value


@pytest.mark.parametrize(
    ("method", "message", "code"),
    [
        (TRANSLATE, GARBAGE, "INVALID_ARGUMENT"),
        (f"{HEALTH}/Check", GARBAGE, "INVALID_ARGUMENT"),
        (f"{HEALTH}/Watch", GARBAGE, "INVALID_ARGUMENT"),
        (REFLECTION, GARBAGE, "INVALID_ARGUMENT"),
        (f"{HEALTH}/Check", b"\x0a\x04nope", "NOT_FOUND"),
        (f"{HEALTH}/List", b"", "UNIMPLEMENTED"),
    ],
)
async def test_whatever_fails_in_any_service_has_a_status_of_ours_and_an_id(
    method: str, message: bytes, code: str, caplog: pytest.LogCaptureFixture
):
    async with running() as server:
        error = await ending(server.channel, method, message)
        assert not any("class" in text or "Error" in text for text in (error.details(), error.debug_error_string()))
    assert error.code().name == code
    assert len(dict(error.trailing_metadata())["x-request-id"]) == 32
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]  # it is the caller's


@pytest.mark.parametrize(
    ("method", "message", "metadata", "code"),
    [
        *((method, b"x" * 5000, (), "RESOURCE_EXHAUSTED") for method in (TRANSLATE, f"{HEALTH}/Check", REFLECTION)),
        (TRANSLATE, b"", (("x-long", "v" * 20_000),), "RESOURCE_EXHAUSTED"),
        ("/no/such", b"", (), "UNIMPLEMENTED"),
        ("/no/such", b"x" * 5000, (), "UNIMPLEMENTED"),
    ],
)
async def test_what_grpc_refuses_itself_is_not_unknown_either(method: str, message: bytes, metadata: Any, code: str):
    async with running(max_message_bytes=2048) as server:
        assert (await ending(server.channel, method, message, *metadata)).code().name == code
        assert (await server.translate("Tom")).results[0].status.code == code_pb2.OK


class Raising(grpc.aio.ServerInterceptor):
    """An interceptor that fails."""

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        raise ValueError(f"secret {CANARY}")


class Failing(grpc.GenericRpcHandler):
    """A service of every kind of method, each of which fails after what it is asked to say."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        async def unary(request: Any, context: Any) -> bytes:
            raise ValueError(f"secret {CANARY}")

        async def stream(request: Any, context: Any) -> AsyncIterator[bytes]:
            yield b"one"
            raise ValueError(f"secret {CANARY}")

        async def writing(request: Any, context: Any) -> None:
            await context.write(b"one")
            raise ValueError(f"secret {CANARY}")

        made = {
            "/a/unary_unary": grpc.unary_unary_rpc_method_handler(unary),
            "/a/stream_unary": grpc.stream_unary_rpc_method_handler(unary),
            "/a/unary_stream": grpc.unary_stream_rpc_method_handler(stream),
            "/a/stream_stream": grpc.stream_stream_rpc_method_handler(stream),
            "/a/writing": grpc.unary_stream_rpc_method_handler(writing),
        }
        return made.get(handler_call_details.method)


@pytest.mark.parametrize("method", ["unary_unary", "stream_unary", "unary_stream", "stream_stream", "writing"])
@pytest.mark.parametrize("where", ["interceptor", "method"])
async def test_what_raises_anywhere_ends_as_internal_and_tells_nothing(
    method: str, where: str, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    server = grpc.aio.server(interceptors=[ErrorInterceptor(), *([Raising()] if where == "interceptor" else [])])
    server.add_generic_rpc_handlers((Failing(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_stream(f"/a/{method}")(b"", timeout=10)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            _ = [reply async for reply in call]
    await server.stop(0)
    request_id = dict(raised.value.trailing_metadata() or ())["x-request-id"]
    assert raised.value.code() == grpc.StatusCode.INTERNAL
    assert raised.value.details() == f"internal error; the server's log has its cause under request id {request_id}"
    assert any(getattr(record, "fields", {}).get("request_id") == request_id for record in caplog.records)
    assert not any(CANARY in str(vars(record)) for record in caplog.records)


async def test_a_call_that_is_cancelled_in_any_service_leaves_nothing_behind(caplog: pytest.LogCaptureFixture):
    async with running() as server:
        never = asyncio.Event()

        async def ask() -> AsyncIterator[bytes]:
            yield b""
            await never.wait()

        for method in (f"{HEALTH}/Watch", REFLECTION):
            call = server.channel.stream_stream(method)(ask())
            await call.read()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call.read()
        assert (await server.translate("Tom")).results[0].status.code == code_pb2.OK
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


class Endless(pb_grpc.TranslationServiceServicer):
    """Replies that fill whatever lies between it and a client who does not read."""

    async def TranslateStream(self, request: Any, context: Any) -> AsyncIterator[pb.TranslateStreamResponse]:
        while True:
            yield pb.TranslateStreamResponse(delta=pb.TextDelta(text="x" * 100_000))


async def test_who_goes_while_a_reply_is_on_its_way_to_him_is_no_fault_of_ours(caplog: pytest.LogCaptureFixture):
    """What gRPC raises then is an error of its own, more often than a cancelled task."""
    metrics = Metrics()
    server = grpc.aio.server(interceptors=[CallInterceptor(metrics)])
    pb_grpc.add_TranslationServiceServicer_to_server(Endless(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        for _ in range(20):
            call = pb_grpc.TranslationServiceStub(channel).TranslateStream(pb.TranslateStreamRequest())
            await call.read()
            await asyncio.sleep(0.02)
            call.cancel()
    await server.stop(1)
    told = metrics.registry.get_sample_value
    assert told("lingon_requests_total", {"method": "TranslateStream", "code": "CANCELLED"}) == 20
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_when_to_come_back_is_told_where_no_details_are_unpacked():
    async with running(ready=False) as server:
        status, trailers = await failure(server.translate("Tom"))
        server.loader.gate.set()
        await eventually(lambda: server.metric("lingon_ready") == 1)  # else it ends amid loading
    assert trailers["retry-after-ms"] == str(details(status)["RetryInfo"].retry_delay.ToMilliseconds())


def test_a_wait_is_never_told_too_short():
    for seconds in (0.0571, 0.029, 1e-9, 12.3456789):
        delay: Duration = details(to_status(QuotaExceeded("", seconds)))["RetryInfo"].retry_delay
        assert seconds * 1000 <= delay.ToMilliseconds() < seconds * 1000 + 1 + 1e-6


async def test_no_label_is_what_a_client_made_up(tmp_path: Path):
    for keys in (None, keyfile(tmp_path, {"shop": new_key()})):
        async with running(api_keys=keys) as server:
            for method in (f"/{CANARY}/{CANARY}", f"/lingon.translation.v1.TranslationService/{CANARY}"):
                await ending(server.channel, method, b"", ("user-agent", CANARY), ("x-request-id", CANARY))
            await failure(server.translate("Tom", model=CANARY, source_language_code=CANARY))
            assert CANARY.encode() not in generate_latest(server.server.metrics.registry)


@pytest.mark.parametrize("broken", [False, True])
async def test_no_key_and_no_text_is_ever_logged(
    broken: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: Any
):
    """Every way in which a call can go, at the level debug."""
    caplog.set_level(logging.DEBUG)
    key = f"{CANARY}-{new_key()}"
    keys = keyfile(tmp_path, {"shop": key}, shop={"characters_per_minute": 3000})
    engine = {"engine": BrokenEngine} if broken else {}
    async with running(EchoRunner(faulty="sea"), api_keys=keys, max_message_bytes=10_000, **engine) as server:
        shown = bearer(key)
        for text in (CANARY, f"{CANARY} sea", CANARY * 200, f"{CANARY}\u0000\n", CANARY * 400):
            for call in (
                server.stub.Translate(pb.TranslateRequest(texts=[text], target_prefixes=[CANARY]), metadata=shown),
                server.stub.TranslateStream(pb.TranslateStreamRequest(texts=[text]), metadata=shown).read(),
                server.stub.Score(pb.ScoreRequest(pairs=[pb.ScorePair(source=text, target=CANARY)]), metadata=shown),
                server.stub.Translate(pb.TranslateRequest(texts=["a"], model=CANARY), metadata=shown),
                server.translate(text),
            ):
                await asyncio.gather(call, return_exceptions=True)
        for method in (TRANSLATE, f"{HEALTH}/Check", REFLECTION, f"/{CANARY}/x"):
            for message in (GARBAGE + CANARY.encode(), CANARY.encode() * 2000):
                for metadata in (shown, bearer(f"{CANARY}-wrong"), (("authorization", CANARY), ("x-other", CANARY))):
                    await ending(server.channel, method, message, *metadata)
    assert len(caplog.records) > 20
    assert not [record for record in caplog.records if CANARY in record.getMessage() or CANARY in str(vars(record))]
    assert CANARY not in "".join(capfd.readouterr())
