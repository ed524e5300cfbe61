"""Texts of several sentences: each is translated alone, and what separates them is kept."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.rpc import code_pb2

from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import RunningServer, warning_codes

TEXT = " \tTom lives in Boston. The  old man!\r\n\r\n\u00a0Where is the station?\u200b\n- the sea\v"
SENTENCES = ["Tom lives in Boston.", "The  old man!", "Where is the station?", "the sea"]
ECHO = TEXT.replace("  old", " old")
ALL = pb.TextOptions(return_sentences=True)
OFF, NONEWLINES = (
    pb.TextOptions(split_sentences=value, return_sentences=True)
    for value in (pb.SENTENCE_SPLITTING_OFF, pb.SENTENCE_SPLITTING_NONEWLINES)
)
OPTIONS = pb.DecodingOptions


async def result_of(server: RunningServer, source: str = TEXT, **fields: Any) -> pb.TextResult:
    (result,) = (await server.translate(source, **fields)).results
    return result


def cut(text: str, span: pb.Span) -> str:
    return text[span.begin : span.end]


async def test_sentences_are_translated_alone_and_all_that_separates_them_is_kept(server: RunningServer):
    result, *alone = (await server.translate(TEXT, *SENTENCES, text=ALL)).results
    assert result.hypotheses[0].text == ECHO
    assert [cut(TEXT, each.source) for each in result.sentences] == SENTENCES
    assert [cut(ECHO, each.target) for each in result.sentences] == [each.hypotheses[0].text for each in alone]
    assert [each.score for each in result.sentences] == [each.hypotheses[0].score for each in alone]
    assert result.hypotheses[0].score == pytest.approx(sum(each.score for each in result.sentences))
    assert result.usage.source_tokens == sum(each.usage.source_tokens for each in alone)
    assert not warning_codes(result)


async def test_sentences_are_returned_only_if_they_are_asked_for(server: RunningServer):
    assert not (await result_of(server)).sentences


@pytest.mark.parametrize(
    ("text", "options", "sentences"),
    [
        (OFF, OPTIONS(), ["\n".join(["Tom lives. The old", "man. The sea."])]),
        (NONEWLINES, OPTIONS(), ["Tom lives.", "The old\nman.", "The sea."]),
        (ALL, OPTIONS(), ["Tom lives.", "The old", "man.", "The sea."]),
        (ALL, OPTIONS(forced_words=["Tom"], beam_size=2), ["Tom lives. The old\nman. The sea."]),
    ],
    ids=["off", "wrapped", "default", "forced words"],
)
async def test_the_request_chooses_where_its_texts_are_split(
    server: RunningServer, text: pb.TextOptions, options: pb.DecodingOptions, sentences: list[str]
):
    source = " Tom lives. The old\nman. The sea. "
    result = await result_of(server, source, text=text, options=options)
    assert [cut(source, each.source) for each in result.sentences] == sentences


async def test_forced_words_refuse_a_text_that_is_to_be_split(server: RunningServer):
    text = pb.TextOptions(split_sentences=pb.SENTENCE_SPLITTING_ON)
    result = await result_of(server, text=text, options=OPTIONS(forced_words=["Tom"]))
    assert result.status.code == code_pb2.INVALID_ARGUMENT
    assert "would be translated in 4 parts; options.forced_words" in result.status.message


async def test_an_unknown_way_to_split_is_refused(server: RunningServer):
    text = pb.TextOptions(split_sentences=9)  # type: ignore[arg-type]
    for call in (server.translate(TEXT, text=text), server.stream(TEXT, text=text)):
        with pytest.raises(grpc.aio.AioRpcError, match=r"text\.split_sentences has no value 9"):
            await call


@pytest.mark.parametrize("text", [ALL, OFF, NONEWLINES], ids=["default", "off", "wrapped"])
async def test_the_deltas_of_a_text_are_its_translation_with_all_white_space(
    server: RunningServer, text: pb.TextOptions
):
    options = OPTIONS(beam_size=1, long_text=pb.LONG_TEXT_POLICY_SPLIT)
    events = await server.stream(TEXT, "Tom. " * 20, options=options, text=text)
    done = {event.done.text_index: event.done.result for event in events if event.HasField("done")}
    for index in (0, 1):
        deltas = [event.delta.text for event in events if event.HasField("delta") and event.delta.text_index == index]
        assert "".join(deltas) == done[index].hypotheses[0].text


async def test_a_prefix_begins_the_translation_of_the_first_sentence(server: RunningServer):
    plain, begun = [await result_of(server, target_prefixes=[prefix]) for prefix in ("", "Nobody")]
    assert plain.hypotheses[0].text == ECHO
    assert begun.hypotheses[0].text.startswith(" \tNobody")
    assert begun.hypotheses[0].text.endswith(ECHO[ECHO.index("The old man") :])


async def test_each_hypothesis_has_all_sentences_and_the_best_one_comes_first(server: RunningServer):
    result = await result_of(server, options=OPTIONS(beam_size=4, num_hypotheses=3), text=ALL)
    alone = (await server.translate(*SENTENCES, options=OPTIONS(beam_size=4, num_hypotheses=3))).results
    for place, hypothesis in enumerate(result.hypotheses):
        assert hypothesis.score == pytest.approx(sum(each.hypotheses[place].score for each in alone))
        assert all(each.hypotheses[place].text in hypothesis.text for each in alone)
    assert [each.score for each in result.hypotheses] == sorted((e.score for e in result.hypotheses), reverse=True)


async def test_a_sentence_that_the_model_cannot_read_whole_is_refused_or_translated_in_parts(server: RunningServer):
    text = f"Tom. {'the sea ' * 40}end. Boston."
    refused = await result_of(server, text)
    assert refused.status.code == code_pb2.INVALID_ARGUMENT
    assert "has a sentence of" in refused.status.message
    split = await result_of(server, text, options=OPTIONS(long_text=pb.LONG_TEXT_POLICY_SPLIT), text=ALL)
    assert split.hypotheses[0].text == text
    assert len(split.sentences) == 3
    told = [each.message[:55] for each in split.warnings if each.code == pb.WARNING_CODE_SPLIT]
    assert told == ["1 of 3 sentences are longer than the model reads: trans"]


async def test_a_request_of_more_sentences_than_the_queue_takes_is_refused_as_a_whole(server: RunningServer):
    with pytest.raises(grpc.aio.AioRpcError, match="1025 sentences or more; a request may have 1024 at most"):
        await server.translate("Tom", "Tom lives. " * 20_000)
