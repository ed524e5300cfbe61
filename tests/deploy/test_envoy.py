"""Envoy as deploy/envoy configures it: it balances, hides restarts, and changes no answer. Real proxy, real servers."""

from __future__ import annotations

import asyncio
import json
import signal
import struct
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import json_format

from deploy.envoy.configure import configured
from lingon.translation.v1 import translation_pb2 as pb
from tests.reliability import checker
from tests.reliability.history import Outcome
from tests.support.echo_engine import EchoRunner, RunningServer, running
from tests.support.envoy import ALONE, COMMAND, Envoy, envoy, missing, rolled
from tests.support.gateway import KNOWS_LANGUAGES, send
from tests.support.http2 import get
from tests.support.ports import free_ports
from tests.support.repository import FULL
from tests.support.scripted_server import FakeService, ScriptedFault, serving
from tests.support.timing import eventually

pytestmark = pytest.mark.ops
TEXT = "Tom lives in Boston."
GREEDY = {"texts": [TEXT, "It is raining."], "options": {"beamSize": 1}}
SERVICE = "/lingon.translation.v1.TranslationService/"
LIMIT = 4 * 1024 * 1024  # bytes of a request
Proxied = tuple[Envoy, Any, RunningServer]


@pytest.fixture(autouse=True)
def needs_envoy() -> None:
    if reason := missing():
        pytest.skip(f"ops: {reason}")


@asynccontextmanager
async def proxied(folder: Path, runner: EchoRunner | None = None, **settings: Any) -> AsyncIterator[Proxied]:
    """One server behind a proxy."""
    async with (
        running(runner, bundles=(KNOWS_LANGUAGES,), **settings) as server,
        envoy(folder, address(server)) as (proxy, stub),
    ):
        yield proxy, stub, server


def address(server: RunningServer) -> str:
    return f"127.0.0.1:{server.server.port}"


async def error_of(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


def frames(body: bytes) -> Iterator[tuple[int, bytes]]:
    """The frames of a reply of gRPC-Web: flags and content; flag 128 marks the trailers."""
    while body:
        flags, length = struct.unpack(">BI", body[:5])
        yield flags, body[5 : 5 + length]
        body = body[5 + length :]


def test_the_configuration_is_valid_and_up_to_date(tmp_path):
    (tmp_path / "envoy.yaml").write_text(configured(["127.0.0.1:50051", "[::1]:50061", "lingon:50051"]))
    command = [COMMAND, "--mode", "validate", "--config-path", tmp_path / "envoy.yaml", *ALONE]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert "[warning]" not in ran.stderr  # such as a deprecated field


async def test_a_server_that_is_stuck_gets_no_more_calls_than_the_others_have(tmp_path):
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(running()) for _ in range(3)]
        _, stub = await stack.enter_async_context(envoy(tmp_path, *map(address, servers)))
        stuck, over = servers[2], asyncio.Event()

        async def caller() -> None:
            while not over.is_set():
                await stub.Translate(pb.TranslateRequest(texts=[TEXT]), timeout=60)

        def answered(server: RunningServer) -> float:
            return server.metric("lingon_requests_total", method="Translate", code="OK")

        callers = [asyncio.create_task(caller()) for _ in range(12)]
        await eventually(lambda: min(map(answered, servers)) >= 5, 30)  # there are connections to all
        stuck.runner.gate.clear()
        before = sum(map(answered, servers))
        await eventually(lambda: sum(map(answered, servers)) >= before + 100, 30)
        # A call goes there only while another server has as many. In turns, all callers would soon wait for this one.
        assert 1 <= stuck.metric("lingon_requests_in_flight") <= 7
        over.set()
        stuck.runner.gate.set()
        await asyncio.gather(*callers)


async def test_restarts_of_a_server_cause_no_error_although_the_client_does_not_repeat(tmp_path):
    ports = free_ports(2)
    async with AsyncExitStack() as stack:
        other = await stack.enter_async_context(running(EchoRunner(delay=0.002), port=ports[0]))
        restarted = AsyncExitStack()
        first = await restarted.enter_async_context(running(EchoRunner(delay=0.002), port=ports[1]))
        _, stub = await stack.enter_async_context(envoy(tmp_path, address(other), address(first)))
        over, answered = asyncio.Event(), list[pb.TranslateResponse]()

        async def caller() -> None:
            while not over.is_set():
                answered.append(await stub.Translate(pb.TranslateRequest(texts=[TEXT]), timeout=60))

        callers = [asyncio.create_task(caller()) for _ in range(4)]
        for _ in range(2):
            await asyncio.sleep(0.3)
            await restarted.aclose()
            restarted = AsyncExitStack()
            again = await restarted.enter_async_context(running(EchoRunner(delay=0.002), port=ports[1]))
        await eventually(lambda: again.metric("lingon_requests_total", method="Translate", code="OK") > 0, 30)
        over.set()
        await asyncio.gather(*callers)
        await restarted.aclose()
    assert {reply.results[0].hypotheses[0].text for reply in answered} == {TEXT}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
async def test_ten_restarts_of_a_server_process_under_load_stay_within_the_bounds_of_a_rollout(tmp_path, end):
    if not FULL:
        pytest.skip("ops: takes two minutes; runs with TEST_SCALE=full")
    run = await rolled(tmp_path, 10, end=end)
    outcomes = [*run.with_retry, *run.without]
    assert run.restarts == 10
    assert _errors(run.with_retry) == []
    assert len(_errors(run.without)) <= len(run.without) / 1000
    assert checker.ended_once(outcomes) == []
    assert run.row["p99_ms"] < 5000
    assert run.slow_share < 1 / 3


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL])
async def test_a_server_that_is_healthy_but_fails_calls_is_left_out(tmp_path, code):
    """It fails at once, so that it always has the fewest calls, and would get all of them."""
    service, codes = FakeService([ScriptedFault(code) for _ in range(1000)]), list[grpc.StatusCode]()
    async with running() as server:
        with serving(service) as bad:
            async with envoy(tmp_path, bad, address(server)) as (proxy, stub):

                async def caller() -> None:
                    for _ in range(50):
                        call = stub.Translate(pb.TranslateRequest(texts=[TEXT]), timeout=60)
                        codes.append(await call.code())

                await asyncio.gather(*(caller() for _ in range(4)))
                ejected = await asyncio.to_thread(proxy.counted, "outlier_detection.ejections_total")
    assert ejected >= 1
    assert len(service.requests) < 60  # of 200 calls
    assert code == grpc.StatusCode.INTERNAL or set(codes) == {grpc.StatusCode.OK}  # INTERNAL is not repeated


async def test_json_is_answered_as_by_our_own_http_api(tmp_path):
    requests = {
        "/v1/translate": {**GREEDY, "text": {"returnSentences": True}},
        "/v1/score": {"pairs": [{"source": TEXT, "target": "Tom wohnt in Boston. <b>&"}]},
        "/v1/detect": {"texts": ["Das ist gut.", "Übermäßig schön"]},
    }
    async with proxied(tmp_path, http_port=0) as (proxy, _, server):
        for path, content in requests.items():
            found = await proxy.post(path, content)
            own = await asyncio.to_thread(_own, server, "POST", path, content)
            assert (found.status, own.status) == (200, 200)
            assert _as_floats(found.json) == _as_floats(own.json)
        models = await proxy.send("GET", "/v1/models", b"", "")
        assert models.json == (await asyncio.to_thread(_own, server, "GET", "/v1/models", None)).json


@pytest.mark.parametrize(
    ("content", "status"),
    [
        ({"texts": []}, 400),
        ({"texts": ["one"], "model": "none"}, 404),
        ({"texts": ["one"], "options": {"beamSize": 99}}, 400),
    ],
)
async def test_an_error_of_the_server_is_the_same_json_as_in_our_own_http_api(tmp_path, content, status):
    async with proxied(tmp_path, http_port=0) as (proxy, _, server):
        found = await proxy.post("/v1/translate", content)
        own = await asyncio.to_thread(_own, server, "POST", "/v1/translate", content)
    kinds = {each["@type"] for each in own.json["details"]}
    same = [each for each in found.json["details"] if each["@type"] in kinds]  # our own leaves out ResourceInfo
    assert (found.status, {**found.json, "details": same}) == (own.status, own.json)
    assert (found.status, same[0]["domain"]) == (status, "lingon")


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/translate", b"{", 400),
        ("POST", "/v1/translate", b'{"text_s": ["one"]}', 400),
        ("GET", "/v1/none", b"", 404),
        ("GET", "/", b"", 404),
        ("POST", "/v1/translate", b'{"texts": ["' + b"x" * LIMIT + b'"]}', 413),
    ],
)
async def test_a_request_that_is_no_call_is_refused_by_the_proxy(tmp_path, method, path, body, status):
    async with proxied(tmp_path) as (proxy, _, server):
        reply = await proxy.send(method, path, body)
        received = server.metric("lingon_texts_total", code="OK")
    assert (reply.status, received) == (status, 0)


async def test_a_stream_arrives_as_it_is_sent_and_as_lines_of_json(tmp_path):
    request = json_format.ParseDict(GREEDY, pb.TranslateStreamRequest())
    async with proxied(tmp_path) as (proxy, stub, server):
        server.runner.gate.clear()
        call = stub.TranslateStream(request, timeout=60)
        events = aiter(call)
        first = await anext(events)  # before the first decoder step
        server.runner.gate.set()
        found = [first, *[event async for event in events]]
        direct = [event async for event in server.stub.TranslateStream(request)]
        lines = await proxy.post("/v1/translate:stream", GREEDY)
    assert first.HasField("start")
    assert _final(found) == _final(direct)
    parsed = [json_format.Parse(line, pb.TranslateStreamResponse()) for line in lines.body.splitlines()]
    assert _final(parsed) == _final(direct)


async def test_an_error_of_grpc_passes_with_its_details(tmp_path):
    async with proxied(tmp_path) as (_, stub, server):
        request = pb.TranslateRequest(texts=[TEXT], model="none")
        direct, found = await error_of(server.stub.Translate(request)), await error_of(stub.Translate(request))
        streamed = stub.TranslateStream(pb.TranslateStreamRequest(texts=[TEXT], model="none"))
        in_stream = await error_of(streamed.read())
    for error in (found, in_stream):
        assert (error.code(), error.details()) == (direct.code(), direct.details())
        details = [dict(each.trailing_metadata())["grpc-status-details-bin"] for each in (error, direct)]
        assert details[0] == details[1]


async def test_deadlines_reach_the_server(tmp_path):
    async with proxied(tmp_path) as (proxy, stub, server):
        server.runner.gate.clear()
        calls = [stub.Translate(pb.TranslateRequest(texts=[TEXT]), timeout=2) for _ in range(8)]
        codes = {(await error_of(call)).code() for call in calls}
        reply = await proxy.post("/v1/translate", GREEDY, grpc_timeout="2S")
        server.runner.gate.set()
        await eventually(lambda: server.metric("lingon_texts_total", code="DEADLINE_EXCEEDED") == 10)
        assert (await stub.Translate(pb.TranslateRequest(texts=[TEXT]), timeout=60)).results[0].hypotheses[
            0
        ].text == TEXT
    assert codes == {grpc.StatusCode.DEADLINE_EXCEEDED}
    assert reply.status == 504


async def test_the_id_of_a_request_reaches_the_server_and_comes_back(tmp_path):
    async with proxied(tmp_path) as (proxy, stub, _):
        call = stub.Translate(pb.TranslateRequest(texts=[TEXT]), metadata=(("x-request-id", "mine-7"),))
        await call
        trailers = dict(await call.trailing_metadata())
        named = await proxy.post("/v1/translate", GREEDY, x_request_id="mine-8")
        unnamed = await proxy.post("/v1/translate", GREEDY)
    assert trailers["x-request-id"] == "mine-7"  # of the server
    assert named.headers["x-request-id"] == "mine-8"
    assert unnamed.headers["x-request-id"]


async def test_a_cancelled_call_ends_at_the_server(tmp_path):
    async with proxied(tmp_path) as (_, stub, server):
        server.runner.gate.clear()
        call = stub.Translate(pb.TranslateRequest(texts=[TEXT]))
        await eventually(lambda: server.metric("lingon_requests_in_flight") == 1)
        call.cancel()
        await eventually(lambda: server.metric("lingon_requests_in_flight") == 0)
        server.runner.gate.set()


async def test_a_large_request_of_grpc_is_refused_as_the_server_refuses_it(tmp_path):
    async with proxied(tmp_path) as (_, stub, server):
        request = pb.TranslateRequest(texts=["x" * LIMIT])
        direct, found = await error_of(server.stub.Translate(request)), await error_of(stub.Translate(request))
    assert found.code() == direct.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("kind", ["application/grpc-web+proto", "application/grpc-web"])
async def test_grpc_web_is_translated(tmp_path, kind):
    message = json_format.ParseDict(GREEDY, pb.TranslateRequest()).SerializeToString()
    body = struct.pack(">BI", 0, len(message)) + message
    async with proxied(tmp_path) as (proxy, _, server):
        reply = await proxy.send("POST", f"{SERVICE}Translate", body, kind)
        direct = await server.stub.Translate(pb.TranslateRequest.FromString(message))
        streamed = await proxy.send("POST", f"{SERVICE}TranslateStream", body, kind)
    (_, content), (flags, trailers) = frames(reply.body)
    assert pb.TranslateResponse.FromString(content) == direct
    assert (flags, b"grpc-status:0" in trailers) == (128, True)
    *events, (flags, _) = frames(streamed.body)
    done = [event for _, data in events if (event := pb.TranslateStreamResponse.FromString(data)).HasField("done")]
    assert (len(done), flags) == (2, 128)


async def test_load_balancers_in_front_see_whether_a_server_is_healthy(tmp_path):
    async with running() as server, envoy(tmp_path, address(server)) as (proxy, _):
        before = await asyncio.to_thread(get, proxy.port, "/healthz")
        server.server.stop()
        await eventually(lambda: asyncio.to_thread(lambda: get(proxy.port, "/healthz")[0] == 503), 30)
    assert before[0] == 200


async def test_the_admin_port_cannot_stop_the_proxy(tmp_path):
    async with running() as server, envoy(tmp_path, address(server)) as (proxy, _):
        reply = await asyncio.to_thread(send, proxy.admin_port, "POST", "/quitquitquit", b"", "", {})
        metrics = await asyncio.to_thread(get, proxy.admin_port, "/stats/prometheus")
    assert reply.status == 403
    assert 'envoy_cluster_membership_healthy{envoy_cluster_name="lingon"} 1' in metrics[1]


def _errors(outcomes: Sequence[Outcome]) -> list[str]:
    return [f"{outcome.code} {outcome.reason}" for outcome in outcomes if not outcome.good]


def _own(server: RunningServer, method: str, path: str, content: Any) -> Any:
    """The reply of the server's own HTTP API."""
    body = b"" if content is None else json.dumps(content).encode()
    return send(server.server.http_port, method, path, body, "application/json", {})


def _as_floats(content: Any) -> Any:
    """JSON with its numbers in 32 bits: Envoy writes nine figures of them, our own API as many as they need."""
    if isinstance(content, dict):
        return {name: _as_floats(value) for name, value in content.items()}
    if isinstance(content, list):
        return [_as_floats(value) for value in content]
    is_number = isinstance(content, (int, float)) and not isinstance(content, bool)
    return struct.unpack("f", struct.pack("f", content))[0] if is_number else content


def _final(events: list[pb.TranslateStreamResponse]) -> list[pb.TranslateStreamResponse]:
    """The events without deltas, whose number depends on the pace of the reader."""
    return sorted((event for event in events if not event.HasField("delta")), key=str)
