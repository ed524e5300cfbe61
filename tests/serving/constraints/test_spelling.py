"""Which tokens a spelling permits: compared with a search in the text of every token, and of every way to go on."""

from __future__ import annotations

import random

import numpy as np
import pytest

from lingon.serving.constraints.pieces import BETWEEN, Pieces
from lingon.serving.constraints.spelling import Spelling, SpellingState, penalise, repeating
from lingon.text import UNK
from tests.support.echo_engine import vocabulary
from tests.support.naive_rules import is_valid, naive_permits

TEXTS = [b"", b"", b"", b"", *(text.encode() for text in ("a", "b", " a", " b", "ab", "ba", " ", "a b", "é", "€"))]
BYTES = [0x61, 0x20, 0xC3, 0xA9, 0xA4, 0xE2, 0x82, 0xAC, 0xEF, 0xBF, 0xBD, 0xBB]
TINY = Pieces(
    [*TEXTS, *(bytes([byte]) for byte in BYTES)], {len(TEXTS) + place: byte for place, byte in enumerate(BYTES)}
)


def permitted(spelling: Spelling, state: SpellingState, remaining: int) -> set[int]:
    if state[0] != BETWEEN:
        return set(spelling.continuing(state, remaining).members)
    return set(range(UNK + 1, len(TINY.texts))) - spelling.banned(state, remaining).members


@pytest.mark.parametrize("words", [(), ("ab",), ("a b", "bb"), ("é",), ("aé", "€a"), ("aba", "ba b", "é a")])
@pytest.mark.parametrize("seed", range(3))
def test_a_token_is_permitted_if_and_only_if_the_text_can_go_on_without_a_forbidden_word(
    words: tuple[str, ...], seed: int
) -> None:
    spelling, draw = Spelling(TINY, [word.encode() for word in words]), random.Random(seed)
    for _ in range(12):
        tokens: list[int] = []
        state = spelling.start
        for remaining in range(8, 0, -1):
            found = permitted(spelling, state, remaining)
            expected = {
                token
                for token in range(UNK + 1, len(TINY.texts))
                if naive_permits(TINY, [*tokens, token], words, remaining - 1)
            }
            assert found == expected, (tokens, remaining)
            if not found:
                break
            tokens.append(draw.choice(sorted(found)))
            state = spelling.read(state, tokens[-1])
        assert is_valid(TINY, tokens)


def test_a_part_that_follows_another_does_not_begin_with_the_end_of_a_phrase() -> None:
    follows = Spelling(TINY, [b"b a b"], follows=True)
    begin = {TINY.texts[token] for token in permitted(follows, follows.start, 9)}
    assert b"b" not in begin
    assert b" b" not in begin
    assert {b"a", b" a", b"ab", b"ba"} & begin == {b"a", b" a", b"ab"}, (
        '"b" would complete a phrase, so that "ba" would'
    )
    assert b"a b" not in begin
    first = Spelling(TINY, [b"b a b"])
    assert {b"b", b" b", b"a b"} <= {TINY.texts[token] for token in permitted(first, first.start, 9)}


def test_words_may_not_leave_a_character_without_an_end() -> None:
    """All characters that could follow the byte C3 here are forbidden, so that the byte itself is."""
    spelling = Spelling(TINY, ["é".encode(), "ä".encode()])
    lead = TINY.token_of[0xC3]
    others = [bytes([0xC3, byte]).decode() for byte in (0x82, 0xAC, 0xBF, 0xBD, 0xBB)]
    assert lead not in spelling.banned(spelling.start, 9).members
    all_words = [word.encode() for word in ("é", "ä", *others)]
    assert lead in Spelling(TINY, all_words).banned(spelling.start, 9).members


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_repeating_tokens_are_those_that_make_an_ngram_appear_twice(size: int) -> None:
    draw = random.Random(size)
    for length in range(12):
        tokens = draw.choices(range(3), k=length)

        def twice(token: int, tokens: list[int] = tokens) -> bool:
            ngrams = [tuple(gram) for gram in zip(*(([*tokens, token])[at:] for at in range(size)), strict=False)]
            return ngrams.count(ngrams[-1]) > 1 if len(tokens) + 1 >= size else False

        assert repeating(tokens, size).members == {token for token in range(3) if twice(token)}


def test_a_penalty_lowers_the_logits_of_tokens_once_however_often_they_appear() -> None:
    logits = np.array([2.0, -2.0, 3.0, 0.0], np.float32)
    penalise(logits, [0, 1, 0, 3], 2.0)
    assert logits.tolist() == [1.0, -4.0, 3.0, 0.0]


def test_the_spelling_of_a_real_vocabulary_permits_most_pieces() -> None:
    banned = vocabulary().spelling.banned(vocabulary().spelling.start, 9).members
    plain = set(range(UNK + 1, len(vocabulary().pieces.texts))) - set(vocabulary().pieces.bytes_of)
    assert not banned & plain
    assert len(banned) > 64, "bytes that begin no character, and special pieces"
