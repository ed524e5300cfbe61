"""A closed admission gate refuses every request, including the last one of a burst."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from typing import Any

import grpc
import pytest

from lingon.errors import Draining
from lingon.serving.models import inflight
from lingon.serving.models.inflight import AdmissionGate, Arrived
from lingon.serving.rpc import open_calls
from lingon.serving.rpc.admission import SLOTS_OF_CALLER
from lingon.serving.translation.detection import Detector
from lingon.translation.v1 import translation_pb2 as pb
from tests.support import http2
from tests.support.echo_engine import EchoRunner, RunningServer, running
from tests.support.http2 import HalfCall, count_open
from tests.support.timing import eventually

TRANSLATE = "/lingon.translation.v1.TranslationService/Translate"
DETECT = "/lingon.translation.v1.TranslationService/DetectLanguages"


async def test_a_burst_during_the_stop_is_refused_and_never_cancelled(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(open_calls, "SLOW_SECONDS", 60.0)  # a machine that stalls makes no request slow
    codes: set[grpc.StatusCode] = set()
    async with running(EchoRunner(delay=0.001)) as server:

        async def keep_calling() -> None:
            while grpc.StatusCode.UNAVAILABLE not in codes:
                codes.add(await _code(server.call("Where is the station?")))

        callers = [asyncio.create_task(keep_calling()) for _ in range(100)]
        await eventually(lambda: grpc.StatusCode.OK in codes)
        server.server.stop()
        await asyncio.gather(*callers)
    assert codes == {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}


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


@pytest.mark.parametrize("path", [TRANSLATE, DETECT])
async def test_a_drain_answers_the_calls_that_arrived_before_it_and_were_not_read(
    monkeypatch: pytest.MonkeyPatch, path: str
):
    monkeypatch.setattr(open_calls, "SLOW_SECONDS", 60.0)
    async with running() as server:
        port, request = server.server.port, http2.message(b"\x0a\x03Tom")
        with ExitStack() as stack:
            calls = [stack.enter_context(HalfCall(port, path, request[:-1])) for _ in range(SLOTS_OF_CALLER + 4)]
            await eventually(lambda: count_open(calls) == len(calls) and metrics_of(server) == (SLOTS_OF_CALLER, 4))
            server.server.stop()
            await eventually(lambda: server.server._gate._closed is not None)
            assert count_open(calls) == len(calls)
            for call in calls:
                call.rest += request[-1:]
            await eventually(lambda: count_open(calls) == 0)
            assert [call.status for call in calls] == [0] * len(calls)


def metrics_of(server: RunningServer) -> tuple[float, float]:
    """Return the calls whose requests are read, and those that wait for it."""
    return server.metric("lingon_receiving_calls", kind="translation"), server.metric("lingon_waiting_calls")


async def test_a_gate_admits_what_arrived_before_it_closed_until_that_ends_and_nothing_after_the_wait():
    gate = AdmissionGate()
    gate.open()
    first, second = Arrived(), Arrived()
    gate.enter(first)
    gate.enter(second)
    gate.close()
    for call in (first, second):
        inflight.arrived.set(call)
        gate.check()
    gate.leave(first)
    inflight.arrived.set(first)
    with pytest.raises(Draining):
        gate.check()
    assert not await gate.wait_until_left(0.0)
    inflight.arrived.set(second)
    with pytest.raises(Draining):
        gate.check()


async def test_a_drain_waits_for_a_call_that_no_model_serves(monkeypatch: pytest.MonkeyPatch):
    """A call to find languages is in flight in no model, and works on the event loop alone."""
    go = asyncio.Event()
    detect = Detector.detect_all

    async def wait(self: Detector, *arguments: Any) -> Any:
        await go.wait()
        return await detect(self, *arguments)

    monkeypatch.setattr(Detector, "detect_all", wait)
    async with running() as server:
        call = server.stub.DetectLanguages(pb.DetectLanguagesRequest(texts=["Tom"]), timeout=60)
        await eventually(lambda: server.metric("lingon_requests_in_flight") == 1)
        server.server.stop()
        await asyncio.sleep(2.5)  # more than the calls that are cut off have to send their status
        go.set()
        assert len((await call).results) == 1
