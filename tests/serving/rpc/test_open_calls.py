"""The limits of open calls: number, duration, time to arrive, bytes held; who gives way; connections."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from google.rpc import code_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from lingon.errors import TooManyCalls
from lingon.serving.auth.api_keys import new_key
from lingon.serving.models.inflight import Arrived, arrived
from lingon.serving.rpc import open_calls as open_calls_module
from lingon.serving.rpc import ports
from lingon.serving.rpc.admission import CHECKS_TO_LEAVE, CHECKS_TO_REFUSE, SLOTS_OF_CALLER, CallLimits
from lingon.serving.rpc.open_calls import UNCOUNTED_CHECKS, OpenCall, OpenCalls
from lingon.serving.rpc.ports import ADMIN_BYTES, HEALTH_BYTES, WATCH_CALLS
from lingon.translation.v1 import translation_pb2 as pb
from tests.support import http2
from tests.support.credentials import bearer, write_key_file
from tests.support.echo_engine import RunningServer, details, failure, running
from tests.support.http2 import HalfCall, count_open
from tests.support.timing import eventually

SERVICE = "/lingon.translation.v1.TranslationService/"
WATCH = "/grpc.health.v1.Health/Watch"


def open_calls(server: RunningServer, kind: str = "translation") -> float:
    return server.metric("lingon_open_calls", kind=kind)


async def reason_of(call: Any) -> str:
    """The reason of the error with which a call ends."""
    status, _ = await failure(call)
    reason: str = details(status)["ErrorInfo"].reason
    return reason


async def test_above_max_calls_a_call_is_refused_with_a_retry_delay_and_health_is_not(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ports, "MAX_CALLS", 4)
    async with running() as server:
        server.runner.gate.clear()
        inside = [server.call("Tom") for _ in range(4)]
        await eventually(lambda: open_calls(server) == 4)
        status, trailers = await failure(server.call("Tom"))
        assert (status.code, details(status)["ErrorInfo"].reason) == (code_pb2.RESOURCE_EXHAUSTED, "TOO_MANY_CALLS")
        assert int(trailers["retry-after-ms"]) > 0
        assert await server.health() == health_pb2.HealthCheckResponse.SERVING
        server.runner.gate.set()
        assert {(await call).results[0].status.code for call in inside} == {code_pb2.OK}
        await eventually(lambda: open_calls(server) == 0)
        assert server.metric("lingon_rejected_total", reason=TooManyCalls.reason) == 1


async def test_the_caller_with_the_most_calls_gives_way_and_a_caller_without_a_key_takes_no_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ports, "MAX_CALLS", 4)
    keys = {"one": new_key(), "two": new_key()}
    async with running(api_keys=write_key_file(tmp_path, keys)) as server:

        def call(name: str) -> Any:
            return server.stub.Translate(pb.TranslateRequest(texts=["Tom"]), metadata=bearer(keys[name]))

        server.runner.gate.clear()
        first = [call("one") for _ in range(4)]
        await eventually(lambda: open_calls(server) == 4)
        assert await reason_of(server.call("Tom")) == "UNAUTHENTICATED"
        assert open_calls(server) == 4
        second = [call("two") for _ in range(2)]
        await eventually(lambda: sum(each.done() for each in first) == 2)
        assert await reason_of(call("two")) == "TOO_MANY_CALLS"  # now both have two calls
        assert [await reason_of(each) for each in first if each.done()] == ["TOO_MANY_CALLS"] * 2
        rest = [each for each in (*first, *second) if not each.done()]
        server.runner.gate.set()
        assert [(await each).results[0].status.code for each in rest] == [code_pb2.OK] * 4


async def test_a_thousand_calls_that_one_client_begins_at_once_are_served(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(open_calls_module, "SLOW_SECONDS", 60.0)  # a machine that stalls makes no request slow
    async with running() as server:
        calls = [server.stub.ListModels(pb.ListModelsRequest(), timeout=60) for _ in range(1500)]
        assert {len((await call).models) for call in calls} == {1}


async def test_a_call_without_a_deadline_ends_after_max_call_seconds(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ports, "MAX_CALL_SECONDS", 0.3)
    async with running() as server:
        server.runner.gate.clear()
        for call in (server.call("Tom", seconds=None), server.stream("Tom")):
            status, _ = await failure(call)
            assert status.code == code_pb2.DEADLINE_EXCEEDED
            assert "0.3 s" in status.message
        server.runner.gate.set()
        await eventually(lambda: server.metric("lingon_requests_in_flight") == open_calls(server) == 0)


async def test_a_stream_that_is_not_read_ends_after_max_call_seconds(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ports, "MAX_CALL_SECONDS", 0.5)
    body = pb.TranslateStreamRequest(texts=["Tom"]).SerializeToString()
    async with running() as server:
        with await asyncio.to_thread(http2.stand_still, server.server.port, f"{SERVICE}TranslateStream", body):
            await eventually(lambda: open_calls(server) == 1)
            await eventually(lambda: open_calls(server) == 0)
        assert server.metric("lingon_requests_in_flight") == 0


@pytest.mark.parametrize("sent", [b"", http2.message(b"\x0a\x03Tom")[:-1]])
async def test_a_request_that_does_not_arrive_whole_ends_its_call(sent: bytes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ports, "RECEIVE_SECONDS", 0.3)
    async with running() as server:

        def receiving() -> float:
            return server.metric("lingon_receiving_calls", kind="translation")

        with HalfCall(server.server.port, f"{SERVICE}Translate", sent) as call:
            await eventually(lambda: count_open([call]) == receiving() == 1)
            await eventually(lambda: count_open([call]) == 0)
            assert call.status == code_pb2.DEADLINE_EXCEEDED
        await eventually(lambda: receiving() == open_calls(server) == 0)
        assert server.metric("lingon_requests_total", method="Translate", code="DEADLINE_EXCEEDED") == 1


class Unread:
    """The context of a call whose request never arrives."""

    async def read(self) -> Any:
        """Wait for ever."""
        await asyncio.get_running_loop().create_future()


class Ended(OpenCall):
    """A call that keeps the error with which it is ended unread."""

    error: Exception | None = None

    def end_unread(self, error: Exception) -> None:
        """Keep the error."""
        self.error = error


class Holder(Arrived):
    """Notes after how many checks a call left its place."""

    def __init__(self, checks: list[float]) -> None:
        self.checks, self.left = checks, list[int]()

    def leave_slot(self) -> None:
        """Note it."""
        self.left.append(len(self.checks))


async def _unread(calls: OpenCalls) -> Ended:
    """Start a call whose request never arrives."""
    call = Ended(calls, cast("Any", Unread()), "caller")
    task = asyncio.create_task(call.receive())
    await asyncio.sleep(0)
    assert not task.done()
    unread_tasks.append(task)
    return call


unread_tasks: list[asyncio.Task[Any]] = []


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Requests become slow soon; calls that wait for one end with the test."""
    monkeypatch.setattr(open_calls_module, "SLOW_SECONDS", 0.008)
    yield
    while unread_tasks:
        unread_tasks.pop().cancel()


def _limits(**more: Any) -> CallLimits:
    return CallLimits(
        kind="some", **{"max_calls": 9, "max_seconds": None, "receive_seconds": 60, "request_bytes": 9} | more
    )


def _idle_time(monkeypatch: pytest.MonkeyPatch, share: float) -> list[float]:
    """Have a core be idle for this share of all time; returns a list that gets an entry for each measurement."""
    taken: list[float] = []

    class Measured:
        def __init__(self, cores: int) -> None:
            pass

        def take(self) -> tuple[float, float]:
            taken.append(share)
            return 1.0, share

    monkeypatch.setattr(open_calls_module, "IdleTime", Measured)
    return taken


@pytest.mark.parametrize(("share", "uncounted"), [(1.0, 0), (0.2, 0), (0.19, UNCOUNTED_CHECKS)])
async def test_a_slow_request_leaves_its_place_later_while_no_core_is_idle_to_read_it(
    share: float, uncounted: int, monkeypatch: pytest.MonkeyPatch, quick: None
):
    """Otherwise unfinished requests would pile up, each with megabytes in gRPC's buffers, while the server is busy."""
    checks, unawaited = _idle_time(monkeypatch, share), list[int]()
    arrived.set(place := Holder(checks))
    calls = OpenCalls(_limits(), lambda call: unawaited.append(len(checks)))
    await _unread(calls)
    await eventually(lambda: unawaited)  # a drain waits for a request that is a little late
    assert (calls.slow, place.left) == (1, [CHECKS_TO_LEAVE + uncounted])
    assert unawaited == [CHECKS_TO_REFUSE + uncounted]


async def test_a_request_that_finds_no_room_among_the_slow_ones_is_refused_and_one_that_ends_makes_room(
    monkeypatch: pytest.MonkeyPatch, quick: None
):
    _idle_time(monkeypatch, 1.0)
    calls = OpenCalls(_limits(slow_calls=4))
    first, second = await _unread(calls), await _unread(calls)
    await eventually(lambda: second.error is not None)
    assert isinstance(second.error, TooManyCalls)
    assert (second.checks, second.is_slow) == (CHECKS_TO_REFUSE, False)
    assert (first.error, calls.slow, calls.receiving) == (None, 1, 1)
    first.close()
    third = await _unread(calls)
    await eventually(lambda: third.is_slow)
    assert calls.slow == 1


async def test_nothing_is_looked_at_while_no_request_is_awaited(monkeypatch: pytest.MonkeyPatch, quick: None):
    checks, calls = _idle_time(monkeypatch, 1.0), OpenCalls(_limits())
    call = await _unread(calls)
    await eventually(lambda: checks)
    call.close()
    await asyncio.sleep(0.05)
    found = len(checks)
    await asyncio.sleep(0.05)
    assert len(checks) == found
    assert (calls.count, calls.receiving, calls.slow) == (0, 0, 0)


async def test_the_unfinished_requests_of_a_caller_that_are_read_at_once_are_bounded(monkeypatch: pytest.MonkeyPatch):
    """gRPC may hold megabytes of each. Eight are slow ones, which have left their places to others."""
    monkeypatch.setattr(open_calls_module, "SLOW_SECONDS", 0.4)
    most, slow = 0.0, 8
    async with running() as server:
        with ExitStack() as stack:
            for _ in range(60):
                stack.enter_context(HalfCall(server.server.port, f"{SERVICE}Translate", b""))

            def refused() -> float:
                nonlocal most
                most = max(most, server.metric("lingon_receiving_calls", kind="translation"))
                return server.metric("lingon_rejected_total", reason="TOO_MANY_CALLS")

            await eventually(lambda: refused() == 60 - slow, seconds=60)
        assert most <= SLOTS_OF_CALLER + slow


async def test_a_call_that_ends_without_a_request_is_answered():
    raw = http2.opening() + http2.call(http2.call_headers(f"{SERVICE}Translate"), b"")
    async with running() as server:
        heard, ended = await asyncio.to_thread(http2.converse, server.server.port, raw, 10)
        assert ended
        assert http2.status(heard) == code_pb2.INVALID_ARGUMENT


async def test_the_large_requests_of_open_calls_are_bounded_and_small_requests_are_not(monkeypatch: pytest.MonkeyPatch):
    """The requests of a caller hold 32 MiB at most; each of these has 2 MiB."""
    monkeypatch.setattr(open_calls_module, "SLOW_SECONDS", 60.0)  # a machine that stalls makes no request slow
    raw = pb.TranslateRequest(texts=["Tom"]).SerializeToString()
    size = 2**21
    raw += b"\xba\x3e" + _varint(size) + bytes(size)
    async with running() as server:
        server.runner.gate.clear()
        send = server.channel.unary_unary(f"{SERVICE}Translate")
        large = [send(raw) for _ in range(20)]
        await eventually(lambda: server.metric("lingon_rejected_total", reason="TOO_MANY_CALLS") == 5, seconds=60)
        assert open_calls(server) == 15
        small = [server.call("Tom") for _ in range(20)]
        await eventually(lambda: open_calls(server) == 35)
        server.runner.gate.set()
        assert {(await call).results[0].status.code for call in small} == {code_pb2.OK}
        ends = await asyncio.gather(*large, return_exceptions=True)
        assert sum(isinstance(end, bytes) for end in ends) == 15
        assert isinstance(await send(raw), bytes)


def _varint(number: int) -> bytes:
    digits = []
    while number >= 128:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes([*digits, number])


async def first_answer(watch: Any) -> Any:
    """The first status of a Watch, or the code with which it was refused."""
    try:
        return (await watch.read()).status
    except grpc.aio.AioRpcError as error:
        return error.code()


async def test_watch_calls_are_bounded():
    async with running() as server:
        stub: Any = health_pb2_grpc.HealthStub(server.channel)
        most = WATCH_CALLS.max_calls
        watches = [stub.Watch(health_pb2.HealthCheckRequest()) for _ in range(most + 5)]
        await eventually(lambda: server.metric("lingon_rejected_total", reason="TOO_MANY_CALLS") == 5)
        assert open_calls(server, "watch") == most
        found = Counter([await first_answer(watch) for watch in watches])  # calls may arrive in another order
        assert found == {health_pb2.HealthCheckResponse.SERVING: most, grpc.StatusCode.RESOURCE_EXHAUSTED: 5}
        assert await server.health() == health_pb2.HealthCheckResponse.SERVING
        with HalfCall(server.server.port, WATCH, http2.message(b""), source="127.0.0.2") as other:
            await eventually(lambda: server.metric("lingon_rejected_total", reason="TOO_MANY_CALLS") == 6)
            assert count_open([other]) == 1
        for watch in watches:
            watch.cancel()
        await eventually(lambda: open_calls(server, "watch") == 0)


@pytest.mark.parametrize("method", ["Check", "Watch"])
@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (health_pb2.HealthCheckRequest(service="x" * 257), "service must have at most 256 characters, got 257"),
        (health_pb2.HealthCheckRequest(service="x" * 5000), f"the request must have at most {HEALTH_BYTES} bytes"),
    ],
)
async def test_a_health_request_with_an_excessive_name_is_refused(
    method: str, request_: health_pb2.HealthCheckRequest, message: str
):
    async with running() as server:
        call = server.channel.unary_stream(f"/grpc.health.v1.Health/{method}")
        status, _ = await failure(call(request_.SerializeToString()).read())
        assert status.code == code_pb2.INVALID_ARGUMENT
        assert message in status.message


async def test_a_request_of_the_admin_port_is_short():
    async with (
        running(admin_port=0) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.server.admin_port}") as channel,
    ):
        call: Any = channel.unary_unary("/lingon.admin.v1.ModelService/LoadModel")
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call(bytes(ADMIN_BYTES + 1))
        assert raised.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


async def is_closed(connection: socket.socket) -> bool:
    """Whether the server closes a connection within 20 seconds."""
    connection.settimeout(20)
    try:
        while await asyncio.to_thread(connection.recv, 65_536):
            pass
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    return True


def connect(server: RunningServer) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.server.port), timeout=10)
    connection.sendall(http2.opening())
    return connection


async def test_above_max_connections_a_new_connection_is_closed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ports, "MAX_CONNECTIONS", 2)
    async with running() as server:
        assert await server.health() == health_pb2.HealthCheckResponse.SERVING
        with connect(server) as second, connect(server) as third:
            assert await is_closed(third)
            assert await server.health() == health_pb2.HealthCheckResponse.SERVING
            assert second.recv(9)


async def test_a_connection_without_calls_is_closed_and_a_client_connects_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ports, "IDLE_SECONDS", 0.5)
    async with running() as server:
        with connect(server) as idle:
            assert await is_closed(idle)
        for _ in range(2):
            assert (await server.translate("Tom")).results[0].status.code == code_pb2.OK
            await asyncio.sleep(1.5)


async def test_a_client_that_answers_no_ping_is_disconnected(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ports, "SILENT_SECONDS", 1)
    monkeypatch.setattr(ports, "PING_SECONDS", 1)
    async with running() as server:
        with connect(server) as silent:
            silent.settimeout(30)
            assert await is_closed(silent)


async def test_a_call_that_outlives_the_age_of_its_connection_ends_after_drain_seconds():
    async with running(max_connection_age_seconds=0.5, drain_seconds=0.5) as server:
        stub: Any = health_pb2_grpc.HealthStub(server.channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest())
        await watch.read()
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await asyncio.wait_for(watch.read(), 20)
        assert raised.value.code() == grpc.StatusCode.UNAVAILABLE
