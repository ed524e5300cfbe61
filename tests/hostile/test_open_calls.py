"""Calls that stay open hold little memory: requests that are never whole, health.Watch, reflection."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from tests.support import http2
from tests.support.eventually import eventually_blocking
from tests.support.half_calls import HalfCall, count_open, pump_all
from tests.support.server_process import MEBIBYTE, SERVICE, ServerProcess

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
