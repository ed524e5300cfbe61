"""The automaton finds words as a search in the whole text does."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from lingon.serving.constraints.automaton import ROOT, Automaton

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
