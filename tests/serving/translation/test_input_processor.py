"""Planning: normalisation in blocks, and errors for texts that the model cannot read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.errors import TextTooLong
from lingon.serving.translation.planning.input_processor import (
    blocks,
    joined,
    most_characters,
    parts_of,
    plan_pair,
)
from lingon.text import normalise
from tests.support.echo_engine import LIMITS, tokenizer

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
