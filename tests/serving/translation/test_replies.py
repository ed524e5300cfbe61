"""The spans of tokens in their texts."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from lingon.serving.translation.plans import text_of
from lingon.serving.translation.replies import generated_spans, source_spans, spans_in
from lingon.text import normalise
from tests.support import shipped_model
from tests.support.echo_engine import tokenizer

ANYTHING = st.text(st.characters(exclude_characters="▁", exclude_categories=("Cs",)), max_size=60)  # ▁ is a space
TOKENS = st.lists(st.integers(4, tokenizer().target_vocab - 1), max_size=40)


@given(ANYTHING.map(normalise))
def test_spans_are_in_order_and_cover_the_code_points_of_the_text(text: str):
    tokens = tokenizer().encode_target(text)
    for found in (source_spans(tokenizer(), text), generated_spans(tokenizer(), tokens)):
        assert len(found) == len(tokens)
        assert all(0 <= begin <= end <= len(text) for begin, end in found)
        assert all(before[0] <= after[0] for before, after in pairwise(found))
        covered = {place for begin, end in found for place in range(begin, end)}
        assert {place for place, character in enumerate(text) if character != " "} <= covered


@given(TOKENS)
def test_spans_of_generated_tokens_are_within_their_text(tokens: list[int]):
    text = text_of(tokenizer(), tokens)
    found = generated_spans(tokenizer(), tokens)
    assert len(found) == len(tokens)
    assert all(0 <= begin <= end <= len(text) for begin, end in found)


@given(TOKENS)
def test_spans_of_pieces_in_a_known_text_are_those_of_sentencepiece(tokens: list[int]):
    own = tokenizer()
    generated = spans_in(text_of(own, tokens), [*map(own.piece_text, tokens)])
    assert generated is None or generated == generated_spans(own, tokens)


@given(ANYTHING.map(normalise))
def test_spans_of_pieces_of_a_source_are_those_of_sentencepiece(text: str):
    own = tokenizer()
    found = spans_in(text, [*map(own.source_piece_text, own.source.encode(text))])
    assert found is None or found == source_spans(own, text)


def test_spans_of_pieces_of_plain_text_need_no_sentencepiece():
    own = shipped_model.tokenizer()
    for line in map(normalise, shipped_model.LINES[:200]):
        pieces = [*map(own.source_piece_text, own.source.encode(line))]
        assert spans_in(line, pieces) == source_spans(own, line)
        assert spans_in(f"{line}!", pieces) is None
    assert spans_in("", []) is None
