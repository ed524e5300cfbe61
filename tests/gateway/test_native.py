"""Our own HTTP API says what the gRPC service says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf import json_format
from google.rpc import code_pb2

from lingon.translation.v1 import translation_pb2 as pb
from tests.support.gateway import ENGLISH, gateway

TEXTS = ["Tom lives in Boston.", "How are you? It is raining.", ""]


@pytest.mark.parametrize("beam_size", [1, 4])
async def test_a_reply_is_that_of_grpc(beam_size: int):
    request = {"texts": ENGLISH[:100], "options": {"beamSize": beam_size}, "text": {"returnSentences": True}}
    async with gateway() as http:
        reply = await http.post("/v1/translate", request)
        expected = await http.server.stub.Translate(json_format.ParseDict(request, pb.TranslateRequest()))
    assert reply.status == 200
    assert json_format.ParseDict(reply.json, pb.TranslateResponse()) == expected


async def test_fields_are_read_in_both_spellings_and_an_error_of_a_text_is_in_its_result():
    async with gateway() as http:
        reply = await http.post(
            "/v1/translate", {"texts": TEXTS, "source_language_code": "en", "options": {"beam_size": 1}}
        )
        listed = await http.get("/v1/models")
        scored = await http.post("/v1/score", {"pairs": [{"source": "Tom", "target": "Tom"}]})
        detected = await http.post("/v1/detect", {"texts": ["Das ist gut."]})
    results = reply.json["results"]
    assert [len(each.get("hypotheses", [])) for each in results] == [1, 1, 0]
    assert results[2]["status"]["code"] == code_pb2.INVALID_ARGUMENT
    assert [each["name"] for each in listed.json["models"]] == ["en-de"]
    assert scored.json["results"][0]["logProb"] < 0
    assert detected.json["results"][0]["languages"][0]["languageCode"] == "de"


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"{", 400, "the body is not a TranslateRequest"),
        (b'{"texts": "one"}', 400, "the body is not a TranslateRequest"),
        (b'{"text_s": ["one"]}', 400, 'no field named "text_s"'),
        (b"[" * 100_000, 400, "the body is not a TranslateRequest"),
        (b'{"texts": ["\\ud800"]}', 400, "the body is not a TranslateRequest"),
        (b"{}", 400, "texts must be 1 to 256, got 0"),
        (b'{"texts": ["one"], "model": "none"}', 404, "model 'none' is not served"),
        (b'{"texts": ["one"], "options": {"beamSize": 99}}', 400, "beam_size"),
    ],
)
async def test_an_error_is_a_status_with_its_details(body: bytes, status: int, message: str):
    async with gateway() as http:
        reply = await http.send("POST", "/v1/translate", body, "application/json", {"x-request-id": "r-1"})
    assert reply.status == status
    assert message in reply.json["message"]
    assert reply.json["code"] in (code_pb2.INVALID_ARGUMENT, code_pb2.NOT_FOUND)
    assert reply.headers["x-request-id"] == "r-1"
    assert "Traceback" not in reply.body.decode()


def events(body: bytes) -> list[tuple[str, Any]]:
    parts = [part.split("\n") for part in body.decode().strip().split("\n\n")]
    return [(kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for kind, data in parts]


async def test_a_stream_has_the_events_of_grpc_as_server_sent_events_or_as_lines():
    request = {"texts": ["Tom lives in Boston.", "It is raining."], "options": {"beamSize": 1}}
    async with gateway() as http:
        reply = await http.post("/v1/translate:stream", request)
        lines = await http.post("/v1/translate:stream", request, {"accept": "application/x-ndjson"})
    found = events(reply.body)
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert found[0][0] == "start"
    deltas = [each["delta"]["text"] for kind, each in found if kind == "delta" and not each["delta"].get("textIndex")]
    done = {each["done"].get("textIndex", 0): each["done"]["result"] for kind, each in found if kind == "done"}
    assert "".join(deltas) == done[0]["hypotheses"][0]["text"] == "Tom lives in Boston."
    assert len(done) == 2
    parsed = [json.loads(line) for line in lines.body.splitlines()]
    assert [list(each) for each in parsed if "delta" not in each] == [["start"], ["done"], ["done"]]


async def test_an_error_before_the_first_event_is_a_status_of_http():
    async with gateway() as http:
        reply = await http.post("/v1/translate:stream", {"texts": ["one"], "model": "none"})
    assert (reply.status, reply.json["code"]) == (404, code_pb2.NOT_FOUND)


async def test_a_path_that_no_api_has_is_an_error_in_json():
    async with gateway() as http:
        reply = await http.get("/v1/none")
        wrong_method = await http.get("/v1/translate")
    assert (reply.status, reply.json["message"]) == (404, "no such path")
    assert (wrong_method.status, wrong_method.json["message"]) == (405, "Method Not Allowed")
