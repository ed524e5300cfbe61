"""The server takes calls as they arrive, refuses some unread, and reads all wake-ups of gRPC at once."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from lingon.serving.rpc import grpc_server, open_calls
from lingon.serving.rpc.admission import READ_SLOTS
from lingon.serving.rpc.arrival import Arrivals
from lingon.serving.rpc.grpc_server import AHEAD, MOST_BYTES, handle_all
from lingon.translation.v1 import translation_pb2 as pb
from lingon.translation.v1 import translation_pb2_grpc as pb_grpc
from tests.support.credentials import bearer, write_key_file
from tests.support.echo_engine import EchoRunner, running
from tests.support.timing import counted_iterations, eventually, eventually_blocking

SHOP, OTHER = "lingon_shop", "lingon_other"


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call arrives slowly: the callers are in this process, and a stall of the machine stops them too."""
    monkeypatch.setattr(open_calls, "SLOW_SECONDS", 60.0)


async def test_a_burst_of_more_calls_than_places_is_answered_in_full(patient: None):
    async with running() as server:
        calls = [server.call(f"Tom {number}", seconds=None) for number in range(20 * READ_SLOTS)]
        replies = [await call for call in calls]
    assert [reply.results[0].hypotheses[0].text for reply in replies] == [
        f"Tom {number}" for number in range(len(calls))
    ]


async def test_calls_are_refused_unread_while_the_queue_is_full():
    async with running(EchoRunner(), max_rows=1, max_queue_texts=2) as server:
        server.runner.gate.clear()
        inside = [server.call("Tom")]
        await eventually(lambda: server.metric("lingon_running_sentences", model="en-de", version="1") == 1)
        inside += [server.call("Tom") for _ in range(2)]
        await eventually(lambda: server.metric("lingon_queue_depth", model="en-de", version="1") == 2)
        texts = server.metric("lingon_texts_total", code="RESOURCE_EXHAUSTED")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await server.translate("Tom")
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        trailers = dict(caught.value.trailing_metadata() or ())
        assert {"x-request-id", "retry-after-ms", "grpc-status-details-bin"} <= trailers.keys()
        assert server.metric("lingon_texts_total", code="RESOURCE_EXHAUSTED") == texts  # they were not read
        assert server.metric("lingon_requests_total", method="Translate", code="RESOURCE_EXHAUSTED") == 1
        assert server.metric("lingon_rejected_total", reason="QUEUE_FULL") == 1
        server.runner.gate.set()
        assert [(await call).results[0].status.code for call in inside] == [0, 0, 0]


async def test_a_full_queue_is_no_answer_to_a_caller_without_a_key(tmp_path: Path):
    keys, request = write_key_file(tmp_path, {"shop": SHOP}), pb.TranslateRequest(texts=["Tom"])
    async with running(EchoRunner(), max_rows=1, max_queue_texts=1, api_keys=keys) as server:
        server.runner.gate.clear()
        inside = [server.stub.Translate(request, timeout=20, metadata=bearer(SHOP))]
        await eventually(lambda: server.metric("lingon_running_sentences", model="en-de", version="1") == 1)
        inside.append(server.stub.Translate(request, timeout=20, metadata=bearer(SHOP)))
        await eventually(lambda: server.metric("lingon_queue_depth", model="en-de", version="1") == 1)
        for metadata, code in (((), "UNAUTHENTICATED"), (bearer(SHOP), "RESOURCE_EXHAUSTED")):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await server.stub.Translate(request, timeout=20, metadata=metadata)
            assert caught.value.code().name == code
        assert server.metric("lingon_key_requests_total", key="shop", code="RESOURCE_EXHAUSTED") == 1
        server.runner.gate.set()
        await asyncio.gather(*inside)


async def test_calls_start_with_the_key_of_their_own_caller(patient: None, tmp_path: Path):
    """A call that waits is started while another one ends, and must not get its key."""
    keys, request = write_key_file(tmp_path, {"shop": SHOP, "other": OTHER}), pb.TranslateRequest(texts=["Tom"])
    async with running(api_keys=keys) as server:
        calls = [
            server.stub.Translate(request, timeout=20, metadata=bearer((SHOP, OTHER)[number % 2]))
            for number in range(10 * READ_SLOTS)
        ]
        await asyncio.gather(*calls)
        for name in ("shop", "other"):
            assert server.metric("lingon_key_requests_total", key=name, code="OK") == 5 * READ_SLOTS
            assert server.metric("lingon_key_characters_total", key=name) == 5 * READ_SLOTS * len("Tom")


async def test_calls_that_arrive_while_the_server_drains_end_with_unavailable():
    async with running(EchoRunner(), drain_seconds=60) as server:
        server.runner.gate.clear()
        in_flight = server.call("Tom", seconds=None)
        await eventually(lambda: server.metric("lingon_running_sentences", model="en-de", version="1") == 1)
        server.server.stop()
        await asyncio.sleep(0.05)
        late = [server.call("Tom", seconds=None) for _ in range(200)]
        assert {await call.code() for call in late} == {grpc.StatusCode.UNAVAILABLE}
        server.runner.gate.set()
        await in_flight


async def test_calls_arrive_together_and_not_one_after_the_other(monkeypatch: pytest.MonkeyPatch):
    """grpc.aio itself takes one call of a method in two iterations of the event loop."""
    iterations, arrived, arrive, sources = list[int](), list[int](), Arrivals.arrive, list[socket.socket]()

    def note(self: Arrivals, *call: Any) -> Any:
        arrived.append(len(iterations))
        return arrive(self, *call)

    def note_source(source: socket.socket, handle_events: Callable[[], None]) -> None:
        sources.append(source)
        handle_all(source, handle_events)

    monkeypatch.setattr(Arrivals, "arrive", note)
    monkeypatch.setattr(grpc_server, "handle_all", note_source)
    async with running() as server, counted_iterations() as found:
        iterations = found
        await server.translate("Tom")
        arrived.clear()
        with grpc.insecure_channel(f"127.0.0.1:{server.server.port}") as channel:  # with threads of its own
            translate = pb_grpc.TranslationServiceStub(channel).Translate
            calls = [translate.future(pb.TranslateRequest(texts=[f"Tom {number}"])) for number in range(AHEAD)]
            # The loop stands still until a wake-up byte of each call is there.
            peek = socket.MSG_PEEK | socket.MSG_DONTWAIT
            eventually_blocking(lambda: len(sources[0].recv(MOST_BYTES, peek)) >= AHEAD, ignoring=(BlockingIOError,))
            await asyncio.to_thread(lambda: [call.result() for call in calls])
    assert len(arrived) == AHEAD
    assert len(set(arrived)) < AHEAD / 2


def test_all_wake_ups_are_read_at_once():
    left: list[int] = []
    reader, writer = socket.socketpair()
    with reader, writer:
        for sent in (1, 2, 500):
            writer.send(b"1" * sent)
            handle_all(reader, lambda: left.append(len(reader.recv(MOST_BYTES))))
    assert left == [1, 1, 1]
