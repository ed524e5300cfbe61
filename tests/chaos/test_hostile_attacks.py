"""Hostile requests are legal messages of the size that they say; the words of the large model are one token each."""

from __future__ import annotations

import pytest

import chaos.hostile.base_model as base_model
from chaos.hostile.attacks import (
    PAIRS,
    SERVICE,
    dear_requests,
    empty_pairs,
    marked_texts,
    score,
    split,
    target_text,
    tiny_sentences,
    translate,
)
from lingon.bundle import open_bundle
from lingon.text import Tokenizer, normalise
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.repository import ROOT


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return open_bundle(ROOT / "models" / "en-de").tokenizer()


@pytest.mark.parametrize(("characters", "texts"), [(1000, 1), (4_190_000, 4)])
def test_tiny_sentences_have_the_characters_that_they_say_and_are_split(characters, texts):
    request = pb.TranslateRequest.FromString(tiny_sentences(characters, texts).body)
    assert [len(text) for text in request.texts] == [characters // texts] * texts
    assert request.options.long_text == pb.LONG_TEXT_POLICY_SPLIT


def test_a_target_text_has_as_many_tokens_as_fit(tokenizer):
    text = target_text(tokenizer, "ja", 255)
    assert len(tokenizer.encode_target(text)) <= 255 < len(tokenizer.encode_target(f"{text} ja"))


def test_each_dear_request_is_a_message_of_its_method():
    found = dear_requests(["Hello."] * PAIRS, ["A long text."] * PAIRS, "ja ja")
    kinds = {"Translate": pb.TranslateRequest, "Score": pb.ScoreRequest}
    for attack in found:
        message = kinds[attack.method].FromString(attack.body)
        assert message.SerializeToString() == attack.body
        assert attack.path == f"{SERVICE}/{attack.method}"
    assert len({attack.name for attack in found}) == len(found) == 7


def test_a_score_keeps_its_pairs_and_its_alignment():
    request = pb.ScoreRequest.FromString(score("s", [("a", "b"), ("c", "d")], alignment=True).body)
    assert [(pair.source, pair.target) for pair in request.pairs] == [("a", "b"), ("c", "d")]
    assert request.return_alignment


def test_options_and_texts_are_sent():
    request = pb.TranslateRequest.FromString(translate("t", ["a"], beam_size=8, num_hypotheses=8).body)
    assert (list(request.texts), request.options.beam_size, request.options.num_hypotheses) == (["a"], 8, 8)
    assert pb.TranslateRequest.FromString(split("b", ["x"]).body).options.long_text == pb.LONG_TEXT_POLICY_SPLIT


def test_marked_texts_have_one_letter_and_many_marks():
    (text,) = pb.TranslateRequest.FromString(marked_texts(1).body).texts
    assert len(text) == 1801
    assert normalise(text)[1:].count("\u0323") + 1 >= 900  # one of them becomes part of the letter


def test_an_empty_pair_takes_two_bytes():
    attack = empty_pairs(1000)
    assert (len(pb.ScoreRequest.FromString(attack.body).pairs), len(attack.body)) == (1000, 2000)


def test_the_made_up_words_fill_the_vocabulary_and_each_is_one_token():
    words = base_model.words()
    assert len(set(words)) == len(words) == base_model.VOCAB - base_model.SPECIAL_PIECES
    made = Tokenizer(base_model.tokenizer())
    assert made.source_vocab == base_model.VOCAB
    text = base_model.text_of(base_model.MAX_TARGET - 1, first=31_900)
    ids = made.encode_target(text)
    assert len(set(ids)) == len(ids) == base_model.MAX_TARGET - 1
    assert made.decode(ids) == text
