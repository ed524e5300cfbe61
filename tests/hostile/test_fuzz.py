"""Random and damaged requests: every call ends in time with a documented code, and the server stays healthy."""

from __future__ import annotations

import grpc
import pytest
from google.rpc import code_pb2
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from lingon.errors import TextTooLong
from lingon.serving.translation.planning.input_processor import Part, parts_of
from lingon.text import EOS, normalise
from lingon.translation.v1 import translation_pb2 as pb
from tests.support import echo_engine, shipped_model
from tests.support.fuzz_requests import answer_to, inputs
from tests.support.request_strategies import ANY, METHODS, TEXTS, VALID
from tests.support.scale import scaled
from tests.support.server_process import CONTRACT, SERVICE, ServerProcess, is_prompt

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
