"""The pure steps between text and engine: cutting, planning, growing, spans, options, choice of model."""

from __future__ import annotations

import asyncio
import re
import unicodedata
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingon.bundle import Defaults
from lingon.errors import EmptyText, InvalidRequest, TextTooLong, UnknownModel
from lingon.serving.engine.engine import Engine
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.models.catalog import Catalog, Entry
from lingon.serving.models.languages import canonical, distance
from lingon.serving.translation.detokenizer import IncrementalDetokenizer, PartDetokenizer, join
from lingon.serving.translation.input_processor import blocks, parts_of
from lingon.serving.translation.options import resolve
from lingon.serving.translation.output_processor import generated_spans, source_spans, text_of
from lingon.serving.translation.sentences import WordTooLong, sentences, split
from lingon.serving.translation.translator import Translator
from lingon.text import normalise
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import LIMITS, EchoRunner, bundle, manifest, tokenizer

PROSE = st.text(alphabet="abcDE .,;!?…。\"'“”()0123", max_size=120).map(normalise)
ANYTHING = st.text(st.characters(exclude_characters="▁", exclude_categories=("Cs",)), max_size=60)  # ▁ is a space
TOKENS = st.lists(st.integers(4, tokenizer().target_vocab - 1), max_size=40)


def texts(text: str) -> list[str]:
    return [text[begin:end] for begin, end in sentences(text)]


@given(PROSE, st.integers(1, 12))
def test_parts_fit_and_hold_every_character_but_the_spaces_between(text: str, longest: int):
    def fits(part: str) -> bool:
        return len(part) <= longest

    try:
        spans = list(split(text, fits))
    except WordTooLong:
        words = re.sub("""(。+["'”)]*)""", r"\1 ", text).split()
        assert max(map(len, words)) > longest
        return
    assert all(fits(text[begin:end]) and text[begin:end] for begin, end in spans)
    assert "".join(text[begin:end] for begin, end in spans).replace(" ", "") == text.replace(" ", "")
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It rains. We stay.", ["It rains.", "We stay."]),
        ("Dr. Smith met J. F. Kennedy. He left.", ["Dr. Smith met J. F. Kennedy.", "He left."]),
        ('He said: "Go!" Then he went.', ['He said: "Go!"', "Then he went."]),
        ("On the 3. October we met. Fine.", ["On the 3. October we met.", "Fine."]),
        ("It was 1990. Then it ended.", ["It was 1990.", "Then it ended."]),
        ("Really?! Yes… maybe. No.", ["Really?!", "Yes… maybe.", "No."]),
        ("今日は。明日は。", ["今日は。", "明日は。"]),
        ("e.g. This one", ["e.g. This one"]),
        ("One sentence", ["One sentence"]),
    ],
)
def test_sentences_end_where_no_doubt_is(text: str, expected: list[str]):
    assert texts(text) == expected


def test_a_sentence_that_is_too_long_is_cut_at_a_clause_near_its_middle():
    text = "I came to see the sea, and I saw the sun"
    assert [text[begin:end] for begin, end in split(text, lambda part: len(part) < 30)] == [
        "I came to see the sea,",
        "and I saw the sun",
    ]


@given(st.text(alphabet="ab\u0301\u0323é \n\u200b\u3000", max_size=80), st.integers(1, 10))
def test_normalising_in_blocks_is_normalising(text: str, size: int):
    assert " ".join(filter(None, map(normalise, blocks(text, size)))) == normalise(text)


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        ("", EmptyText, "texts.0. is empty"),
        ("Tom " * 40, TextTooLong, r"texts.0. has \d+ tokens, the model reads 32 at most; .*LONG_TEXT_POLICY_SPLIT"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(text: str, error: type[Exception], match: str):
    with pytest.raises(error, match=match):
        list(parts_of(normalise(text), "texts[0]", tokenizer(), LIMITS, splits=False))


def test_a_word_that_is_too_long_is_refused_even_where_text_is_split():
    with pytest.raises(TextTooLong, match="single word"):
        list(parts_of("Tom " + "x" * 100, "texts[0]", tokenizer(), LIMITS, splits=True))


@given(TOKENS)
def test_growth_takes_nothing_back_and_ends_as_the_whole(tokens: list[int]):
    growth, shown = PartDetokenizer(tokenizer()), ""
    for token in tokens:
        growth.add(token)
        shown += growth.take()
        assert text_of(tokenizer(), tokens).startswith(shown)
    assert shown + growth.rest(text_of(tokenizer(), tokens)) == text_of(tokenizer(), tokens)


@given(st.lists(TOKENS, min_size=1, max_size=3), st.data())
@settings(max_examples=50)
def test_parts_grow_in_their_order_whichever_is_decoded_first(parts: list[list[int]], data: st.DataObject):
    growth = IncrementalDetokenizer(tokenizer(), len(parts))
    steps = [(index, token) for index, part in enumerate(parts) for token in [*part, None]]
    order = data.draw(st.permutations([index for index, _ in steps]))
    queues = {index: iter([*part, None]) for index, part in enumerate(parts)}
    whole = [text_of(tokenizer(), part) for part in parts]
    shown = ""
    for index in order:
        token = next(queues[index])
        if token is None:
            growth.finish(index, whole[index])
        else:
            growth.add(index, token)
        shown += growth.take()
    assert shown == join(whole)[0]


@given(st.lists(st.sampled_from(["", "a", "b c"]), max_size=5))
def test_joined_parts_begin_where_it_is_said(parts: list[str]):
    joined, begins = join(parts)
    assert [joined[begin : begin + len(part)] for begin, part in zip(begins, parts, strict=True)] == parts
    assert joined == " ".join(filter(None, parts))


@given(ANYTHING.map(normalise))
def test_spans_are_code_points_in_order_and_cover_the_text(text: str):
    tokens = tokenizer().encode_target(text)
    for found in (source_spans(tokenizer(), text), generated_spans(tokenizer(), tokens)):
        assert len(found) == len(tokens)
        assert all(0 <= begin <= end <= len(text) for begin, end in found)
        assert all(before[0] <= after[0] for before, after in pairwise(found))
        covered = {place for begin, end in found for place in range(begin, end)}
        assert {place for place, character in enumerate(text) if character != " "} <= covered


@given(TOKENS)
def test_spans_of_generated_tokens_lie_within_their_text(tokens: list[int]):
    text = text_of(tokenizer(), tokens)
    found = generated_spans(tokenizer(), tokens)
    assert len(found) == len(tokens)
    assert all(0 <= begin <= end <= len(text) for begin, end in found)


def test_what_is_not_asked_for_has_the_defaults_of_the_model():
    chosen = resolve(pb.DecodingOptions(), manifest(defaults=Defaults(4, 2, 0.6)))
    assert (chosen.job.beam_size, chosen.num_hypotheses, chosen.job.length_penalty) == (4, 2, 0.6)
    narrow = resolve(pb.DecodingOptions(beam_size=1), manifest(defaults=Defaults(4, 2, 0.6)))
    assert (narrow.job.beam_size, narrow.num_hypotheses) == (1, 1)
    sampled = resolve(pb.DecodingOptions(sampling=pb.SamplingOptions()), manifest(defaults=Defaults(4, 2, 0.6)))
    assert (sampled.job.beam_size, sampled.num_hypotheses) == (1, 2)


def test_sampling_needs_a_beam_of_one():
    with pytest.raises(InvalidRequest, match=r"options.beam_size must be 1 to 1 \(with sampling\), got 2"):
        resolve(pb.DecodingOptions(beam_size=2, sampling=pb.SamplingOptions()), manifest())


@pytest.mark.parametrize(("default", "expected"), [(True, True), (False, False), (None, False)])
def test_a_shortlist_is_used_where_it_is_asked_for_or_the_default(default: bool | None, expected: bool):
    assert resolve(pb.DecodingOptions(), manifest(), default).job.shortlist is expected
    assert resolve(pb.DecodingOptions(shortlist=False), manifest(), default).job.shortlist is False
    assert resolve(pb.DecodingOptions(shortlist=True), manifest(), False).job.shortlist is True
    assert resolve(pb.DecodingOptions(sampling=pb.SamplingOptions()), manifest(), default).job.shortlist is False


def test_tokens_are_never_drawn_from_a_shortlist():
    with pytest.raises(InvalidRequest, match=r"options.shortlist must be unset or false with sampling, got true"):
        resolve(pb.DecodingOptions(shortlist=True, sampling=pb.SamplingOptions()), manifest(), True)


@pytest.mark.parametrize(
    ("tag", "expected"),
    [("EN", "en"), ("de_at", "de-AT"), ("zh-HANT-tw", "zh-Hant-TW"), ("eng_Latn", "en-Latn"), ("deu", "de")],
)
def test_language_tags_are_written_one_way(tag: str, expected: str):
    assert canonical(tag, "field") == expected


def test_a_language_falls_back_but_never_grows():
    assert [distance("en-Latn-US", served) for served in ("en-Latn-US", "en-Latn", "en", "de")] == [0, 1, 2, None]
    assert distance("en", "en-US") is None


def test_the_closest_language_wins():
    catalog = Catalog(
        [Entry("plain", 1, "en", "de", "plain"), Entry("austrian", 1, "en", "de-AT", "austrian")],
    )
    assert catalog.find("", "en", "de-AT") == "austrian"
    assert catalog.find("", "en-GB", "de-CH") == "plain"
    assert catalog.find("plain/1", "", "") == "plain"
    with pytest.raises(UnknownModel, match="austrian/1"):
        catalog.find("", "fr", "")


def test_a_name_without_a_version_is_the_highest():
    catalog = Catalog([Entry("en-de", version, "en", "de", version) for version in (2, 10, 9)])
    assert catalog.find("en-de", "", "") == catalog.find("", "en", "de") == 10
    assert catalog.find("en-de/2", "", "") == 2


async def test_planning_much_text_lets_the_event_loop_serve_others(tmp_path: Path):
    limits = EngineLimits()
    translator = Translator(bundle(tmp_path), Engine(EchoRunner(), limits), limits)
    options = translator.resolve(pb.DecodingOptions(long_text=pb.LONG_TEXT_POLICY_SPLIT))
    marks = " ".join(["a" + "\u0301\u0323" * 350] * 60)  # NFC takes time by the square of each run
    plans = asyncio.create_task(translator.plan(pb.TranslateRequest(texts=[marks, "Tom lives. " * 3000]), options))
    turns = 0
    while not plans.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 5
    assert isinstance(plans.result()[0], TextTooLong)
    assert len(plans.result()[1].parts) == 3000
    assert unicodedata.is_normalized("NFC", plans.result()[1].parts[0].text)
