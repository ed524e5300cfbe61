"""The end of the HTTP port: it takes no more connections, and its requests have the time of the drain."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.echo_engine import EchoRunner
from tests.support.eventually import eventually
from tests.support.gateway import gateway


async def test_a_request_that_has_not_arrived_when_the_time_to_drain_is_over_gets_503(caplog: pytest.LogCaptureFixture):
    async with gateway(drain_seconds=1) as http:
        reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
        writer.write(
            b"POST /v1/translate HTTP/1.1\r\nhost: localhost\r\n"
            b"content-type: application/json\r\ncontent-length: 90\r\n\r\n{"
        )
        await writer.drain()
        await eventually(lambda: http.server.metric("lingon_http_requests_in_flight") == 1)
        http.server.server.stop()
        reply = await reader.read()
        writer.close()
    assert reply.startswith(b"HTTP/1.1 503 "), reply
    assert b"the server is shutting down; try again" in reply
    assert "Exception in ASGI application" not in caplog.text


async def test_a_server_that_drains_takes_no_more_connections_of_http():
    runner = EchoRunner()
    async with gateway(runner, drain_seconds=60) as http:
        runner.gate.clear()
        call = asyncio.create_task(http.post("/v1/translate", {"texts": ["Tom lives in Boston."]}))
        try:
            await eventually(lambda: http.server.metric("lingon_http_requests_in_flight") == 1)
            http.server.server.stop()

            async def is_refused() -> bool:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", http.port)
                except ConnectionRefusedError:
                    return True
                writer.close()
                return False

            await eventually(is_refused)
            assert not call.done()
        finally:
            runner.gate.set()
        assert (await call).status == 200
