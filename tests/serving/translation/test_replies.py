"""The spans of tokens in their texts."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from lingon.serving.translation.plans import text_of
from lingon.serving.translation.replies import generated_spans, source_spans
from lingon.text import normalise
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
