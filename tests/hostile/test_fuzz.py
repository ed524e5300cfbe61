"""Random and damaged requests: every call ends in time with a documented code, and the server stays healthy."""

from __future__ import annotations

import json
from typing import Any

import grpc
import pytest
from google.rpc import code_pb2
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from lingon.errors import TextTooLong
from lingon.serving.translation.plans import Part, parts_of
from lingon.text import EOS, normalise
from lingon.translation.v1 import translation_pb2 as pb
from tests.support import echo_engine, shipped_model
from tests.support.gateway import Gateway, gateway
from tests.support.processes import CONTRACT, SERVICE, ServerProcess, is_prompt
from tests.support.repository import scaled
from tests.support.request_strategies import ANY, METHODS, TEXTS, VALID, answer_to, inputs

REPLIES = {"Translate": pb.TranslateResponse, "Score": pb.ScoreResponse}
TEXT_CODES = {code_pb2.OK, code_pb2.INVALID_ARGUMENT}
LIMITS = shipped_model.bundle().manifest.limits


def often(gate: int, full: int) -> settings:
    slow = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
    phases = [Phase.explicit, Phase.generate, Phase.shrink]
    return settings(max_examples=scaled(gate, full), deadline=None, suppress_health_check=slow, phases=phases)


@given(method=st.sampled_from(METHODS), raw=ANY)
@often(300, 20_000)
def test_any_request_ends_with_a_documented_code(server: ServerProcess, method: str, raw: bytes):
    answer = server.send(method, raw)
    assert answer.code in CONTRACT, answer
    if answer.code == grpc.StatusCode.OK and method in REPLIES:
        codes = {result.status.code for result in REPLIES[method].FromString(answer.reply).results}
        assert codes <= TEXT_CODES


@given(raw=VALID)
@often(80, 5_000)
def test_a_stream_ends_with_the_code_of_the_unary_call(server: ServerProcess, raw: bytes):
    apart, whole = server.send("TranslateStream", raw), server.send("Translate", raw)
    assert apart.code == whole.code
    assert apart.code in CONTRACT


def test_absurd_paths_and_headers_end_with_a_documented_code(server: ServerProcess):
    request = pb.TranslateRequest(texts=["Tom"]).SerializeToString()
    for path in ("/", "//", "/a", SERVICE, SERVICE + "Translate/", "/x" * 500, SERVICE + "%00", SERVICE + "Übersetze"):
        try:
            assert server.call(path, request).code == grpc.StatusCode.UNIMPLEMENTED, path
        except UnicodeEncodeError:  # the client itself refuses the path
            continue
    for metadata in (
        [("x-request-id", "~" * 200)],
        [("x-bin", b"\xff" * 500)],
        [("grpc-timeout", "1H")],
        [("te", "x")],
    ):
        assert server.send("Translate", request, metadata=metadata).code in CONTRACT
    for seconds in (1e-9, 0.0001):
        codes = CONTRACT | {grpc.StatusCode.DEADLINE_EXCEEDED}
        assert server.send("Translate", request, seconds).code in codes


def test_afterwards_the_server_is_healthy_and_has_logged_no_error(server: ServerProcess):
    assert is_prompt(server.is_healthy)
    assert server.is_healthy()
    assert "internal" not in server.logged().lower().replace("internal_", "")
    assert '"level": "error"' not in server.logged()


async def test_the_seeds_of_coverage_guided_fuzzing_reach_every_method():
    async with echo_engine.running(echo_engine.EchoRunner(shortlist=echo_engine.full_shortlist())) as running:
        codes = {await answer_to(running, data) for data in [b"", *inputs()]}
    assert codes == {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED}


@given(TEXTS, st.booleans())
@often(300, 100_000)
def test_any_text_is_planned_within_the_limits_or_refused(text: str, splits: bool):
    normal = normalise(text)
    try:
        parts = list(parts_of(normal, "text", shipped_model.tokenizer(), LIMITS, splits=splits))
    except TextTooLong:
        return
    assert "".join(part.text for part in parts).replace(" ", "") == normal.replace(" ", "")
    for part in parts:
        assert_planned(part, normal)


def assert_planned(part: Part, normal: str) -> None:
    assert normal[part.begin :].startswith(part.text)
    assert 1 <= len(part.source_ids) <= LIMITS.max_source_tokens
    assert part.source_ids[-1] == EOS
    assert all(0 <= token < shipped_model.tokenizer().source_vocab for token in part.source_ids)


@given(st.lists(st.integers(0, shipped_model.tokenizer().target_vocab - 1), max_size=60))
@often(200, 50_000)
def test_any_tokens_have_a_text(tokens: list[int]):
    assert shipped_model.tokenizer().decode(tokens).encode().decode() == shipped_model.tokenizer().decode(tokens)


@pytest.mark.parametrize(
    "raw", [b"\x0a\x03\xed\xa0\x80", b"\x0a\x02\xc0\x80", b"\x0a\x01\xff", b"\x0a\x04\xf4\x90\x80\x80"]
)
@pytest.mark.parametrize("method", ["Translate", "TranslateStream"])
def test_invalid_utf8_is_an_invalid_argument(server: ServerProcess, method: str, raw: bytes):
    """A lone surrogate, an overlong NUL, an invalid byte, a code point above the last."""
    assert server.send(method, raw).code == grpc.StatusCode.INVALID_ARGUMENT


NAMES = (
    *("texts", "options", "text", "pairs", "q", "source", "target", "format", "alternatives", "api_key", "target_lang"),
    *("source_lang", "tag_handling", "split_sentences", "ignore_tags", "formality", "type", "contents", "mimeType"),
    *("sourceLanguageCode", "targetLanguageCode", "content", "key", "document_key", "filename", "model", "beamSize"),
    *("name", "entries", "entries_format", "dictionaries", "dictionaries[0].entries", "glossary_id", "glossary_ids"),
    *("translation_memory_id", "source_file", "file_name", "content_length", "parameters", "languagePair", "termsPair"),
    *("glossaryConfig", "glossary", "inputConfig", "gcsSource", "inputUri", "sourceTerm", "targetTerm"),
    *("languageCodesSet", "languageCodes", "termsSet", "terms", "languageCode", "text"),
)
GOOGLE = "/v3/projects/p/locations/l/glossaries"
POSTS = (
    *("/v1/translate", "/v1/translate:stream", "/v1/translate:source", "/v1/score", "/v1/detect", "/v2/translate"),
    "/v2/languages",
    *("/translate", "/detect", "/languages", "/suggest", "/v2/document", "/translate_file", "/v2/glossaries"),
    *("/language/translate/v2", "/language/translate/v2/detect", "/v3/projects/p:translateText"),
    *("/v3/projects/p:detectLanguage", "/v2/document/00000000000000000000000000000000"),
    *("/v3/glossaries", "/v3/translation_memories/import", "/v3/translation_memories/a/export"),
    *(GOOGLE, f"{GOOGLE}/a/glossaryEntries"),
)
CALLS = (
    *(("POST", path) for path in POSTS),
    *(("PATCH", "/v3/glossaries/a"), ("PUT", "/v3/glossaries/a/dictionaries"), ("PATCH", f"{GOOGLE}/a")),
    ("PATCH", f"{GOOGLE}/a/glossaryEntries/en.YQ"),
    *(("PATCH", f"{GOOGLE}/a/glossaryEntries/en.de.YQ"), ("DELETE", "/v3/glossaries/a/dictionaries")),
)
TYPES = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain", "")
values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.sampled_from(("en", "de"))
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)),
    max_leaves=8,
)
bodies = st.one_of(
    st.dictionaries(st.sampled_from(NAMES), values, max_size=6).map(lambda found: json.dumps(found).encode()),
    st.binary(max_size=200),
    st.tuples(st.sampled_from(NAMES), st.text(max_size=20)).map(
        lambda pair: f'--x\r\nContent-Disposition: form-data; name="{pair[0]}"\r\n\r\n{pair[1]}\r\n--x--'.encode(
            "utf-8", "replace"
        )
    ),
)
requests = st.lists(st.tuples(st.sampled_from(CALLS), bodies, st.sampled_from(TYPES)), min_size=1, max_size=30)


Sent = list[tuple[tuple[str, str], bytes, str]]


async def check(http: Gateway, sent: Sent) -> None:
    for (method, path), body, kind in sent:
        reply = await http.send(method, path, body, kind)
        assert reply.status < 500 or reply.status == 501, (method, path, body, kind, reply)
        assert b"Traceback" not in reply.body
        if reply.headers["content-type"] == "application/json":
            json.loads(reply.body)


@pytest.mark.timeout(300)
async def test_no_body_is_a_fault_of_the_server(tmp_path: Any):
    drawn: list[Sent] = []

    @settings(max_examples=25, suppress_health_check=list(HealthCheck), database=None)
    @given(requests)
    def draw(found: Sent) -> None:
        drawn.append(found)

    draw()
    async with gateway(http_data_dir=tmp_path / "files", data_dir=tmp_path / "kept") as http:
        pair = {"source_lang": "en", "target_lang": "de", "entries": "a\tb"}
        assert (await http.post("/v3/glossaries", {"name": "a", "dictionaries": [pair]})).status == 201
        for sent in drawn:
            await check(http, sent)
        assert (await http.post("/v1/translate", {"texts": ["Tom"]})).status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/v2/document/" + "a" * 5000,
        "/download_file/..%2f..%2fetc%2fpasswd",
        "/v3/%00:translateText",
        "/v3/glossaries/%ff%00",
        "/v3/glossaries/a/entries?source_lang=%00",
        "/v3/translation_memories/jobs/a/%ff/file",
        f"{GOOGLE}/%00/glossaryEntries/..%2f",
        f"{GOOGLE}/a/glossaryEntries/e.d.%ff",
        "/v1/%ff",
        "//",
        "/?q=%ff",
    ],
)
async def test_no_path_is_a_fault_of_the_server(tmp_path: Any, path: str):
    async with gateway(http_data_dir=tmp_path / "files", data_dir=tmp_path / "kept") as http:
        for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS"):
            assert (await http.send(method, path)).status < 500
