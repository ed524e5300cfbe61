"""How long the client of HTTP waits: the headers that say it, on every route, and what is refused for it."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest

from lingon.gateway.endpoint import HEADERS
from lingon.status import CLIENT_ADDRESS
from lingon.translation.v1 import translation_pb2 as pb
from lingon.translation.v1 import translation_pb2_grpc as pb_grpc
from tests.support.echo_engine import EchoRunner
from tests.support.gateway import gateway
from tests.support.timing import eventually

WORK = {
    "/v1/translate": {"texts": ["Tom"]},
    "/v1/translate:stream": {"texts": ["Tom"]},
    "/v1/score": {"pairs": [{"source": "Tom", "target": "Tom"}]},
    "/v2/translate": {"text": ["Tom"], "target_lang": "DE", "source_lang": "EN"},
    "/translate": {"q": "Tom", "source": "en", "target": "de"},
    "/language/translate/v2": {"q": "Tom", "source": "en", "target": "de"},
    "/v3/projects/p:translateText": {"contents": ["Tom"], "targetLanguageCode": "de", "sourceLanguageCode": "en"},
}
"""The routes that have work for an engine."""
EVERY = {**WORK, "/v1/detect": {"texts": ["Tom"]}, "/detect": {"q": "Tom"}}
MODEL = {"model": "en-de", "version": "1"}


def no_times(seed: int, count: int) -> list[str]:
    """Values that are no time: signs, units, other digits, powers, too many digits, nothing."""
    draw, found = random.Random(seed), ["", "0", "0.0", "00", ".", "nan", "inf", "1e3", "0x1", "1_0", "+1", "-1", "1,5"]
    while len(found) < count:
        number = str(draw.randint(1, 10**6))
        place = draw.randint(0, len(number))
        found.append(number[:place] + draw.choice("smh-+ eE_'\";,x/%") + number[place:])
        found.append(number * 10)
    return found


@pytest.mark.parametrize("name", HEADERS)
async def test_a_header_that_is_no_time_is_refused_on_every_route_in_one_line_with_bound_and_value(name: str):
    async with gateway() as http:
        for value in no_times(1, 40):
            reply = await http.post("/v1/translate", WORK["/v1/translate"], {name: value})
            message = reply.json["message"]
            assert (value, reply.status) == (value, 400)
            assert message.startswith(f"{name} must be a number of at least ")
            assert "\n" not in message
            assert repr(value.strip()[:40]) in message
        for path, content in EVERY.items():
            assert (await http.post(path, content, {name: "soon"})).status == 400
        assert (await http.get("/v1/models", {name: "soon"})).status == 400


@pytest.mark.parametrize("name", HEADERS)
async def test_a_client_that_waits_for_a_short_time_gets_the_end_of_its_call_on_every_route(name: str):
    runner = EchoRunner()
    async with gateway(runner) as http:
        runner.gate.clear()
        first = asyncio.create_task(http.post("/v1/translate", {"texts": ["Tom"]}))  # holds the engine
        await eventually(lambda: http.server.metric("lingon_running_sentences", **MODEL) == 1)
        header = {name: f"{0.2 / HEADERS[name]:g}"}
        replies = await asyncio.gather(*(http.post(path, content, header) for path, content in WORK.items()))
        assert [reply.status for reply in replies] == [504] * len(WORK)
        runner.gate.set()
        await first
        await eventually(lambda: http.server.metric("lingon_requests_in_flight") == 0)


async def test_a_client_that_waits_for_longer_than_a_call_may_take_changes_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lingon.gateway.app.CALL_SECONDS", 0.3)
    runner = EchoRunner()
    async with gateway(runner) as http:
        runner.gate.clear()
        for headers in ({}, *({name: "900000"} for name in HEADERS)):
            reply = await http.post("/v1/translate", WORK["/v1/translate"], headers)
            assert (reply.status, reply.json["message"]) == (504, "the call was not done within 0.3 s")
        runner.gate.set()


async def test_a_call_that_would_not_finish_is_refused_at_once_with_a_time_for_the_next_and_counted_as_by_grpc():
    runner = EchoRunner(delay=0.02)
    async with gateway(runner, max_rows=1, engines=1) as http:
        stub = pb_grpc.TranslationServiceStub(http.server.server.channel)  # as the gateway calls for its clients
        request, client = pb.TranslateRequest(texts=["Tom"] * 12), ((CLIENT_ADDRESS, "127.0.0.1"),)
        flood = [asyncio.create_task(stub.Translate(request, metadata=client)) for _ in range(30)]  # type: ignore[arg-type]
        await eventually(lambda: http.server.metric("lingon_queue_depth", **MODEL) > 200)
        steps = runner.steps
        await eventually(lambda: runner.steps > steps + 50)  # the engine measures its throughput
        runner.gate.clear()  # so that the texts before stay there, and no call below is in time
        before = http.server.metric("lingon_rejected_total", reason="WONT_FINISH")
        for path, content in WORK.items():
            reply = await http.post(path, content, {"x-server-timeout": "5"})
            assert (path, reply.status) == (path, 503)
            assert int(reply.headers["retry-after"]) >= 1
        assert http.server.metric("lingon_rejected_total", reason="WONT_FINISH") == before + len(WORK)
        for task in flood:
            task.cancel()
        runner.delay = 0.0
        runner.gate.set()
        await asyncio.gather(*flood, return_exceptions=True)


async def test_the_time_that_the_client_of_an_upload_waits_does_not_end_its_document(tmp_path: Path):
    runner = EchoRunner()
    async with gateway(runner, http_data_dir=tmp_path) as http:
        runner.gate.clear()
        fields = {"target_lang": "DE", "source_lang": "EN"}
        content = b"Tom is here."
        parts = [f'--x\r\nContent-Disposition: form-data; name="{each}"\r\n\r\n{fields[each]}\r\n' for each in fields]
        head = '--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
        body = "".join([*parts, head]).encode() + content + b"\r\n--x--\r\n"
        kind = "multipart/form-data; boundary=x"
        made = (await http.send("POST", "/v2/document", body, kind, {"x-server-timeout": "0.2"})).json
        await asyncio.sleep(0.4)
        runner.gate.set()
        where, key = f"/v2/document/{made['document_id']}", {"document_key": made["document_key"]}
        state: dict[str, Any] = {}

        async def ended() -> bool:
            state.update(json.loads((await http.form(where, key)).body))
            return bool(state["status"] != "translating")

        await eventually(ended)
        assert state["status"] == "done"
