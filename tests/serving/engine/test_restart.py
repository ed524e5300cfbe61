"""An engine that is restarted, and what a server does that fails in it or has to end meanwhile."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import grpc
import pytest

from lingon.serving.engine.engine import Engine
from tests.support.echo_engine import EchoRunner, running
from tests.support.eventually import eventually
from tests.support.statuses import details, failure


class HangingHeir(Engine):
    """An engine that is not started anew."""

    def restarted(self) -> Engine:
        threading.Event().wait()
        return super().restarted()


async def test_an_engine_that_hangs_as_it_is_started_anew_ends_the_server_with_a_failure():
    async with running(EchoRunner(dies_at=3), engine=HangingHeir, hang_seconds=0.3) as server:
        with pytest.raises(grpc.aio.AioRpcError):
            await server.translate("Tom lives in Boston.")
        assert await asyncio.wait_for(server.task, 5) == 1


async def test_a_server_that_is_told_to_end_does_not_wait_for_an_engine_that_is_started_anew():
    async with running(EchoRunner(dies_at=3), engine=HangingHeir, hang_seconds=60) as server:
        with pytest.raises(grpc.aio.AioRpcError):
            await server.translate("Tom lives in Boston.")
        await eventually(
            lambda: server.metric("lingon_engine_restarts_total", model="en-de", version="1", cause="death") == 1
        )
        server.server.stop()
        assert await asyncio.wait_for(server.task, 5) == 0


class TwoWorkers(Engine):
    """Of which one may die while the other goes on."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments, workers=2)

    def restarted(self) -> Engine:
        return Engine(self._runner, self._limits, self._observer)


class TwoWorkersHangingHeir(TwoWorkers, HangingHeir):
    """And it is not started anew."""

    restarted = HangingHeir.restarted


@pytest.mark.parametrize("kind", [TwoWorkers, TwoWorkersHangingHeir])
async def test_who_is_with_a_worker_that_lives_has_an_answer_when_the_server_ends(kind: type[TwoWorkers]):
    runner = EchoRunner(endless=True, delay=0.2)
    async with running(runner, engine=kind, hang_seconds=60, drain_seconds=0.2) as server:
        runner.gate.clear()
        calls = [asyncio.create_task(failure(server.call("Tom", "the sea"))) for _ in range(10)]
        await eventually(lambda: server.metric("lingon_requests_in_flight") == 10)
        runner.dies_at = runner.steps + 5
        runner.gate.set()
        await eventually(
            lambda: server.metric("lingon_engine_restarts_total", model="en-de", version="1", cause="death") == 1
        )
        await eventually(lambda: kind is TwoWorkersHangingHeir or server.metric("lingon_ready") == 1)
        server.server.stop()
        for status, _ in await asyncio.gather(*calls):
            assert details(status)["ErrorInfo"].reason == "ENGINE_RESTARTING"
        assert await asyncio.wait_for(server.task, 10) == 0
