"""Our own HTTP API says what the gRPC service says, in the JSON that google.protobuf.json_format defines."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from typing import Any

import pytest
from google.protobuf import json_format
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lingon.gateway.backend import BESIDE
from lingon.gateway.lingon_api import error_json, from_json, to_dict, to_json
from lingon.gateway.problem import CODE, Problem
from lingon.status import DOMAIN
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import EchoRunner, running
from tests.support.gateway import BUNDLES, ENGLISH, TwoModels, gateway
from tests.support.timing import eventually

TEXTS = ["Tom lives in Boston.", "How are you? It is raining.", ""]


@pytest.mark.parametrize("beam_size", [1, 4])
async def test_a_reply_is_that_of_grpc(beam_size: int):
    request = {"texts": ENGLISH[:100], "options": {"beamSize": beam_size}, "text": {"returnSentences": True}}
    async with gateway() as http:
        reply = await http.post("/v1/translate", request)
        expected = await http.server.stub.Translate(json_format.ParseDict(request, pb.TranslateRequest()))
    assert reply.status == 200
    assert json_format.ParseDict(reply.json, pb.TranslateResponse()) == expected


@pytest.mark.parametrize(
    "request_",
    [
        {"options": {"alternatives": 3, "minAlternativeProbability": 0.01}, "targetPrefixes": ["Tom"]},
        {"options": {"beamSize": 4, "patience": 2, "coveragePenalty": 0.5}},
        {"options": {"beamSize": 4, "prefixBias": 0.5}, "targetPrefixes": ["Tom"]},
        {"text": {"format": "TEXT_FORMAT_PIECES"}, "texts": ["▁ T o m"]},
    ],
    ids=["alternatives", "coverage", "soft prefix", "pieces"],
)
async def test_the_options_of_a_search_are_those_of_grpc(request_: dict[str, Any]):
    request = {"texts": ENGLISH[:1], **request_}
    async with gateway() as http:
        reply = await http.post("/v1/translate", request)
        expected = await http.server.stub.Translate(json_format.ParseDict(request, pb.TranslateRequest()))
    assert json_format.ParseDict(reply.json, pb.TranslateResponse()) == expected
    assert expected.results[0].hypotheses[0].text


async def test_fields_are_read_in_both_spellings_and_an_error_of_a_text_is_in_its_result():
    async with gateway() as http:
        reply = await http.post(
            "/v1/translate",
            {"texts": [*TEXTS[:2], "a" * 9000], "source_language_code": "en", "options": {"beam_size": 1}},
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
    ("text", "status", "said"),
    [
        ("Der alte Mann. Das Meer.", 200, "de"),
        ("Je voudrais savoir quelle heure il est, et où.", 200, "fr"),
        ("Dnes je krásné počasí a všichni lidé jsou venku v parku na procházce.", 400, "no model translates from it"),
    ],
)
async def test_the_language_that_texts_are_translated_from_is_found(text: str, status: int, said: str):
    async with gateway(bundles=BUNDLES, loader=TwoModels) as http:
        reply = await http.post("/v1/translate:source", {"texts": text.split(". "), "targetLanguageCode": "fr"})
    assert reply.status == status
    assert said in reply.json["languageCode" if status == 200 else "message"]


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


async def test_only_the_call_of_a_request_has_its_id_in_the_log(caplog: pytest.LogCaptureFixture):
    """The port asks for the models and checks keys on its own, and a caller counts the answers to its id."""
    caplog.set_level(logging.DEBUG, "lingon.serving")
    async with gateway() as http:
        body = json.dumps({"texts": ["Tom"], "sourceLanguageCode": "auto"}).encode()
        await http.send("POST", "/v1/translate", body, "application/json", {"x-request-id": "r-1"})
        await http.send("GET", "/v1/models", b"", "application/json", {"x-request-id": "r-2"})
    logged = [vars(record)["fields"] for record in caplog.records if record.getMessage() == "call"]
    calls = [(fields["request_id"], fields["method"]) for fields in logged]
    assert [method for found, method in calls if found == "r-1"] == ["Translate"]
    assert [method for found, method in calls if found == "r-2"] == ["ListModels"]
    assert {method for found, method in calls if found == f"r-1{BESIDE}"} == {"ListModels"}


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


async def test_an_error_while_the_texts_are_planned_is_a_status_of_http():
    request = {"texts": ["Tom has boats. It is raining."] * 2, "options": {"beamSize": 1}}
    async with gateway(max_queue_texts=3) as http:
        reply = await http.post("/v1/translate:stream", request)
        assert http.server.metric("lingon_http_requests_total", api="lingon", status="400") == 1
    assert (reply.status, reply.json["code"]) == (400, code_pb2.INVALID_ARGUMENT)
    assert "4 sentences or more; a request may have 3 at most" in reply.json["message"]


async def test_an_error_after_the_first_events_is_an_event(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lingon.gateway.app.CALL_SECONDS", 2.0)
    request = {"texts": ["one two three four five six"], "options": {"beamSize": 1}}
    async with gateway(EchoRunner(endless=True, delay=0.1)) as http:
        reply = await http.post("/v1/translate:stream", request)
    (*_, (kind, error)) = events(reply.body)
    assert (reply.status, kind) == (200, "error")
    assert error["message"] == "the call was not done within 2 s"


async def test_a_call_that_exceeds_its_limit_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lingon.gateway.app.CALL_SECONDS", 0.2)
    async with gateway(EchoRunner(endless=True, delay=0.05)) as http:
        reply = await http.post("/v1/translate", {"texts": ["one two three"]})
    assert (reply.status, reply.json["message"]) == (504, "the call was not done within 0.2 s")


async def test_a_stream_is_in_flight_until_its_end():
    body = json.dumps({"texts": ["one two three"], "options": {"beamSize": 1}}).encode()
    head = f"POST /v1/translate:stream HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    async with gateway(EchoRunner(endless=True, delay=0.05)) as http:
        metric = http.server.metric
        reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
        writer.write(head + body)
        assert b"event: start" in await reader.readuntil(b"event: delta")
        assert metric("lingon_http_requests_in_flight") == 1
        with pytest.raises(KeyError):
            metric("lingon_http_requests_total", api="lingon", status="200")
        writer.close()
        await eventually(lambda: metric("lingon_http_requests_in_flight") == 0)
        assert metric("lingon_http_requests_total", api="lingon", status="200") == 1
        assert metric("lingon_http_request_duration_seconds_sum", api="lingon") > 0.05


async def test_a_path_that_no_api_has_is_an_error_in_json():
    async with gateway() as http:
        reply = await http.get("/v1/none")
        wrong_method = await http.get("/v1/translate")
    assert (reply.status, reply.json["message"]) == (404, "no such path")
    assert (wrong_method.status, wrong_method.json["message"]) == (405, "Method Not Allowed")


def problems(seed: int, count: int) -> list[Problem]:
    draw = random.Random(seed)
    letters = 'ab "\\/\n\t<é\u2028😀\x00'
    return [
        Problem(
            draw.choice(list(CODE)),
            "".join(draw.choices(letters, k=draw.randint(0, 12))),
            reason=draw.choice(["", "QUEUE_FULL"]),
            field=draw.choice(["", "texts[3].é"]),
            retry_after=draw.choice([None, draw.randint(1, 10**7) / 1000]),
        )
        for _ in range(count)
    ]


def test_an_error_in_json_is_the_status_with_its_details():
    for problem in problems(seed=1, count=300):
        expected = status_pb2.Status(code=problem.code, message=str(problem))
        details: list[Any] = []
        if problem.reason:
            details.append(error_details_pb2.ErrorInfo(reason=problem.reason, domain=DOMAIN))
        if problem.field:
            violation = error_details_pb2.BadRequest.FieldViolation(field=problem.field, description=str(problem))
            details.append(error_details_pb2.BadRequest(field_violations=[violation]))
        if problem.retry_after is not None:
            retry = error_details_pb2.RetryInfo()
            retry.retry_delay.FromMilliseconds(round(problem.retry_after * 1000))
            details.append(retry)
        for detail in details:
            expected.details.add().Pack(detail)
        assert json_format.Parse(error_json(problem), status_pb2.Status()) == expected


REQUESTS = (pb.TranslateRequest, pb.TranslateStreamRequest, pb.ScoreRequest, pb.DetectLanguagesRequest)
NAMES = sorted(
    {
        name
        for kind in (*REQUESTS, pb.DecodingOptions, pb.TextOptions, pb.SamplingOptions, pb.ScorePair)
        for field in kind.DESCRIPTOR.fields
        for name in (field.name, field.json_name)
    }
)
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**33), 2**65),
        st.floats(allow_nan=False),
        st.sampled_from(("Tom", "1", "\ud800", "TEXT_FORMAT_HTML", "SENTENCE_SPLITTING_ON", "NaN")),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)),
    max_leaves=10,
)


def outcome(read: Any, body: bytes, kind: type[Message]) -> Any:
    """The message that was read, or the message of the error."""
    try:
        return read(body, kind())
    except (json_format.ParseError, UnicodeDecodeError, RecursionError) as error:
        return type(error), str(error)


@settings(max_examples=300, suppress_health_check=list(HealthCheck), database=None, deadline=None)
@given(st.sampled_from(REQUESTS), st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=5))
def test_any_json_is_read_or_refused_as_json_format_does(kind: type[Message], content: dict[str, Any]):
    body = json.dumps(content).encode()
    assert outcome(from_json, body, kind) == outcome(json_format.Parse, body, kind)


@pytest.mark.parametrize(
    "body",
    [
        b'{"texts": ["a"], "texts": ["b"]}',
        b'{"sourceLanguageCode": "en", "source_language_code": "de"}',
        b'{"options": {"lengthPenalty": NaN}}',
        b'{"options": {"lengthPenalty": 1e39}}',
        b'{"options": {"beamSize": true}}',
        b'{"options": {"beamSize": 2.0}}',
        b'{"options": {"beamSize": -1}}',
        b'{"options": {"sampling": {"seed": "18446744073709551615"}}}',
        b'{"options": {}}',
        b'{"texts": null, "text": {"format": 2, "protect": false}}',
        b'{"text": {"format": "NONE"}}',
        b'{"options": [1]}',
        b"",
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_what_is_unusual_is_read_or_refused_as_json_format_does(body: bytes):
    assert outcome(from_json, body, pb.TranslateRequest) == outcome(json_format.Parse, body, pb.TranslateRequest)


@pytest.mark.parametrize(
    ("body", "kind"),
    [("[]", "an array"), ("null", "null"), ("2.5", "a number"), ("true", "a boolean"), ('"a"', "a string")],
)
def test_what_is_no_object_is_refused(body: str, kind: str):
    with pytest.raises(json_format.ParseError, match=f"it must be an object, got {kind}"):
        from_json(body, pb.TranslateRequest())


async def test_replies_are_written_as_json_format_does():
    options = pb.DecodingOptions(beam_size=4, num_hypotheses=2, return_tokens=True, return_alignment=True)
    text = pb.TextOptions(return_sentences=True)
    async with running() as server:
        replies = [
            await server.translate("It is raining. Tom is here.", "", "word " * 90, options=options, text=text),
            await server.stub.ListModels(pb.ListModelsRequest()),
            *await server.stream("Tom lives in Boston."),
        ]
    for reply in replies:
        assert to_dict(reply) == json_format.MessageToDict(reply)
        assert json.loads(to_json(reply)) == json.loads(json_format.MessageToJson(reply))


@settings(max_examples=300, database=None, deadline=None)
@given(st.floats(width=32), st.text(), st.integers(0, 7))
def test_any_number_text_and_unknown_enum_is_written_as_json_format_does(number: float, text: str, code: int):
    hypothesis = pb.Hypothesis(text=text.encode("utf-8", "replace").decode(), score=number)
    reply = pb.TranslateResponse(
        results=[pb.TextResult(hypotheses=[hypothesis], warnings=[pb.Warning(code=code + 90)])]
    )
    assert to_json(reply) == json.dumps(json_format.MessageToDict(reply), ensure_ascii=False, separators=(",", ":"))
