"""A closed admission gate refuses every request, including the last one of a burst."""

from __future__ import annotations

import asyncio
import time

import grpc
import pytest

from lingon.errors import Draining
from lingon.serving.models.inflight import AdmissionGate
from lingon.serving.rpc import open_calls
from tests.support.echo_engine import EchoRunner, running
from tests.support.eventually import eventually


async def test_a_burst_during_the_stop_is_refused_and_never_cancelled(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(open_calls, "SLOW_SECONDS", 60.0)  # a machine that stalls makes no request slow
    async with running(EchoRunner(delay=0.001)) as server:
        await server.translate("Tom lives in Boston.")
        calls = [asyncio.create_task(_code(server.call("Where is the station?"))) for _ in range(300)]
        await eventually(lambda: server.metric("lingon_requests_in_flight") > 0)
        server.server.stop()
        codes = await asyncio.gather(*calls)
        assert set(codes) <= {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}
        assert grpc.StatusCode.UNAVAILABLE in codes


async def _code(call: grpc.aio.UnaryUnaryCall) -> grpc.StatusCode:
    try:
        await call
    except asyncio.CancelledError:
        return grpc.StatusCode.CANCELLED
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def test_a_gate_is_quiet_after_a_pause_without_requests_and_waits_for_a_bounded_time():
    gate = AdmissionGate()
    gate.open()
    gate.close()

    async def keep_trying() -> None:
        while True:
            with pytest.raises(Draining):
                gate.check()
            await asyncio.sleep(0.001)

    trying = asyncio.create_task(keep_trying())
    start = time.monotonic()
    await gate.wait_until_quiet(0.3)
    assert time.monotonic() - start >= 0.3
    trying.cancel()
    start = time.monotonic()
    await gate.wait_until_quiet(60)
    assert time.monotonic() - start < 30
