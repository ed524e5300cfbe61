"""Splitting into sentences and into parts that fit."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.sentences import LONGEST, SURE, sentences, split
from lingon.text import normalise

PROSE = st.text(alphabet="abcDE .,;!?…。\"'“”()0123", max_size=120).map(normalise)


def texts(text: str) -> list[str]:
    return [text[begin:end] for begin, end in sentences(text)]


@given(PROSE, st.integers(1, 12))
def test_parts_fit_and_contain_every_character_except_the_spaces_between_them(text: str, longest: int):
    def fits(part: str) -> bool:
        return len(part) <= longest

    spans = list(split(text, fits))
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
def test_sentences_end_at_unambiguous_punctuation_only(text: str, expected: list[str]):
    assert texts(text) == expected


def test_words_are_cut_only_where_they_do_not_fit():
    text = f"Tom {'x' * 50} left. He came."
    parts = [text[begin:end] for begin, end in split(text, lambda part: len(part) <= 20)]
    assert parts == ["Tom", "x" * 12, "x" * 13, "x" * 12, "x" * 13, "left.", "He came."]


def test_a_script_without_spaces_is_cut_after_a_comma_and_never_before_a_mark():
    text = "今日はとても良い天気です、散歩に行きましょう"
    parts = [text[begin:end] for begin, end in split(text, lambda part: len(part) <= 15)]
    assert parts == ["今日はとても良い天気です、", "散歩に行きましょう"]
    marked = "a\u0301" * 20
    assert all(not marked[begin:end].startswith("\u0301") for begin, end in split(marked, lambda part: len(part) <= 9))


def test_a_long_sentence_is_split_after_a_clause_near_its_middle():
    text = "I came to see the sea, and I saw the sun"
    assert [text[begin:end] for begin, end in split(text, lambda part: len(part) < 30)] == [
        "I came to see the sea,",
        "and I saw the sun",
    ]


@pytest.mark.parametrize("doubtful", ["1. ", "Dr. ", "a. ", "x.. "])
def test_the_search_for_a_sure_end_of_a_sentence_ends_after_some_thousand_characters(doubtful: str):
    text = normalise(doubtful * (5 * SURE))
    found = list(sentences(text))
    assert max(end - begin for begin, end in found) <= SURE + len(doubtful)
    assert " ".join(text[begin:end] for begin, end in found) == text
    assert texts(normalise(doubtful * 100)) == [normalise(doubtful * 100)]


@pytest.mark.parametrize("word", ["word", "a.b", "....x", "w" * (LONGEST - 1)])
def test_a_text_without_the_end_of_a_sentence_is_read_in_bounded_steps(word: str):
    text = " ".join([word] * (3 * LONGEST // len(word) + 2))
    found = list(sentences(text))
    assert max(end - begin for begin, end in found) <= LONGEST
    assert " ".join(text[begin:end] for begin, end in found) == text


def test_a_word_longer_than_a_step_stays_whole():
    word = "w" * (LONGEST + 5)
    assert texts(f"{word} a {word}") == [word, "a", word]
    assert texts(f"{word}{word}") == [word + word]
