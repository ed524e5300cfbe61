"""Restarts of an engine: a restart that hangs, and a server that stops during a restart."""

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


class HangingRestart(Engine):
    """An engine whose restart never ends."""

    def restarted(self) -> Engine:
        threading.Event().wait()
        return super().restarted()


async def test_a_restart_that_hangs_ends_the_server_with_a_failure():
    async with running(EchoRunner(dies_at=3), engine=HangingRestart, hang_seconds=0.3) as server:
        with pytest.raises(grpc.aio.AioRpcError):
            await server.translate("Tom lives in Boston.")
        assert await asyncio.wait_for(server.task, 5) == 1


async def test_a_server_that_stops_does_not_wait_for_a_restart():
    async with running(EchoRunner(dies_at=3), engine=HangingRestart, hang_seconds=60) as server:
        with pytest.raises(grpc.aio.AioRpcError):
            await server.translate("Tom lives in Boston.")
        await eventually(
            lambda: server.metric("lingon_engine_restarts_total", model="en-de", version="1", cause="death") == 1
        )
        server.server.stop()
        assert await asyncio.wait_for(server.task, 5) == 0


class TwoWorkers(Engine):
    """An engine with two workers, of which one can die while the other runs."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments, workers=2)

    def restarted(self) -> Engine:
        return Engine(self._runner, self._limits, self._observer)


class TwoWorkersHangingRestart(TwoWorkers, HangingRestart):
    """An engine with two workers whose restart never ends."""

    restarted = HangingRestart.restarted


@pytest.mark.parametrize("kind", [TwoWorkers, TwoWorkersHangingRestart])
async def test_jobs_of_a_live_worker_of_a_dead_engine_are_answered_when_the_server_stops(kind: type[TwoWorkers]):
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
        await eventually(lambda: kind is TwoWorkersHangingRestart or server.metric("lingon_ready") == 1)
        server.server.stop()
        for status, _ in await asyncio.gather(*calls):
            assert details(status)["ErrorInfo"].reason == "ENGINE_RESTARTING"
        assert await asyncio.wait_for(server.task, 10) == 0
