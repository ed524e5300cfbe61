"""What the model reads of a text, of a target prefix and of pieces, and what is refused."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from google.rpc import code_pb2
from hypothesis import given
from hypothesis import strategies as st

from lingon.errors import TextTooLong
from lingon.serving.translation.detokenizer import PartDetokenizer
from lingon.serving.translation.plans import (
    Begin,
    blocks,
    joined,
    most_characters,
    parts_of,
    piece_spans,
    plan_pair,
    text_of,
)
from lingon.serving.translation.replies import generated_spans
from lingon.source_language import readable
from lingon.text import Tokenizer, normalise
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import CORPUS, LIMITS, EchoRunner, RunningServer, failure, running, tokenizer
from tests.support.gateway import BUNDLES, TwoModels
from tests.support.tokenizers import train_sentencepiece

SPACED = st.text(alphabet="ab\u0301\u0323é \n\u200b\u3000\x1c\x85\u00ad\u2028", max_size=80)


@given(st.one_of(SPACED, st.text()), st.integers(1, 10))
def test_a_text_normalised_in_blocks_equals_the_normalised_text(text: str, size: int):
    done = list(blocks(text, size))
    assert "".join(done) == text
    assert all(len(block.strip()) <= size for block in done)
    if all(len(word) <= size for word in text.split()):  # a mark would join the letter before it
        assert joined((block, normalise(block)) for block in done) == normalise(text)


def test_a_word_of_several_blocks_stays_one_word():
    text = f" a {'x' * 25}  b\n"
    assert joined((block, normalise(block)) for block in blocks(text, 10)) == normalise(text)


def test_a_text_that_is_too_long_raises_an_error_that_names_the_field():
    match = r"texts.0. has \d+ tokens, the model reads 32 at most; .*LONG_TEXT_POLICY_SPLIT"
    with pytest.raises(TextTooLong, match=match):
        list(parts_of(normalise("Tom " * 40), "texts[0]", tokenizer(), LIMITS, splits=False))


@pytest.mark.parametrize("source", ["Tom " * 40, "Tom " * 1000], ids=["tokens", "characters"])
def test_the_source_of_a_pair_that_is_too_long_can_only_be_shortened(source: str):
    """A request to score has no options: it cannot ask for a text to be split."""
    with pytest.raises(TextTooLong, match=r"^pairs\[0\]\.source has .*; shorten it$"):
        plan_pair(source, "Tom", "pairs[0]", tokenizer(), LIMITS)


def test_a_word_that_is_too_long_is_cut_if_the_text_may_be_split():
    with pytest.raises(TextTooLong, match=r"has \d+ tokens, the model reads 32 at most"):
        list(parts_of("Tom " + "x" * 100, "texts[0]", tokenizer(), LIMITS, splits=False))
    parts = list(parts_of("Tom " + "x" * 100, "texts[0]", tokenizer(), LIMITS, splits=True))
    assert parts[0].text == "Tom"
    assert "".join(part.text for part in parts[1:]) == "x" * 100
    assert all(len(part.source_ids) <= LIMITS.max_source_tokens for part in parts)


def test_a_text_that_is_too_long_once_it_is_normalised_is_refused_and_not_split():
    grows = "\ufb2c " * (most_characters(LIMITS.max_source_tokens) // 2)  # NFC makes three characters of this letter
    match = r"\.source has \d+ characters; the model reads 32 tokens at most"
    with pytest.raises(TextTooLong, match="pairs.0." + match):
        plan_pair(grows, "Tom", "pairs[0]", tokenizer(), LIMITS)
    with pytest.raises(TextTooLong, match=match):
        list(parts_of(normalise(grows), "texts[0].source", tokenizer(), LIMITS, splits=False))


VOCABULARIES: dict[str, dict[str, Any]] = {
    "without bytes": {},
    "NFKC": {"normalization_rule_name": "nmt_nfkc"},
    "lower case": {"normalization_rule_name": "nmt_nfkc_cf"},
    "spaces after words": {"treat_whitespace_as_suffix": True},
}
MODELS = {
    name: train_sentencepiece(CORPUS.splitlines(), 200, model_type="unigram", hard_vocab_limit=False, **options)
    for name, options in VOCABULARIES.items()
}
PREFIXES = ["Жt", "Ж", "Tom Ж", "Tom ﬁ", "Das ½ Ж x", "日本 Tom", "Tom 日本"]
vocabularies = pytest.mark.parametrize("vocabulary", VOCABULARIES)


@vocabularies
@pytest.mark.parametrize("prefix", PREFIXES)
def test_text_spans_and_stream_begin_with_the_prefix(vocabulary: str, prefix: str):
    tokenizer = Tokenizer(MODELS[vocabulary])
    given = tuple(tokenizer.encode_target(prefix))
    begin = Begin.of(prefix, given, tokenizer)
    word = tokenizer.encode_target("where")
    for rest in (word, tokenizer.encode_target("Tom where."), [tokenizer.target.piece_to_id("r"), *word], []):
        tokens = (*given, *rest)
        text = text_of(tokenizer, tokens, begin)
        assert text.startswith(prefix)
        assert "".join(text[len(prefix) :].split()) == "".join(tokenizer.decode(rest).split())
        spans = [text[slice(*span)] for span in generated_spans(tokenizer, tokens, begin)]
        shown = [tokenizer.piece_text(token).strip() for token in rest]
        assert [each.strip() for each in spans[len(given) :]] == shown
        detokenizer, deltas = PartDetokenizer(tokenizer, begin), list[str]()
        for token in tokens:
            detokenizer.add(token)
            deltas.append(detokenizer.take())
        assert "".join(deltas) + detokenizer.rest(text) == text


@pytest.mark.parametrize(("prefix", "spaced"), [("Ж", " "), ("Tom Ж", " "), ("Ж", ""), ("Tom Ж", "")])
def test_a_word_after_the_prefix_is_apart_if_its_piece_is(prefix: str, spaced: str):
    tokenizer = Tokenizer(MODELS["without bytes"])
    given = tuple(tokenizer.encode_target(prefix))
    word = tokenizer.target.piece_to_id("\u2581T" if spaced else "T")
    assert tokenizer.piece_text(word) == f"{spaced}T"
    assert text_of(tokenizer, (*given, word), Begin.of(prefix, given, tokenizer)) == f"{prefix}{spaced}T"


@asynccontextmanager
async def serving(vocabulary: str) -> AsyncIterator[RunningServer]:
    """Serve an echo with another vocabulary."""
    size = Tokenizer(MODELS[vocabulary]).source_vocab
    runner = EchoRunner()
    runner.vocab = size
    bundles = ({"files": {"tokenizer.model": MODELS[vocabulary]}, "source_vocab": size, "target_vocab": size},)
    async with running(runner, bundles=bundles) as server:
        yield server


@pytest.mark.parametrize("beam_size", [1, 4])
@vocabularies
async def test_a_server_begins_every_hypothesis_with_the_prefix(vocabulary: str, beam_size: int):
    options = pb.DecodingOptions(beam_size=beam_size, num_hypotheses=beam_size, return_alignment=True)
    texts = ["Tom lives in Boston. Where is the station?"] * len(PREFIXES)
    async with serving(vocabulary) as server:
        reply = await server.translate(*texts, options=options, target_prefixes=PREFIXES)
        events = await server.stream(*texts, options=options, target_prefixes=PREFIXES)
    for prefix, result in zip(PREFIXES, reply.results, strict=True):
        assert all(each.text.startswith(prefix) for each in result.hypotheses)
        for each in result.hypotheses:
            assert all(0 <= link.target.begin <= link.target.end <= len(each.text) for link in each.alignment)
    streamed = [""] * len(PREFIXES)
    for event in events:
        streamed[event.delta.text_index] += event.delta.text
    if beam_size == 1:
        assert streamed == [result.hypotheses[0].text for result in reply.results]


async def test_words_that_are_looked_for_in_tokens_refuse_such_a_prefix():
    refused = "target_prefixes[0] has 'Ж' at character 5, which the model's tokens do not spell; leave out"
    async with serving("without bytes") as server:
        for words in ({"forbidden_words": ["x"]}, {"forced_words": ["sea"]}):
            options = pb.DecodingOptions(**words)
            (bad,) = (await server.translate("Tom", options=options, target_prefixes=["Tom Жt"])).results
            (good,) = (await server.translate("Tom", options=options, target_prefixes=["Tom"])).results
            assert bad.status.code == code_pb2.INVALID_ARGUMENT
            assert bad.status.message.startswith(refused)
            assert good.hypotheses[0].text.startswith("Tom")


async def test_a_target_that_the_model_cannot_write_is_named_by_its_score():
    async with serving("without bytes") as server:
        pairs = [pb.ScorePair(source="Tom", target=target) for target in ("Tom", "Tom 日本 Tom")]
        good, bad = (await server.stub.Score(pb.ScoreRequest(pairs=pairs))).results
    assert not good.warnings
    (warning,) = bad.warnings
    assert warning.code == pb.WARNING_CODE_UNREADABLE
    assert re.match("the target has '日本' at character 5, which the model cannot write: ", warning.message)


PIECES = pb.TextOptions(format=pb.TEXT_FORMAT_PIECES)
TEXT = "Tom lives in Boston. Where is {city}?"


def pieces_of(text: str) -> str:
    return " ".join(tokenizer().source_pieces(tokenizer().source.encode(text)))


async def test_a_text_in_pieces_is_translated_as_the_text_that_it_was_cut_from():
    whole = pb.TextOptions(
        split_sentences=pb.SENTENCE_SPLITTING_OFF, protect=False, lower_capitals=False, guard=pb.GUARD_POLICY_OFF
    )
    async with running() as server:
        (plain,) = (await server.translate(TEXT, text=whole)).results
        (found,) = (await server.translate(pieces_of(TEXT), text=PIECES)).results
    assert found.hypotheses[0].text == pieces_of(plain.hypotheses[0].text)
    assert (found.usage, found.hypotheses[0].score) == (plain.usage, plain.hypotheses[0].score)
    assert not found.warnings


async def test_the_model_reads_the_very_pieces_of_the_request():
    read: list[list[int]] = []

    def says(source: list[int]) -> list[int]:
        read.append(source)
        return source

    runner = EchoRunner(says=says)
    letters = "▁ T o m <unk>"
    async with running(runner) as server:
        read.clear()
        (found,) = (await server.translate(f"  {letters}\t", text=PIECES)).results
    ids = [tokenizer().source.piece_to_id(piece) for piece in letters.split()]
    assert read == [[*ids, tokenizer().source.eos_id()]]
    assert found.hypotheses[0].text.strip() == letters


async def test_a_prefix_is_in_pieces_too():
    async with running() as server:
        (found,) = (await server.translate(pieces_of("Tom"), text=PIECES, target_prefixes=["▁ T <unk>"])).results
    assert found.hypotheses[0].text == "▁ T <unk>"


async def test_deltas_of_a_stream_are_the_pieces_of_its_result():
    async with running() as server:
        events = await server.stream(pieces_of(TEXT), text=PIECES)
    deltas = [event.delta.text for event in events if event.HasField("delta")]
    assert "".join(deltas) == events[-1].done.result.hypotheses[0].text == pieces_of(TEXT)
    assert len(deltas) > 1


async def test_links_are_between_the_pieces():
    async with running() as server:
        options = pb.DecodingOptions(return_alignment=True)
        (found,) = (await server.translate(f" {pieces_of(TEXT)} ", text=PIECES, options=options)).results
    best, pieces = found.hypotheses[0], pieces_of(TEXT).split()
    assert found.normalised_text.split() == pieces
    assert len(best.alignment) == len(pieces)
    for link, piece in zip(best.alignment, pieces, strict=True):
        assert found.normalised_text[link.source.begin : link.source.end] == piece
        assert best.text[link.target.begin : link.target.end] == piece


REFUSED: dict[str, tuple[str, str]] = {
    "unknown": (
        "▁ T zzz",
        "texts[0]: 'zzz' at place 2 is no piece of the source vocabulary; <unk> is an unknown piece",
    ),
    "end": (
        "▁ </s>",
        "texts[0]: '</s>' at place 1 stands for no text, and cannot be used as a piece of the source vocabulary",
    ),
    "long": (
        "T " * 32,
        "texts[0] has 33 tokens, the model reads 32 at most; a text in pieces is not split, shorten it",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_is_no_text_in_pieces_is_refused_alone(case: str):
    text, message = REFUSED[case]
    async with running() as server:
        options = pb.DecodingOptions(long_text=pb.LONG_TEXT_POLICY_SPLIT)
        bad, good = (await server.translate(text, "▁ T", text=PIECES, options=options)).results
    assert bad.status.code == code_pb2.INVALID_ARGUMENT
    assert bad.status.message == message
    assert good.hypotheses[0].text == "▁ T"


async def test_a_prefix_with_what_is_no_piece_is_refused():
    async with running() as server:
        asked = {"text": PIECES, "target_prefixes": ["▁ <pad>"]}
        (found,) = (await server.translate("▁ T", **asked)).results
        forbidden = {**asked, "target_prefixes": ["▁ T o m"], "options": pb.DecodingOptions(forbidden_words=["om"])}
        (other,) = (await server.translate("▁ T", **forbidden)).results
    assert found.status.message.startswith("target_prefixes[0]: '<pad>' at place 1 stands for no text")
    assert other.status.message == "target_prefixes[0] has options.forbidden_words[0] in it"


NEEDLESS: dict[str, dict[str, Any]] = {
    "keep": {"keep": ["a"]},
    "protect": {"protect": True},
    "lower_capitals": {"lower_capitals": True},
    "split_sentences": {"split_sentences": pb.SENTENCE_SPLITTING_ON},
    "guard": {"guard": pb.GUARD_POLICY_WARN},
    "ignore_tags": {"ignore_tags": ["a"]},
    "translate_attributes": {"translate_attributes": ["a"]},
}


@pytest.mark.parametrize("name", NEEDLESS)
async def test_options_that_need_text_are_refused(name: str):
    async with running() as server:
        text = pb.TextOptions(format=pb.TEXT_FORMAT_PIECES, **NEEDLESS[name])
        status, _ = await failure(server.translate("▁ T", text=text))
        off = pb.TextOptions(
            format=pb.TEXT_FORMAT_PIECES,
            protect=False,
            lower_capitals=False,
            split_sentences=pb.SENTENCE_SPLITTING_OFF,
            guard=pb.GUARD_POLICY_OFF,
        )
        assert (await server.translate("▁ T", text=off)).results[0].hypotheses[0].text == "▁ T"
    assert status.code == code_pb2.INVALID_ARGUMENT
    assert status.message.startswith(f"text.{name} ")


async def test_pieces_of_one_vocabulary_are_not_translated_through_another():
    async with running(bundles=BUNDLES, loader=TwoModels) as server:
        status, _ = await failure(
            server.translate("▁ T", text=PIECES, source_language_code="de", target_language_code="fr")
        )
    assert status.code == code_pb2.UNIMPLEMENTED
    assert status.message == "text.format PIECES needs a model that translates de to fr; de-en+en-fr are two"


async def test_a_pair_in_pieces_is_scored_with_these_pieces():
    async with running() as server:
        pairs = [pb.ScorePair(source=" ▁ T  o m", target="▁  T o "), pb.ScorePair(source="▁ T", target="zzz")]
        reply = await server.stub.Score(
            pb.ScoreRequest(pairs=pairs, format=pb.TEXT_FORMAT_PIECES, return_alignment=True)
        )
        markup = server.stub.Score(pb.ScoreRequest(pairs=pairs, format=pb.TEXT_FORMAT_HTML))
        status, _ = await failure(markup)
    good, bad = reply.results
    assert [token.piece for token in good.tokens] == ["▁", "T", "o", "</s>"]
    assert (good.normalised_source, good.normalised_target) == ("▁ T o m", "▁ T o")
    linked = [good.normalised_source[link.source.begin : link.source.end] for link in good.alignment]
    assert linked == ["▁", "T", "o"]
    assert bad.status.message.startswith("pairs[1].target: 'zzz' at place 0 is no piece of the target vocabulary")
    assert status.message == "format must be plain or pieces; the text of markup can be scored alone"


def test_a_language_is_detected_by_the_words_that_pieces_spell():
    assert readable("▁Wo ▁is t ▁das", pb.TEXT_FORMAT_PIECES) == " Wo ist das"
    assert piece_spans("▁a  b") == [(0, 2), (4, 5)]
