"""Calls that no handler sees are counted all the same: gRPC's own statistics have them."""

from __future__ import annotations

import asyncio
import re

import grpc
import pytest

from lingon.serving.server import SERVICE
from tests.support.echo_engine import RunningServer, running
from tests.support.eventually import eventually
from tests.support.http import get
from tests.support.http2 import call, call_headers, converse, message, opening

PATH = f"/{SERVICE}/Translate"


async def counts(server: RunningServer) -> tuple[float, float]:
    """The calls that gRPC received, and those that the server has counted by their codes."""
    _, page = await asyncio.to_thread(get, server.server.metrics_port, "/metrics")
    found = dict.fromkeys(("received_calls", "requests", "other_requests"), 0.0)
    for name, value in re.findall(r"^lingon_(\w+)_total(?:\{.*\})? (\S+)$", page, re.MULTILINE):
        if name in found:
            found[name] += float(value)
    return found["received_calls"], found["requests"] + found["other_requests"]


async def test_every_call_that_ends_was_received():
    async with running(max_message_bytes=10_000) as server:
        assert await counts(server) == (0, 0)
        await server.translate("Tom")
        await server.health()
        for method, size in (("/no/Method", 0), (f"/{SERVICE}/Method", 0), (PATH, 20_000)):
            with pytest.raises(grpc.aio.AioRpcError):
                await server.channel.unary_unary(method)(b" " * size, timeout=10)

        async def all_are_counted() -> bool:
            return await counts(server) == (5, 5)

        await eventually(all_are_counted)


@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_a_call_that_is_no_grpc_was_received_and_has_no_code(method: str):
    pairs = [(name, method if name == ":method" else value) for name, value in call_headers(PATH)]
    async with running() as server:
        for _ in range(3):
            await asyncio.to_thread(converse, server.server.port, opening() + call(pairs, message(b"")), 5)
        await server.translate("Tom")
        assert await counts(server) == (4, 1)


async def test_calls_of_the_admin_port_are_received_too():
    async with running(admin_port=0) as server:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.server.admin_port}") as admin:
            with pytest.raises(grpc.aio.AioRpcError):
                await admin.unary_unary("/no/Method")(b"", timeout=10)
        assert await counts(server) == (1, 1)


async def test_calls_of_another_server_of_the_process_are_not_counted():
    async with running() as first, running() as second:
        await first.translate("Tom")
        assert [await counts(server) for server in (first, second)] == [(1, 1), (0, 0)]
