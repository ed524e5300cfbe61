"""Strings that are kept as they are, and sentences in capitals, as the service translates them."""

from __future__ import annotations

from functools import cache
from typing import Any

import grpc
import pytest

from lingon.bundle.manifest import TextData
from lingon.text import Tokenizer
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import CORPUS, EchoRunner, RunningServer, running, running_with, tokenizer
from tests.support.tokenizers import train_sentencepiece

STRINGS = ["https://example.com/a?b=1&c=%20", "me@example.com", "{name}", "%(count)d", '<x id="1"/>', "🙂", "777123"]
OPTIONS, TEXT = pb.DecodingOptions, pb.TextOptions
BRACE = tokenizer().encode_source("{")[-2]


async def result_of(server: RunningServer, source: str, **fields: Any) -> pb.TextResult:
    (result,) = (await server.translate(source, **fields)).results
    return result


@pytest.mark.parametrize("string", STRINGS)
@pytest.mark.parametrize("source", ["{} Tom lives.", "Tom {} lives in Boston.", "The sea: {}", "{}", "The {} sea, {}."])
async def test_a_string_that_is_kept_is_in_the_translation_as_often_as_in_the_text(
    server: RunningServer, source: str, string: str
):
    text = source.replace("{}", string)
    result = await result_of(server, text, options=OPTIONS(beam_size=2))
    assert result.hypotheses[0].text.count(string) == text.count(string)
    assert pb.WARNING_CODE_NUMBERS not in [each.code for each in result.warnings]


@pytest.mark.parametrize("invisible", ["\u200b", "\u00ad", "\ufeff", " \u2060 "])
@pytest.mark.parametrize("source", ["{{name}}{}{{value}}", "Tom lives.\n{{a}}{}{{b}}\nThe sea."])
async def test_invisible_characters_between_strings_that_are_kept_need_no_translation(
    server: RunningServer, source: str, invisible: str
):
    text = source.format(invisible)
    result = await result_of(server, text, options=OPTIONS(beam_size=2))
    assert not result.status.code, result.status.message
    assert result.hypotheses[0].text == text
    assert not result.warnings


@pytest.mark.parametrize(
    "source", ["I would like to know what time it is {} Tom.", "Tom {} I would like to know what time."]
)
async def test_a_translation_is_cut_if_any_of_the_parts_that_it_is_made_of_was_cut(server: RunningServer, source: str):
    result = await result_of(server, source.replace("{}", "{name}"), options=OPTIONS(max_output_tokens=5))
    assert result.hypotheses[0].finish_reason == pb.FINISH_REASON_LENGTH
    assert pb.WARNING_CODE_LENGTH in [each.code for each in result.warnings]


async def test_a_translation_is_not_cut_if_only_one_that_was_not_used_was_cut():
    """Boston, the first word for the string that is kept, leads the model astray; Germany does not."""
    boston, *_ = tokenizer().encode_source("Boston")
    runner = EchoRunner(says=lambda source: [boston + 1] * 100 if boston in source else source)
    async with running(runner, bundles=({"text": TextData(("Boston", "Germany"))},)) as server:
        result = await result_of(server, "The old man has {name}.", options=OPTIONS(beam_size=2))
        assert runner.encoded > 2
    assert result.hypotheses[0].text == "The old man has {name}."
    assert result.hypotheses[0].finish_reason == pb.FINISH_REASON_END
    assert not [each.code for each in result.warnings if each.code == pb.WARNING_CODE_LENGTH]


async def test_the_model_does_not_read_what_is_kept():
    text = "Tom {sea} Boston."
    async with running(EchoRunner(faulty=BRACE)) as server:
        plain, kept = [await result_of(server, text, text=TEXT(protect=keep)) for keep in (False, True)]
    assert plain.status.code
    assert kept.hypotheses[0].text == text
    assert kept.warnings[0].code == pb.WARNING_CODE_MARKUP_SPLIT


async def test_a_sentence_is_not_split_inside_a_string_that_is_kept(server: RunningServer):
    text = "Tom keeps A. B. Smith. The sea."
    result = await result_of(server, text, text=TEXT(keep=["A. B. Smith. The"], return_sentences=True))
    assert [text[each.source.begin : each.source.end] for each in result.sentences] == [text]
    assert result.hypotheses[0].text == text


async def test_capitals_are_read_in_lower_case_and_raised_again():
    text, whole = "IT IS IN {name}.", TEXT(lower_capitals=False, protect=False)
    async with running(EchoRunner(faulty="is")) as server:
        assert (await result_of(server, text)).status.code
        assert (await result_of(server, text, text=whole)).hypotheses[0].text == text
    async with running() as server:
        assert (await result_of(server, text)).hypotheses[0].text == text


@pytest.mark.parametrize("options", [OPTIONS(beam_size=1), OPTIONS(beam_size=2, num_hypotheses=2)], ids=str)
async def test_other_sentences_of_the_text_are_translated_as_they_are_alone(
    server: RunningServer, options: pb.DecodingOptions
):
    text = "Tom lives. Read {name} now. The sea."
    result, *alone = (await server.translate(text, "Tom lives.", "The sea.", options=options)).results
    for place, hypothesis in enumerate(result.hypotheses):
        for each in alone:
            assert each.hypotheses[place].text in hypothesis.text
        assert "{name}" in hypothesis.text
    assert len(result.hypotheses) == options.num_hypotheses or 1


async def test_deltas_are_the_translation(server: RunningServer):
    texts = ["Tom lives. Read {name} now.\n THE OLD MAN. The sea.", "https://example.com", "Tom"]
    events = await server.stream(*texts, options=OPTIONS(beam_size=1))
    done = {event.done.text_index: event.done.result for event in events if event.HasField("done")}
    for index in range(len(texts)):
        deltas = [event.delta.text for event in events if event.HasField("delta") and event.delta.text_index == index]
        assert "".join(deltas) == done[index].hypotheses[0].text


async def test_each_sample_has_the_string(server: RunningServer):
    options = OPTIONS(beam_size=1, num_hypotheses=3, sampling=pb.SamplingOptions(seed=1))
    result = await result_of(server, "Tom {name} lives. The sea.", options=options)
    assert [each.text.count("{name}") for each in result.hypotheses] == [1, 1, 1]


async def test_links_and_tokens_are_those_of_the_whole_translation(server: RunningServer):
    options = OPTIONS(return_alignment=True, return_tokens=True)
    text = "Tom lives. The Boston sea."
    result = await result_of(server, text, options=options, text=TEXT(keep=["Boston"]))
    (hypothesis,) = result.hypotheses
    assert result.normalised_text == text
    assert hypothesis.alignment
    assert all(link.target.end <= len(hypothesis.text) for link in hypothesis.alignment)
    assert "".join(token.piece for token in hypothesis.tokens).replace("\u2581", " ").strip() == hypothesis.text


async def test_a_prefix_begins_its_sentence_without_protection(server: RunningServer):
    result = await result_of(server, "Tom {name}. The {name} sea.", target_prefixes=["Nobody"])
    assert result.hypotheses[0].text.startswith("Nobody")
    assert result.hypotheses[0].text.endswith("The {name} sea.")


@pytest.mark.parametrize(
    ("text", "options", "told"),
    [
        (TEXT(keep=[" "]), OPTIONS(), r"text.keep\[0\] must have 1 to 256 characters and not only white space, got 1"),
        (TEXT(keep=["a" * 257]), OPTIONS(), r"text.keep\[0\] must have 1 to 256 characters"),
        (TEXT(keep=["a"] * 257), OPTIONS(), "text.keep must have at most 256 strings, got 257"),
        (TEXT(keep=["a"]), OPTIONS(forced_words=["b"]), "text.keep cannot be used with options.forced_words"),
    ],
)
async def test_what_cannot_be_kept_is_refused(
    server: RunningServer, text: pb.TextOptions, options: pb.DecodingOptions, told: str
):
    with pytest.raises(grpc.aio.AioRpcError, match=told):
        await server.translate("Tom", text=text, options=options)


async def test_a_request_is_bounded_by_its_kept_strings():
    async with running(max_queue_texts=10) as server:
        with pytest.raises(grpc.aio.AioRpcError, match="11 sentences or more; a request may have 10 at most"):
            await server.translate("Tom {a} lives {b}. " * 4)


async def test_the_guard_judges_what_is_not_kept(server: RunningServer):
    result = await result_of(server, "https://example.com/4711 {a} {a} {a} {a} {a} {a} {a} {a}")
    assert not result.warnings


@cache
def with_figures() -> bytes:
    """Return a tokenizer that has figures, but no number of two."""
    lines, figures = CORPUS.splitlines(), "0123456789"
    return train_sentencepiece(lines, 360, hard_vocab_limit=False, byte_fallback=True, required_chars=figures)


FIGURES = [Tokenizer(with_figures()).encode_source(figure)[-2] for figure in "0123456789"]


def without_five(source: list[int]) -> list[int]:
    """Return what a model writes that never writes a 5 alone."""
    before = [0, *source]
    return [token for last, token in zip(before, source, strict=False) if token != FIGURES[5] or last in FIGURES]


@pytest.mark.parametrize("options", [OPTIONS(beam_size=1), OPTIONS(beam_size=2)], ids=str)
@pytest.mark.parametrize("text", ["Tom has 5 boats.", "The sea. The 5 old men and 7 boats.\nTom lives."])
async def test_a_small_number_that_the_model_loses_is_kept(text: str, options: pb.DecodingOptions):
    async with running_with(with_figures(), EchoRunner(says=without_five)) as server:
        result = await result_of(server, text, options=options)
        lost = await result_of(server, text, options=options, text=TEXT(protect=False))
    assert result.hypotheses[0].text == text
    assert "5" not in lost.hypotheses[0].text
    assert pb.WARNING_CODE_NUMBERS not in [each.code for each in result.warnings]


@pytest.mark.parametrize(
    "fields",
    [
        {"options": OPTIONS(beam_size=2, num_hypotheses=2)},
        {"options": OPTIONS(forced_words=["sea"])},
        {"options": OPTIONS(num_hypotheses=2, beam_size=1, sampling=pb.SamplingOptions(seed=1))},
        {"target_prefixes": ["The"]},
    ],
    ids=str,
)
async def test_a_translation_that_was_asked_for_in_some_way_is_not_replaced(fields: dict[str, Any]):
    async with running_with(with_figures(), EchoRunner(says=without_five)) as server:
        result = await result_of(server, "The 5 old men.", **fields)
    assert len(result.hypotheses) == max(fields.get("options", OPTIONS()).num_hypotheses, 1)
    assert all("5" not in hypothesis.text for hypothesis in result.hypotheses)


async def test_a_sentence_with_a_small_number_that_the_model_keeps_is_decoded_once():
    found = []
    for protect in (False, True):
        runner = EchoRunner()
        async with running_with(with_figures(), runner) as server:
            options = OPTIONS(beam_size=1, return_tokens=True)
            result = await result_of(server, "Tom has 5 boats.", options=options, text=TEXT(protect=protect))
        found.append((runner.encoded, result.hypotheses[0]))
    assert found[0] == found[1]


@pytest.mark.parametrize("text", ["Tom has 1,299.99 boats.", "The −20 °C sea.", "It was 12:30.", "A 3.5 and 250 sea."])
async def test_numbers_with_more_than_figures_are_kept(text: str):
    runner = EchoRunner(says=lambda source: [token for token in source if token not in FIGURES])
    async with running_with(with_figures(), runner) as server:
        result = await result_of(server, text)
    for number in text.replace(".", " ", text.endswith(".")).split():
        assert not any(map(str.isdigit, number)) or number in result.hypotheses[0].text


@pytest.mark.parametrize(
    "text", ["Tom has a **red sea** now.", "Tom, [the sea](https://example.org/a) now.", r"The \"old sea\" lives."]
)
async def test_marks_are_around_their_words(server: RunningServer, text: str):
    result = await result_of(server, text, options=OPTIONS(beam_size=1))
    assert result.hypotheses[0].text == text


@pytest.mark.parametrize("format_", [pb.TEXT_FORMAT_PLAIN, pb.TEXT_FORMAT_HTML])
async def test_numbers_follow_the_custom_of_the_target_language_on_request(
    server: RunningServer, format_: pb.TextFormat.ValueType
):
    text = "Tom has 1,299.99 boats. The 12.5 old men."
    for localise, expected in ((False, text), (True, "Tom has 1.299,99 boats. The 12,5 old men.")):
        asked = TEXT(localise_numbers=localise, format=format_)
        result = await result_of(server, text, text=asked, options=OPTIONS(beam_size=1))
        assert result.hypotheses[0].text == expected


@pytest.mark.parametrize(
    ("text", "options", "told"),
    [
        (TEXT(protect=False), OPTIONS(), "text.localise_numbers cannot be used with text.protect set to false"),
        (TEXT(), OPTIONS(forced_words=["sea"]), "text.localise_numbers cannot be used with options.forced_words"),
        (
            TEXT(format=pb.TEXT_FORMAT_PIECES),
            OPTIONS(),
            "text.localise_numbers must be unset or off with texts in pieces",
        ),
    ],
)
async def test_numbers_that_are_not_kept_cannot_follow_a_custom(
    server: RunningServer, text: pb.TextOptions, options: pb.DecodingOptions, told: str
):
    text.localise_numbers = True
    with pytest.raises(grpc.aio.AioRpcError, match=told):
        await server.translate("Tom", text=text, options=options)
