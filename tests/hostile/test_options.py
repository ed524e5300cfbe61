"""Texts at the length limits: one token, exactly the limit, one more, a word of a megabyte, empty texts.

Every text is translated whole or refused with a documented code; none is cut silently.
"""

from __future__ import annotations

import string
from typing import Any

import grpc
import pytest
from google.rpc import code_pb2, error_details_pb2

from lingon.text import normalise
from lingon.translation.v1 import translation_pb2 as pb
from tests.support import echo_engine, shipped_model
from tests.support.echo_engine import LIMITS, EchoRunner, full_shortlist, running, tokenizer, warning_codes
from tests.support.processes import MEBIBYTE, ServerProcess, is_prompt

SPLIT = pb.DecodingOptions(long_text=pb.LONG_TEXT_POLICY_SPLIT, beam_size=1)
MOST = shipped_model.bundle().manifest.limits.max_source_tokens
MOST_TARGET = shipped_model.bundle().manifest.limits.max_target_tokens
NOTHING = [
    "",
    " ",
    " " * 4000,
    "\t\r\n\x0b\x0c",
    "\u00a0\u2003\u3000\u2028",
    "\u200b\u2060\ufeff\u00ad",
    "\x00\x01\x7f",
]


def words(tokens: int) -> str:
    """A text of this many tokens, including the end token."""
    text = " ".join(["house"] * (tokens - 1))
    assert len(shipped_model.tokenizer().encode_source(normalise(text))) == tokens
    return text


def refusals(reply: pb.TranslateResponse | pb.ScoreResponse) -> list[tuple[int, str]]:
    """Code and reason of every result."""
    found = []
    for result in reply.results:
        info = error_details_pb2.ErrorInfo()
        if result.status.details:
            assert result.status.details[0].Unpack(info)
        found.append((result.status.code, info.reason))
    return found


EMPTY_SOURCE = pb.WARNING_CODE_EMPTY_SOURCE
OK = (code_pb2.OK, "")
TOO_LONG = (code_pb2.INVALID_ARGUMENT, "TEXT_TOO_LONG")


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_source_at_the_limit_is_translated_and_one_token_more_is_refused(server: ServerProcess, beam_size: int):
    texts = [words(2), words(MOST - 1), words(MOST), words(MOST + 1)]
    reply = server.translate(*texts, options=pb.DecodingOptions(beam_size=beam_size))
    assert refusals(reply) == [OK, OK, OK, TOO_LONG]
    assert [result.usage.source_tokens for result in reply.results] == [2, MOST - 1, MOST, 0]
    assert not [result for result in reply.results if pb.WARNING_CODE_SPLIT in [each.code for each in result.warnings]]
    assert [len(result.hypotheses) for result in reply.results] == [1, 1, 1, 0]


def test_one_token_more_is_split_with_a_warning_if_requested(server: ServerProcess):
    reply = server.translate(words(MOST), words(MOST + 1), words(5 * MOST), options=SPLIT)
    assert refusals(reply) == [OK] * 3
    split = [pb.WARNING_CODE_SPLIT in [each.code for each in result.warnings] for result in reply.results]
    assert split == [False, True, True]
    for result, tokens in zip(reply.results, (MOST, MOST + 1, 5 * MOST), strict=True):
        parts = [each.message for each in result.warnings if each.code == pb.WARNING_CODE_SPLIT] or ["in 1 part"]
        assert result.usage.source_tokens == tokens - 1 + int(parts[0].split()[-2])


def test_a_word_of_a_megabyte_is_refused_promptly(server: ServerProcess):
    def ask() -> None:
        reply = server.translate("x" * MEBIBYTE, "Tom", "ü" * (MEBIBYTE // 2))
        assert refusals(reply) == [TOO_LONG, OK, TOO_LONG]

    assert is_prompt(ask)


@pytest.mark.parametrize("word", ["x" * MEBIBYTE, "ü" * (MEBIBYTE // 2)])
def test_a_word_of_a_megabyte_that_may_be_split_exceeds_a_request_promptly(server: ServerProcess, word: str):
    request = pb.TranslateRequest(texts=[word], options=SPLIT).SerializeToString()

    def ask() -> None:
        answer = server.send("Translate", request)
        assert "a request may have 65536 at most" in answer.message

    assert is_prompt(ask)


def test_a_megabyte_that_the_model_cannot_read_stays_as_it_is_promptly(server: ServerProcess):
    word = "日" * (MEBIBYTE // 4)

    def ask() -> None:
        (result,) = server.translate(word, options=SPLIT).results
        assert result.hypotheses[0].text == word

    assert is_prompt(ask)


@pytest.mark.parametrize("options", [pb.DecodingOptions(), SPLIT], ids=["refuse", "split"])
def test_a_text_of_spaces_of_any_length_is_its_own_translation(server: ServerProcess, options: pb.DecodingOptions):
    reply = server.translate(*NOTHING, options=options)
    assert [result.hypotheses[0].text for result in reply.results] == NOTHING
    assert {tuple(each.code for each in result.warnings) for result in reply.results} == {(EMPTY_SOURCE,)}
    (long,) = server.translate(" " * MEBIBYTE, options=options).results
    assert long.hypotheses[0].text == " " * MEBIBYTE


def test_pairs_to_score_have_length_limits_too(server: ServerProcess):
    edges = [
        (words(MOST), words(MOST_TARGET)),
        (words(MOST + 1), "Haus"),
        ("house", words(MOST_TARGET + 1)),
        ("", "Haus"),
        ("house", " \u200b "),
        ("house", "x" * MEBIBYTE),
    ]
    pairs = [pb.ScorePair(source=source, target=target) for source, target in edges]
    answer = server.send("Score", pb.ScoreRequest(pairs=pairs).SerializeToString())
    reply = pb.ScoreResponse.FromString(answer.reply)
    assert refusals(reply) == [OK, TOO_LONG, TOO_LONG, OK, OK, TOO_LONG]
    assert len(reply.results[0].tokens) == MOST_TARGET


def test_a_prefix_longer_than_the_output_limit_is_refused(server: ServerProcess):
    bound = shipped_model.bundle().manifest.limits.max_output(2)
    fits, full, long = words(bound), words(bound + 1), "x" * MEBIBYTE
    reply = server.translate("house", "house", "house", target_prefixes=[fits, full, long])
    assert [code for code, _ in refusals(reply)] == [code_pb2.OK, *[code_pb2.INVALID_ARGUMENT] * 2]
    assert reply.results[0].hypotheses[0].text.startswith(fits)


async def test_a_text_of_any_length_is_translated_whole_or_refused():
    most = echo_engine.LIMITS.max_source_tokens
    texts = [" ".join(["Tom"] * count) + end for count in range(1, 2 * most) for end in ("", ".")]
    lengths = [len(echo_engine.tokenizer().encode_source(text)) for text in texts]
    assert {most, most + 1} <= set(lengths)
    async with echo_engine.running(max_texts=len(texts)) as server:
        refused = await server.translate(*texts)
        split = await server.translate(*texts, options=SPLIT)
    whole = [result.hypotheses[0].text if result.hypotheses else None for result in refused.results]
    assert whole == [text if length <= most else None for text, length in zip(texts, lengths, strict=True)]
    assert {code for code, _ in refusals(refused)} == {code_pb2.OK, code_pb2.INVALID_ARGUMENT}
    assert [result.hypotheses[0].text for result in split.results] == texts


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


TEXTS = ["Tom", "The old man and the sea", "I would like to know what time it is"]
LIMITED_WAYS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "beams": {"beam_size": 4, "num_hypotheses": 4},
    "drawn": {"num_hypotheses": 2, "sampling": pb.SamplingOptions(top_k=1)},
    "shortlist": {"shortlist": True},
    "shortlist, beams": {"shortlist": True, "beam_size": 4},
}


def bound(text: str, asked: int) -> int:
    """The length limit: the smallest of the requested one, factor * source + extra, and the limit of the model."""
    source = len(tokenizer().encode_source(text))
    return min(asked, int(LIMITS.output_factor * source) + LIMITS.output_extra, LIMITS.max_target_tokens)


@pytest.mark.parametrize("way", LIMITED_WAYS)
@pytest.mark.parametrize("asked", [1, 5, 10_000])
async def test_an_endless_translation_stops_at_its_limit_with_a_warning(way: str, asked: int):
    runner = EchoRunner(endless=True, shortlist=full_shortlist())
    options = pb.DecodingOptions(return_tokens=True, max_output_tokens=asked, **LIMITED_WAYS[way])
    whole = pb.TextOptions(guard=pb.GUARD_POLICY_OFF)
    async with running(runner) as server:
        reply = await server.translate(*TEXTS, options=options, text=whole)
        cut = server.metric("lingon_truncated_total", model="en-de", version="1")
    assert runner.steps <= max(bound(text, asked) for text in TEXTS) * len(TEXTS)
    for text, result in zip(TEXTS, reply.results, strict=True):
        assert warning_codes(result) == [pb.WARNING_CODE_LENGTH]
        best = result.hypotheses[0]
        assert best.finish_reason == pb.FINISH_REASON_LENGTH
        assert len(best.tokens) == bound(text, asked)
        assert result.usage.target_tokens <= len(result.hypotheses) * bound(text, asked)
    assert cut == len(TEXTS)


async def test_every_part_of_a_split_text_has_its_own_limit():
    long = " ".join(TEXTS * 12) + "."
    options = pb.DecodingOptions(long_text=pb.LONG_TEXT_POLICY_SPLIT, return_tokens=True)
    async with running(EchoRunner(endless=True)) as server:
        (result,) = (await server.translate(long, options=options)).results
        *_, done = await server.stream(long, options=options)
    codes = [pb.WARNING_CODE_SPLIT, pb.WARNING_CODE_LENGTH]
    assert warning_codes(result) == codes
    assert warning_codes(done.done.result) == codes
    parts = int(result.warnings[0].message.split()[-2])
    assert parts < len(result.hypotheses[0].tokens) <= parts * LIMITS.max_target_tokens
