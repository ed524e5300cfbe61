"""Texts in pieces of the vocabulary over a real socket: what the model reads and writes, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from google.rpc import code_pb2

from lingon.serving.translation.pieces import piece_spans
from lingon.source_language import readable
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import EchoRunner, running, tokenizer
from tests.support.statuses import failure
from tests.support.two_models import BUNDLES, TwoModels

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
