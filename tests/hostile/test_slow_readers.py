"""A client that reads no byte of its answer delays itself, and nothing else in the server."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from lingon.translation.v1 import translation_pb2 as pb
from tests.support import http2
from tests.support.echo_engine import RunningServer, running
from tests.support.eventually import eventually
from tests.support.reload_harness import AdministeredServer, refused, running_with_admin_port
from tests.support.server_process import SERVICE

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
        await asyncio.wait_for(asyncio.shield(server.task), timeout=5)


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
        await asyncio.wait_for(admin.swap(admin.publish(2)), timeout=5)
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
