"""Words are found as by a search in the whole text, and tokens are permitted as by a search of all ways to go on."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.serving.decoding.spelling import (
    BETWEEN,
    MISSING_BYTES,
    ROOT,
    UTF8,
    Automaton,
    Pieces,
    Spelling,
    SpellingState,
    penalise,
    repeating,
)
from lingon.text import UNK
from tests.support.echo_engine import tokenizer, vocabulary
from tests.support.naive_rules import is_valid, naive_permits


def test_the_texts_of_pieces_joined_are_the_text_of_their_tokens() -> None:
    pieces, draw = vocabulary().pieces, random.Random(3)
    plain = [token for token in range(UNK + 1, len(pieces.texts)) if token not in pieces.bytes_of]
    spelled = tokenizer().encode_target("日本 ɷ 😀 Grüße")
    assert any(token in pieces.bytes_of for token in spelled)
    for _ in range(200):
        tokens = [*draw.choices(plain, k=draw.randint(0, 9)), *spelled, *draw.choices(plain, k=3)]
        joined = b"".join(pieces.texts[token] for token in tokens).decode()
        assert " ".join(joined.split()) == " ".join(tokenizer().decode(tokens).split())


def test_pieces_are_found_by_their_beginning_and_by_what_is_inside() -> None:
    pieces = vocabulary().pieces
    for part in (b"e", b" d", b"er", b" ", "ß".encode(), b"\xc3", b"zzz"):
        texts = enumerate(pieces.texts)
        assert sorted(pieces.beginning_with(part)) == [token for token, text in texts if text.startswith(part)]
        assert pieces.containing(part) == [token for token, text in enumerate(pieces.texts) if part in text]


def test_what_is_inside_the_first_and_the_last_piece_is_found() -> None:
    assert Pieces([b"ab", b"b", b"cab"], {}).containing(b"ab") == [0, 2]


def state_after(data: bytes) -> int | None:
    state = BETWEEN
    for byte in data:
        following = UTF8[state].following.get(byte)
        if following is None:
            return None
        state = following
    return state


def decodes(data: bytes) -> bool:
    try:
        return "\ufffd" not in data.decode()
    except UnicodeDecodeError:
        return False


@given(st.one_of(st.binary(max_size=5), st.text(max_size=3).map(str.encode)))
def test_bytes_are_accepted_if_and_only_if_they_are_utf8_without_the_replacement_character(data: bytes) -> None:
    assert (state_after(data) == BETWEEN) is decodes(data)


def test_every_character_is_accepted_but_the_replacement_character() -> None:
    points = (point for point in range(0x110000) if not 0xD800 <= point < 0xE000)
    refused = [point for point in points if state_after(chr(point).encode()) != BETWEEN]
    assert refused == [0xFFFD]


def test_a_state_knows_how_many_bytes_complete_its_character() -> None:
    def missing(state: int) -> int:
        return 0 if state == BETWEEN else 1 + min(missing(after) for after in UTF8[state].following.values())

    assert [missing(state) for state in range(len(UTF8))] == list(MISSING_BYTES)


WORDS = st.lists(st.text("ab ", min_size=1, max_size=5), min_size=1, max_size=4).map(
    lambda words: [" ".join(word.split()) for word in words if word.split()]
)
MIXED = st.lists(st.text("ab ", max_size=4), max_size=8)


def read_all(automaton: Automaton, texts: list[str], state: int = ROOT) -> tuple[int, int]:
    found = 0
    for text in texts:
        state, ended = automaton.read(state, re.sub(" +", " ", text).encode())
        found |= ended
    return state, found


@given(WORDS, MIXED)
def test_a_word_is_found_if_and_only_if_the_text_has_it(words: list[str], texts: list[str]) -> None:
    _, found = read_all(Automaton([word.encode() for word in words]), texts)
    whole = " ".join("".join(texts).split())
    assert [found >> place & 1 for place in range(len(words))] == [word in whole for word in words]


@given(WORDS, MIXED)
def test_the_rests_are_what_completes_a_word_at_the_end_of_the_text(words: list[str], texts: list[str]) -> None:
    automaton = Automaton([word.encode() for word in words])
    state, _ = read_all(automaton, texts)
    whole = re.sub(" +", " ", "".join(texts))
    expected = {
        word[length:].encode() for word in words for length in range(1, len(word)) if whole.endswith(word[:length])
    }
    assert automaton.rests(state) == expected


@given(WORDS, MIXED, MIXED)
def test_a_text_that_follows_another_finds_the_words_that_some_other_text_would_begin(
    words: list[str], before: list[str], texts: list[str]
) -> None:
    automaton = Automaton([word.encode() for word in words])
    whole = " ".join("".join(texts).split())
    ends = {word: [" ".join(word.split()[at:]) for at in range(1, len(word.split()))] for word in words}
    expected = {word for word in words if word in whole or any(whole.startswith(end) for end in ends[word])}
    _, found = read_all(automaton, texts, automaton.after_other_text())
    found_words = {word for place, word in enumerate(words) if found >> place & 1}
    assert found_words >= expected
    assert bool(found_words) == bool(expected)
    joined = " ".join([*"".join(before).split(), *whole.split()])
    assert not any(word in joined for word in words) or found_words or any(word in "".join(before) for word in words)


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
