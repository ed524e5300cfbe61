"""Texts at the length limits: one token, exactly the limit, one more, a word of a megabyte, empty texts.

Every text is translated whole or refused with a documented code; none is cut silently.
"""

from __future__ import annotations

import pytest
from google.rpc import code_pb2, error_details_pb2

from lingon.text import normalise
from lingon.translation.v1 import translation_pb2 as pb
from tests.support import echo_engine, shipped_model
from tests.support.server_process import MEBIBYTE, ServerProcess, is_prompt

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
