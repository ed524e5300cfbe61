"""Replies never have the status UNKNOWN or the text of an exception, and logs contain no text or key of a user."""

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
from tests.support.credentials import bearer, write_key_file
from tests.support.echo_engine import BrokenEngine, EchoRunner, details, failure, running
from tests.support.timing import eventually

CANARY = "canary"
GARBAGE = b"\xff\xff\xff"
TRANSLATE = "/lingon.translation.v1.TranslationService/Translate"
HEALTH, REFLECTION = "/grpc.health.v1.Health", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


async def error_of(channel: grpc.aio.Channel, method: str, message: bytes, *metadata: tuple[str, str]) -> Any:
    """Return the error with which a call ends."""
    call = channel.unary_stream(method)(message, metadata=metadata, timeout=10)
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
async def test_errors_of_all_services_have_a_lingon_status_and_a_request_id(
    method: str, message: bytes, code: str, caplog: pytest.LogCaptureFixture
):
    async with running() as server:
        error = await error_of(server.channel, method, message)
        assert not any("class" in text or "Error" in text for text in (error.details(), error.debug_error_string()))
    assert error.code().name == code
    assert len(dict(error.trailing_metadata())["x-request-id"]) == 32
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]  # the caller caused the error


@pytest.mark.parametrize(
    ("method", "message", "metadata", "code"),
    [
        *((method, b"x" * 5000, (), "RESOURCE_EXHAUSTED") for method in (TRANSLATE, f"{HEALTH}/Check", REFLECTION)),
        (TRANSLATE, b"", (("x-long", "v" * 20_000),), "RESOURCE_EXHAUSTED"),
        ("/no/such", b"", (), "UNIMPLEMENTED"),
        ("/no/such", b"x" * 5000, (), "UNIMPLEMENTED"),
    ],
)
async def test_calls_that_grpc_itself_refuses_are_not_unknown_either(
    method: str, message: bytes, metadata: Any, code: str
):
    async with running(max_message_bytes=2048) as server:
        assert (await error_of(server.channel, method, message, *metadata)).code().name == code
        assert (await server.translate("Tom")).results[0].status.code == code_pb2.OK


class Raising(grpc.aio.ServerInterceptor):
    """An interceptor that fails."""

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        raise ValueError(f"secret {CANARY}")


class Failing(grpc.GenericRpcHandler):
    """A service with every kind of method; each raises an error, after its first reply if it streams."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        async def unary(request: Any, context: Any) -> bytes:
            raise ValueError(f"secret {CANARY}")

        async def stream(request: Any, context: Any) -> AsyncIterator[bytes]:
            yield b"one"
            raise ValueError(f"secret {CANARY}")

        async def writing(request: Any, context: Any) -> None:
            await context.write(b"one")
            raise ValueError(f"secret {CANARY}")

        handlers = {
            "/a/unary_unary": grpc.unary_unary_rpc_method_handler(unary),
            "/a/stream_unary": grpc.stream_unary_rpc_method_handler(unary),
            "/a/unary_stream": grpc.unary_stream_rpc_method_handler(stream),
            "/a/stream_stream": grpc.stream_stream_rpc_method_handler(stream),
            "/a/writing": grpc.unary_stream_rpc_method_handler(writing),
        }
        return handlers.get(handler_call_details.method)


@pytest.mark.parametrize("method", ["unary_unary", "stream_unary", "unary_stream", "stream_stream", "writing"])
@pytest.mark.parametrize("where", ["interceptor", "method"])
async def test_an_unexpected_exception_becomes_internal_and_its_text_is_not_revealed(
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


async def test_cancelled_calls_of_other_services_leave_no_warnings(caplog: pytest.LogCaptureFixture):
    async with running() as server:
        never = asyncio.Event()

        async def requests() -> AsyncIterator[bytes]:
            yield b""
            await never.wait()

        for method in (f"{HEALTH}/Watch", REFLECTION):
            call = server.channel.stream_stream(method)(requests())
            await call.read()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call.read()
        assert (await server.translate("Tom")).results[0].status.code == code_pb2.OK
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


class Endless(pb_grpc.TranslationServiceServicer):
    """Streams without end, so that all buffers fill up if the client does not read."""

    async def TranslateStream(self, request: Any, context: Any) -> AsyncIterator[pb.TranslateStreamResponse]:
        while True:
            yield pb.TranslateStreamResponse(delta=pb.TextDelta(text="x" * 100_000))


async def test_a_client_that_cancels_during_a_reply_causes_no_error_in_the_log(
    caplog: pytest.LogCaptureFixture,
):
    """gRPC then raises an error of its own more often than it cancels the task."""
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
    value, cancelled = metrics.registry.get_sample_value, {"method": "TranslateStream", "code": "CANCELLED"}
    await eventually(lambda: value("lingon_requests_total", cancelled) == 20)
    await server.stop(1)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_the_retry_delay_is_also_in_the_trailers():
    async with running(ready=False) as server:
        status, trailers = await failure(server.translate("Tom"))
        server.loader.gate.set()
        await eventually(lambda: server.metric("lingon_ready") == 1)  # otherwise the server would stop while it loads
    assert trailers["retry-after-ms"] == str(details(status)["RetryInfo"].retry_delay.ToMilliseconds())


def test_a_retry_delay_is_never_rounded_down():
    for seconds in (0.0571, 0.029, 1e-9, 12.3456789):
        delay: Duration = details(to_status(QuotaExceeded("", seconds)))["RetryInfo"].retry_delay
        assert seconds * 1000 <= delay.ToMilliseconds() < seconds * 1000 + 1 + 1e-6


async def test_no_metric_label_contains_text_from_a_client(tmp_path: Path):
    for keys in (None, write_key_file(tmp_path, {"shop": new_key()})):
        async with running(api_keys=keys) as server:
            for method in (f"/{CANARY}/{CANARY}", f"/lingon.translation.v1.TranslationService/{CANARY}"):
                await error_of(server.channel, method, b"", ("user-agent", CANARY), ("x-request-id", CANARY))
            await failure(server.translate("Tom", model=CANARY, source_language_code=CANARY))
            assert CANARY.encode() not in generate_latest(server.server.metrics.registry)


@pytest.mark.parametrize("broken", [False, True])
async def test_no_key_and_no_text_is_logged(broken: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: Any):
    """All outcomes of a call, at log level debug."""
    caplog.set_level(logging.DEBUG)
    key = f"{CANARY}-{new_key()}"
    keys = write_key_file(tmp_path, {"shop": key}, shop={"characters_per_minute": 3000})
    engine = {"engine": BrokenEngine} if broken else {}
    async with running(EchoRunner(faulty="sea"), api_keys=keys, max_message_bytes=10_000, **engine) as server:
        own_key = bearer(key)
        for text in (CANARY, f"{CANARY} sea", CANARY * 200, f"{CANARY}\u0000\n", CANARY * 400):
            for call in (
                server.stub.Translate(pb.TranslateRequest(texts=[text], target_prefixes=[CANARY]), metadata=own_key),
                server.stub.TranslateStream(pb.TranslateStreamRequest(texts=[text]), metadata=own_key).read(),
                server.stub.Score(pb.ScoreRequest(pairs=[pb.ScorePair(source=text, target=CANARY)]), metadata=own_key),
                server.stub.Translate(pb.TranslateRequest(texts=["a"], model=CANARY), metadata=own_key),
                server.translate(text),
            ):
                await asyncio.gather(call, return_exceptions=True)
        for method in (TRANSLATE, f"{HEALTH}/Check", REFLECTION, f"/{CANARY}/x"):
            for message in (GARBAGE + CANARY.encode(), CANARY.encode() * 2000):
                for metadata in (
                    own_key,
                    bearer(f"{CANARY}-wrong"),
                    (("authorization", CANARY), ("x-other", CANARY)),
                ):
                    await error_of(server.channel, method, message, *metadata)
    assert len(caplog.records) > 20
    assert not [record for record in caplog.records if CANARY in record.getMessage() or CANARY in str(vars(record))]
    assert CANARY not in "".join(capfd.readouterr())
