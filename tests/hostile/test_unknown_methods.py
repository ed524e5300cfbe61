"""Calls of unknown methods end with UNIMPLEMENTED for every path; in grpc.aio a path could end the server."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from google.rpc import code_pb2

from tests.support import http2
from tests.support.echo_engine import EchoRunner, running
from tests.support.processes import MEBIBYTE, RESPONSE_SECONDS, SERVICE, ServerProcess, stays_healthy
from tests.support.repository import scaled
from tests.support.timing import eventually

UNIMPLEMENTED = grpc.StatusCode.UNIMPLEMENTED.value[0]
PATHS = {
    "no UTF-8": "/\xce",
    "half a character": SERVICE + "\xf0\x9f",
    "a lone surrogate": "/\xed\xa0\x80",
    "two bytes for NUL": "/a/\xc0\x80",
    "UTF-8": "/Übersetzer/Übersetze".encode().decode("latin-1"),
    "a known method with a suffix": SERVICE + "Translate\xff",
    "another service": "/other.Service/Translate",
    "no service": "/Translate",
    "a path of 4 kB": "/" + "x" * 4000,
}


async def ask(port: int, path: str) -> int | None:
    """The status of a call with this path."""
    raw = http2.opening() + http2.call(http2.call_headers(path), http2.message(b""))
    heard, ended = await asyncio.to_thread(http2.converse, port, raw, 10 * RESPONSE_SECONDS)
    assert ended
    return http2.status(heard)


@pytest.mark.parametrize("name", PATHS)
async def test_an_unknown_method_is_refused_and_running_calls_end_well(name: str):
    async with running(EchoRunner()) as server:
        server.runner.gate.clear()
        inside = [server.call("Tom lives in Boston.") for _ in range(3)]
        await eventually(lambda: server.metric("lingon_requests_in_flight") == 3)
        for _ in range(3):
            assert await ask(server.server.port, PATHS[name]) == UNIMPLEMENTED
        server.runner.gate.set()
        replies = [await call for call in inside]
        assert {reply.results[0].status.code for reply in replies} == {code_pb2.OK}
        assert (await server.translate("Tom")).results[0].hypotheses[0].text == "Tom"


async def test_an_unknown_method_is_refused_on_the_admin_port():
    async with running(admin_port=0) as server:
        for _ in range(3):
            assert await ask(server.server.admin_port, PATHS["no UTF-8"]) == UNIMPLEMENTED


async def test_a_server_shuts_down_after_calls_of_unknown_methods():
    async with running() as server:
        assert await ask(server.server.port, PATHS["no UTF-8"]) == UNIMPLEMENTED
        server.server.stop()
        assert await asyncio.wait_for(server.task, 20) == 0


def test_calls_of_unknown_methods_leak_no_memory(server: ServerProcess):
    """The bound is one MiB for 100 calls, as for any invalid call."""
    together, rounds = 100, scaled(20, 1000)
    calls = (http2.call(http2.call_headers("/\xce"), http2.message(b""), 2 * place + 1) for place in range(together))
    raw = http2.opening() + b"".join(calls)
    for _ in range(5):
        http2.converse(server.port, raw, 10 * RESPONSE_SECONDS)
    before = server.resident()
    with stays_healthy(server):
        for _ in range(rounds):
            assert http2.converse(server.port, raw, 10 * RESPONSE_SECONDS)[1]
    assert server.resident() - before < rounds * together / 100 * MEBIBYTE
    assert '"level": "error"' not in server.logged()


def test_the_headers_of_a_call_are_not_logged(server: ServerProcess):
    """gRPC writes headers that are no UTF-8 into its own log lines."""
    headers = http2.call_headers(SERVICE + "Translate", authorization="Bearer confidential\xff", x_note="secretly \xfc")
    heard, ended = http2.converse(
        server.port, http2.opening() + http2.call(headers, http2.message(b"")), 10 * RESPONSE_SECONDS
    )
    assert ended
    assert http2.status(heard) is not None
    assert "confidential" not in server.logged()
    assert "secretly" not in server.logged()
