"""Every call is counted once, and leaves the gauge of calls in progress, however it ends."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextvars import copy_context
from typing import Any

import grpc
import pytest
from grpc._cython import cygrpc  # type: ignore[attr-defined]

from lingon.serving.observability.metrics import CALL_OUTCOMES, METHODS, Metrics
from lingon.serving.rpc.interceptors import CallInterceptor
from tests.support.echo_engine import running
from tests.support.timing import eventually

METHOD = "/lingon.translation.v1.TranslationService/Translate"


class Pause:
    """Suspends a coroutine without an event loop."""

    def __await__(self) -> Any:
        yield None


async def returns(request: bytes, context: Any) -> bytes:
    return b""


async def aborts(request: bytes, context: Any) -> bytes:
    await context.abort(grpc.StatusCode.NOT_FOUND, "the method ends the call itself")
    return b""


async def fails(request: bytes, context: Any) -> bytes:
    raise ValueError


async def pauses(request: bytes, context: Any) -> bytes:
    await Pause()
    return b""


async def hangs(request: bytes, context: Any) -> bytes:
    await asyncio.sleep(100)
    return b""


async def streams_and_hangs(request: bytes, context: Any) -> AsyncIterator[bytes]:
    yield b""
    await asyncio.sleep(100)


async def streams_and_fails(request: bytes, context: Any) -> AsyncIterator[bytes]:
    yield b""
    raise ValueError


def counted(interceptor: CallInterceptor, metrics: Metrics) -> dict[str, float]:
    """The calls in progress, and the calls that ended by code."""
    values = {}
    for family in metrics.registry.collect():
        for sample in family.samples:
            if sample.name == "lingon_requests_total" and sample.value:
                values[sample.labels["code"]] = sample.value
    durations = sum(
        metrics.registry.get_sample_value("lingon_request_duration_seconds_count", {"method": each, "outcome": outcome})
        or 0
        for each in METHODS
        for outcome in CALL_OUTCOMES
    )
    assert durations == sum(values.values())
    in_flight = metrics.registry.get_sample_value("lingon_requests_in_flight")
    assert in_flight == interceptor.in_flight
    return {"in flight": in_flight, **values}


@pytest.mark.parametrize(
    ("behaviour", "seconds", "code"),
    [
        (returns, None, "OK"),
        (aborts, None, "NOT_FOUND"),
        (fails, None, "INTERNAL"),
        (hangs, 1.0, "DEADLINE_EXCEEDED"),
        (hangs, None, "CANCELLED"),
        (streams_and_hangs, 1.0, "DEADLINE_EXCEEDED"),
        (streams_and_hangs, None, "CANCELLED"),
        (streams_and_fails, None, "INTERNAL"),
    ],
)
async def test_a_call_that_ends_is_counted_once(behaviour: Callable[..., Any], seconds: float | None, code: str):
    streams = behaviour.__name__.startswith("streams")
    make = grpc.unary_stream_rpc_method_handler if streams else grpc.unary_unary_rpc_method_handler

    class Service(grpc.GenericRpcHandler):
        def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
            return make(behaviour)

    metrics = Metrics()
    interceptor = CallInterceptor(metrics)
    server = grpc.aio.server(interceptors=[interceptor])
    server.add_generic_rpc_handlers((Service(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call: Any = channel.unary_stream(METHOD)(b"", timeout=seconds)  # all kinds of calls are alike on the wire
        if code == "CANCELLED":
            await eventually(lambda: interceptor.in_flight == 1)
            call.cancel()
        try:
            async for _ in call:
                pass
        except (grpc.aio.AioRpcError, asyncio.CancelledError):
            pass
        await eventually(lambda: counted(interceptor, metrics) == {"in flight": 0, code: 1})
    await server.stop(0)


def test_a_call_whose_coroutine_is_closed_is_counted_as_cancelled():
    """Python closes a coroutine that no task continues."""

    class Context:
        def invocation_metadata(self) -> None: ...

        def set_trailing_metadata(self, metadata: Any) -> None: ...

        def time_remaining(self) -> None: ...

        def peer(self) -> str:
            return "ipv4:127.0.0.1:5000"

        def auth_context(self) -> dict[str, Any]:
            return {}

    async def served(_: Any) -> Any:
        return grpc.stream_unary_rpc_method_handler(pauses)  # such a method reads its requests itself

    class Details:
        method = METHOD

    metrics = Metrics()
    interceptor = CallInterceptor(metrics)
    wrapping: Any = interceptor.intercept_service(served, Details())  # type: ignore[arg-type]
    with pytest.raises(StopIteration) as made:
        wrapping.send(None)
    coroutine = made.value.value.stream_unary(None, Context())
    own = copy_context()  # of the call, as that of a task: the caller of the call is one of its variables
    own.run(coroutine.send, None)
    assert counted(interceptor, metrics) == {"in flight": 1}
    own.run(coroutine.close)
    assert counted(interceptor, metrics) == {"in flight": 0, "CANCELLED": 1}


@pytest.mark.parametrize("unread", [False, True])
async def test_a_refused_call_is_freed_without_a_garbage_collection(unread: bool):
    """gRPC keeps the error that ends a call with the call, and the error keeps frames with the request."""
    async with running(max_texts=2) as server:
        if unread:
            server.server._gate.close()

        async def refused() -> None:
            with pytest.raises(grpc.aio.AioRpcError):
                await server.translate("Tom", "Tom", "Tom")

        await refused()
        gc.collect()
        gc.disable()
        try:
            before = calls_in_memory()
            for _ in range(20):
                await refused()
            assert calls_in_memory() - before < 5
        finally:
            gc.enable()


def calls_in_memory() -> int:
    return sum(type(each) is cygrpc.RPCState for each in gc.get_objects())  # isinstance would ask objects of torch
