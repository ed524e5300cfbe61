"""Messages are read from JSON and written as google.protobuf.json_format does, which defines that JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf import json_format
from google.protobuf.message import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lingon.gateway.requests.json_messages import from_json, to_dict, to_json
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import running

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
        b"[1]",
        b"",
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_what_is_unusual_is_read_or_refused_as_json_format_does(body: bytes):
    assert outcome(from_json, body, pb.TranslateRequest) == outcome(json_format.Parse, body, pb.TranslateRequest)


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
