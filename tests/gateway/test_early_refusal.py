"""A request that the server would refuse is refused before its body is there, as its call would be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import json_format
from google.rpc import status_pb2

from lingon.serving.auth.api_keys import new_key
from lingon.serving.rpc.arrival import FRESH_SECONDS
from lingon.status import CLIENT_ADDRESS, STATUS_DETAILS
from lingon.translation.v1 import translation_pb2 as pb
from lingon.translation.v1 import translation_pb2_grpc as pb_grpc
from tests.reliability.http_storm import post
from tests.support.credentials import write_key_file
from tests.support.echo_engine import EchoRunner
from tests.support.gateway import Gateway, gateway
from tests.support.timing import eventually

ROUTES = {"/v1/translate": "Translate", "/v1/translate:stream": "TranslateStream", "/v1/score": "Score"}
MODEL = {"model": "en-de", "version": "1"}
TEXTS = {"texts": ["Tom"]}


@asynccontextmanager
async def full(headers: dict[str, str] | None = None, **settings: Any) -> AsyncIterator[Gateway]:
    """Run a gateway whose engine stands still and whose queue of one text is full; headers: of who filled it."""
    runner = EchoRunner()
    async with gateway(runner, max_queue_texts=1, max_rows=1, engines=1, **settings) as http:
        runner.gate.clear()
        waiting = []
        for metric in ("lingon_running_sentences", "lingon_queue_depth"):
            waiting.append(asyncio.create_task(http.post("/v1/translate", TEXTS, headers)))
            await eventually(lambda metric=metric: http.server.metric(metric, **MODEL) == 1)
        await asyncio.sleep(2 * FRESH_SECONDS)  # then no forecast from before is used
        yield http
        runner.gate.set()
        await asyncio.gather(*waiting)


def calls(http: Gateway) -> float:
    """Return the calls that were received, without those that check whether a caller is known."""
    checks = http.server.metric("lingon_requests_total", method="ListModels", code="OK")
    return http.server.metric("lingon_received_calls_total") - checks


async def answer(http: Gateway, path: str, headers: str = "") -> tuple[int, dict[str, str], bytes]:
    """Send the headers of a request and no body; returns the reply."""
    reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
    writer.write(f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n{headers}\r\n".encode())
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)).decode().lower().splitlines()
    fields = dict(line.split(": ", 1) for line in head[1:-1])
    body = await asyncio.wait_for(reader.readexactly(int(fields["content-length"])), 10)
    writer.close()
    return int(head[0].split()[1]), fields, body


async def test_a_refusal_before_the_body_says_and_counts_what_that_of_its_call_does():
    async with full() as http:
        stub: Any = pb_grpc.TranslationServiceStub(http.server.server.channel)  # as the gateway calls for its clients
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Translate(pb.TranslateRequest(**TEXTS), metadata=((CLIENT_ADDRESS, "127.0.0.1"),))
        expected = status_pb2.Status.FromString(dict(caught.value.trailing_metadata() or ())[STATUS_DETAILS])  # type: ignore[call-overload]
        assert (await http.post("/v1/score", {})).status == 429
        for path, method in ROUTES.items():
            counters: dict[str, dict[str, str]] = {
                "lingon_rejected_total": {"reason": "QUEUE_FULL"},
                "lingon_requests_total": {"method": method, "code": "RESOURCE_EXHAUSTED"},
                "lingon_http_requests_total": {"api": "lingon", "status": "429"},
            }
            before = {name: http.server.metric(name, **labels) for name, labels in counters.items()}
            received = calls(http)
            found, headers, body = await answer(http, path, "x-request-id: r-1\r\n")
            assert (found, headers["retry-after"], headers["x-request-id"]) == (429, "1", "r-1")
            assert json_format.Parse(body, status_pb2.Status()) == expected
            after = {name: http.server.metric(name, **labels) for name, labels in counters.items()}
            assert after == {name: value + 1 for name, value in before.items()}
            assert calls(http) == received + 1


async def test_a_caller_without_a_valid_key_learns_nothing_of_the_load(tmp_path: Path):
    bearer, file = f"Bearer {(key := new_key())}", write_key_file(tmp_path, {"web": key})
    async with full({"authorization": bearer}, api_keys=file) as http:
        for sent in ("", f"authorization: Bearer {new_key()}\r\n"):
            assert (await answer(http, "/v1/translate", sent))[0] == 401
        assert (await answer(http, "/v1/translate", f"authorization: {bearer}\r\n"))[0] == 429


async def test_requests_without_work_for_an_engine_are_answered_while_its_queue_is_full():
    async with full() as http:
        assert (await http.get("/v1/models")).status == 200
        assert (await http.post("/v1/detect", {"texts": ["Das ist gut."]})).status == 200


async def test_the_connection_of_a_refused_request_serves_the_next_one_once_the_body_has_come():
    async with full() as http:
        reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
        for _ in range(3):
            head, _, body = post("/v1/translate", b'{"texts": ["Tom"]}').partition(b"\r\n\r\n")
            writer.write(head + b"\r\n\r\n")
            reply = await asyncio.wait_for(reader.readuntil(b"RetryInfo"), 10)
            assert reply.count(b"HTTP/1.1 429") == 1
            writer.write(body)
        writer.close()
