"""Calls that stay open hold little memory: requests that are never whole, health.Watch, reflection."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from lingon.translation.v1 import translation_pb2 as pb
from tests.support import http2
from tests.support.echo_engine import RunningServer, running
from tests.support.http2 import HalfCall, count_open, pump_all
from tests.support.processes import MEBIBYTE, SERVICE, ServerProcess
from tests.support.reload_harness import AdministeredServer, refused, running_with_admin_port
from tests.support.timing import eventually, eventually_blocking

LARGE = 4 * MEBIBYTE - 100  # bytes; just below max_message_bytes
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]


def half_call(server: ServerProcess, request: bytes) -> HalfCall:
    return HalfCall(server.port, f"{SERVICE}Translate", request)


def test_requests_that_are_never_whole_hold_bounded_memory(server: ServerProcess):
    """128 requests of 4 MiB, less the last byte: 8 of one caller may go on, the others end after a moment."""
    before, held = server.resident(), []
    for _ in range(3):
        with ExitStack() as stack:
            request = http2.message(bytes(LARGE))[:-1]
            calls = [stack.enter_context(half_call(server, request)) for _ in range(128)]
            pump_all(calls, 30)
            eventually_blocking(lambda calls=calls: count_open(calls) == 8)
            assert {call.status for call in calls if call.ended} == {EXHAUSTED}
            assert server.is_healthy()
            held.append((server.resident() - before) / MEBIBYTE)
    assert max(held) <= 300, held


def test_a_request_that_arrives_slowly_is_served(server: ServerProcess):
    request = http2.message(b"\x0a\x03Tom")
    with half_call(server, request[:4]) as call:
        call.pump()
        time.sleep(1)  # longer than a request takes that is not slow
        call.socket.sendall(http2.frame(http2.DATA, http2.END_STREAM, 1, request[4:]))
        eventually_blocking(lambda: count_open([call]) == 0)
        assert call.status == 0


def test_calls_without_a_byte_of_their_request_keep_nobody_out(server: ServerProcess):
    with ExitStack() as stack:
        calls = [stack.enter_context(half_call(server, b"")) for _ in range(100)]
        assert server.is_healthy()
        eventually_blocking(lambda: count_open(calls) == 8)
        assert server.is_healthy()


def watch(channel: grpc.Channel, over: threading.Event) -> Iterator[bytes]:
    request = health_pb2.HealthCheckRequest(service="x" * LARGE).SerializeToString()
    return iter(channel.unary_stream("/grpc.health.v1.Health/Watch")(request, timeout=60))


def reflect(channel: grpc.Channel, over: threading.Event) -> Iterator[bytes]:
    def requests() -> Iterator[bytes]:
        yield reflection_pb2.ServerReflectionRequest(file_containing_symbol="x" * LARGE).SerializeToString()
        over.wait()

    method = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
    return iter(channel.stream_stream(method)(requests(), timeout=60))


@pytest.mark.parametrize("begin", [watch, reflect])
def test_a_call_that_stays_open_keeps_no_large_request(server: ServerProcess, begin: Callable[..., Iterator[bytes]]):
    over, before, codes = threading.Event(), server.resident(), set()
    with grpc.insecure_channel(server.address) as channel:
        calls = [begin(channel, over) for _ in range(40)]
        for call in calls:
            try:
                next(call)
            except grpc.RpcError as error:
                codes.add(error.code())
        held = (server.resident() - before) / MEBIBYTE
        over.set()
    assert held <= 120, held  # 40 requests of 4 MiB, and what is parsed from them, are 320 MiB
    assert codes <= {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert server.is_healthy()


TEXT = "Tom lives in Boston."
WATCH = ("/grpc.health.v1.Health/Watch", b"")
STREAM = (f"{SERVICE}TranslateStream", pb.TranslateStreamRequest(texts=[TEXT]).SerializeToString())


@asynccontextmanager
async def standing_still(server: RunningServer, path: str, body: bytes) -> AsyncIterator[None]:
    """A call whose answer the client does not read."""
    before = server.metric("lingon_requests_total", method="TranslateStream", code="OK")
    connection = await asyncio.to_thread(http2.stand_still, server.server.port, path, body)
    try:
        await asyncio.sleep(0.2)  # time for the first message, which stays unsent
        assert server.metric("lingon_requests_total", method="TranslateStream", code="OK") == before
        yield
    finally:
        connection.close()


@pytest.mark.parametrize("call", [WATCH, STREAM])
async def test_a_drain_ends_though_an_answer_is_not_read(call: tuple[str, bytes]):
    async with running(drain_seconds=0.3) as server, standing_still(server, *call):
        server.server.stop()
        await asyncio.wait_for(asyncio.shield(server.task), timeout=30)


async def test_an_engine_restarts_though_an_answer_is_not_read():
    async with running() as server, standing_still(server, *WATCH):
        server.runner.dies_at = server.runner.steps + 1
        assert (await refused(server.translate(TEXT)))[0] == "UNAVAILABLE"
        restarts = {"model": "en-de", "version": "1", "cause": "death"}
        await eventually(lambda: server.metric("lingon_engine_restarts_total", **restarts) == 1)
        await eventually(lambda: server.metric("lingon_ready") == 1)
        assert (await server.translate("Tom")).results[0].hypotheses[0].text == "Tom"


async def test_a_model_is_swapped_though_an_answer_is_not_read():
    async with running_with_admin_port() as admin, standing_still(admin.server, *WATCH):
        await asyncio.wait_for(admin.swap(admin.publish(2)), timeout=30)
        assert await admin.version() == "2"


def _model(admin: AdministeredServer) -> Callable[[], Any]:
    """A weak reference to the served model."""
    registry: Any = admin.server.server._registry
    return weakref.ref(registry.catalog.entries[0].model.translator)


async def test_a_replaced_model_is_freed_though_its_stream_is_not_read():
    async with running_with_admin_port(drain_seconds=0.2) as admin:
        model = _model(admin)
        async with standing_still(admin.server, *STREAM):
            await admin.swap(admin.publish(2))
            await eventually(lambda: admin.changes("unloaded") == 1)
            await eventually(lambda: model() is None)
            assert admin.server.metric("lingon_requests_in_flight") == 0
            ended = {"method": "TranslateStream", "code": "CANCELLED"}
            assert admin.server.metric("lingon_requests_total", **ended) == 1


async def test_a_request_of_an_unloaded_model_may_be_repeated():
    async with running() as server:
        in_flight: Any = server.server._registry.catalog.entries[0].model.in_flight
        server.runner.gate.clear()
        inside = [asyncio.create_task(refused(server.call(TEXT))), asyncio.create_task(refused(server.stream(TEXT)))]
        try:
            await eventually(lambda: in_flight.count == 2)
            await asyncio.sleep(0.1)  # time for the first message of the stream
            in_flight.cancel_all()
            ended = ("UNAVAILABLE", "the model was unloaded before the request was done; try again")
            assert await asyncio.gather(*inside) == [ended, ended]
        finally:
            server.runner.gate.set()
        assert (await server.translate("Tom")).results[0].hypotheses[0].text == "Tom"


async def test_a_model_whose_calls_are_cancelled_is_freed_at_once():
    gc.collect()
    gc.disable()  # so that only the swap collects garbage
    try:
        async with running_with_admin_port(drain_seconds=0.1) as admin:
            model = _model(admin)
            admin.versions.runners[1].gate.clear()
            inside = [asyncio.create_task(refused(admin.server.call(TEXT))) for _ in range(5)]
            await eventually(lambda: admin.server.metric("lingon_requests_in_flight") == 5)
            await admin.swap(admin.publish(2))
            assert {status for status, _ in await asyncio.gather(*inside)} == {"UNAVAILABLE"}
            admin.versions.runners[1].gate.set()
            await eventually(lambda: model() is None)
    finally:
        gc.enable()
