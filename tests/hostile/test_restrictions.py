"""Restrictions at and beyond their bounds: each request is refused in one line or answered within the rules."""

from __future__ import annotations

import string
from typing import Any

import grpc
import pytest
from google.rpc import code_pb2

from lingon.translation.v1 import translation_pb2 as pb
from tests.support.server_process import MEBIBYTE, ServerProcess, is_prompt

TEXT = "The old man and the sea."
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"beam_size": 1},
    "beam": {"beam_size": 8, "num_hypotheses": 8},
    "sampling": {"num_hypotheses": 8, "sampling": pb.SamplingOptions(temperature=10.0, top_p=0.99)},
}
TOO_MUCH: dict[str, dict[str, Any]] = {
    "options.forbidden_words must have 64 words at most, got 1000": {"forbidden_words": ["word"] * 1000},
    "options.forbidden_words[0] must have 1 to 64 characters, got 2097152": {"forbidden_words": ["a" * 2 * MEBIBYTE]},
    "options.forced_words must have 8 words at most, got 200000": {"forced_words": ["a"] * 200_000},
    "options.no_repeat_ngram_size must be 0 to 32, got 4294967295": {"no_repeat_ngram_size": 2**32 - 1},
}


@pytest.mark.parametrize("message", TOO_MUCH)
def test_more_than_a_request_may_have_is_refused_in_one_line(server: ServerProcess, message: str):
    request = pb.TranslateRequest(texts=[TEXT], options=pb.DecodingOptions(**TOO_MUCH[message]))
    answer = server.send("Translate", request.SerializeToString(), 60)
    assert (answer.code, answer.message) == (grpc.StatusCode.INVALID_ARGUMENT, message)


@pytest.mark.parametrize("way", WAYS)
def test_a_translation_that_may_have_no_letter_has_none(server: ServerProcess, way: str):
    letters = [*string.ascii_letters, "ä", "ö", "ü", "ß"]
    reply = server.translate(
        TEXT, options=pb.DecodingOptions(**WAYS[way], forbidden_words=letters, min_output_tokens=9)
    )
    (result,) = reply.results
    assert result.status.code == code_pb2.OK
    assert result.hypotheses
    for hypothesis in result.hypotheses:
        assert not set(hypothesis.text) & set("".join(letters))
        assert "\ufffd" not in hypothesis.text


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("text", ["Hello.", "Tom is here."])
def test_a_forced_word_whose_bytes_would_repeat_ends_no_translation_within_a_character(
    server: ServerProcess, way: str, text: str
):
    for word in ("😀😀", "♥♥", "𝔸𝔸𝔸"):
        options = pb.DecodingOptions(**WAYS[way], no_repeat_ngram_size=3, forced_words=[word])
        (result,) = server.translate(text, options=options).results
        assert all("\ufffd" not in hypothesis.text for hypothesis in result.hypotheses)


@pytest.mark.parametrize("way", WAYS)
def test_all_restrictions_at_their_bounds_hold(server: ServerProcess, way: str):
    forbidden = [f"{first}{second}" for first in "aeiounrst" for second in "aeiounr"][:56] + ["日" * 64] * 8
    forced = ["Xylofon", "日本", "Quecke", "der Wal", "13,5 %", "Ω", "Y-", "q."]
    options = pb.DecodingOptions(
        **WAYS[way],
        forbidden_words=[word for word in forbidden if not any(word in other for other in forced)],
        forced_words=forced,
        min_output_tokens=20,
        no_repeat_ngram_size=1,
        repetition_penalty=10.0,
    )
    (result,) = server.translate(TEXT, options=options).results
    assert result.status.code == code_pb2.OK
    for hypothesis in result.hypotheses:
        assert not [word for word in options.forbidden_words if word in hypothesis.text]
        assert list(hypothesis.missing_words) == [word for word in forced if word not in hypothesis.text]
        assert "\ufffd" not in hypothesis.text
    assert is_prompt(lambda: server.translate("Tom."))
