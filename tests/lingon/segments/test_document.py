"""Texts as sentences and separators: nothing is lost, and no text takes long."""

from __future__ import annotations

import sys
import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingon.segments.boundaries import LONGEST
from lingon.segments.layout import Joiner, Split, TextLayout
from lingon.text import is_invisible
from tests.support.repository import scaled

LANGUAGES = st.sampled_from(["en", "de", "zh-Hant", "ar", "hi", "xx", ""])
PIECES = ["Tom left. ", "He? ", "1. ", "Dr. ", "“Go.” ", "你好。", "「はい。」", "नमस्ते।", "مرحبا؟", "word", "😀", "a.b"]
BLANKS = [
    " ",
    "\t",
    "\n",
    "\r\n",
    "\r",
    "\v",
    "\f",
    "\x1c",
    "\x85",
    "\xa0",
    "\u200b",
    "\u2028",
    "\u2029",
    "\u3000",
    "\ufeff",
]
HAND_MADE = st.lists(st.sampled_from(PIECES + BLANKS), max_size=40).map("".join)
LONG = st.tuples(HAND_MADE, st.integers(1, 300)).map(lambda each: each[0] * each[1])
TEXTS = st.one_of(HAND_MADE, st.text(), LONG)
MEBIBYTE = 2**20


def segments(text: str, split: Split = Split.SENTENCES, language: str = "en") -> list[str]:
    document = TextLayout.of(text, split, language)
    return [document.segment(index) for index in range(len(document.segments))]


def is_blank(text: str) -> bool:
    return all(character.isspace() or is_invisible(character) for character in text)


@settings(max_examples=scaled(100, 10_000))
@given(TEXTS, st.sampled_from(Split), LANGUAGES)
def test_the_segments_in_their_own_places_give_the_text_back(text: str, split: Split, language: str):
    document = TextLayout.of(text, split, language)
    own = segments(text, split, language)
    joined = document.join(own)
    assert joined.text == text
    assert joined.spans == document.segments


@settings(max_examples=scaled(100, 10_000))
@given(st.one_of(HAND_MADE, LONG), st.sampled_from(Split), LANGUAGES)
def test_every_letter_is_in_a_segment_and_what_separates_these_has_none(text: str, split: Split, language: str):
    document = TextLayout.of(text, split, language)
    separators = [document.separator(index) for index in range(len(document.segments) + 1)]
    assert not any(map(str.isalpha, "".join(separators)))
    assert not any(is_blank(segment[0]) or is_blank(segment[-1]) for segment in segments(text, split, language))
    assert all(any(map(str.isalpha, segment)) for segment in segments(text, split, language)) or split is Split.OFF
    assert all(end <= begin for (_, end), (begin, _) in pairwise(document.segments))


@settings(max_examples=scaled(60, 2_000))
@given(HAND_MADE, st.lists(st.sampled_from(["", "Ja", "Ja.", "是。", "Ja "]), min_size=40, max_size=40))
def test_translations_that_arrive_in_pieces_are_joined_as_at_once(text: str, translations: list[str]):
    document = TextLayout.of(text, Split.SENTENCES)
    own = translations[: len(document.segments)]
    joiner, grown = Joiner(document), ""
    for index, translation in enumerate(own):
        for piece in translation:
            grown += joiner.add(index, piece)
    joined = document.join(own)
    assert grown + joiner.end() == joined.text
    assert [joined.text[begin:end] for begin, end in joined.spans] == own


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It rains. We stay.", ["It rains.", "We stay."]),
        ("Dr. Smith met Mr. Kennedy. He left.", ["Dr. Smith met Mr. Kennedy.", "He left."]),
        ("Part 12. Introduction. 1. This is it. 2.", ["Part 12.", "Introduction.", "1. This is it. 2."]),
        ("See example.com and a.b.Now. Fine.", ["See example.com and a.b.Now.", "Fine."]),
        ("A title\nOne line\r\n\r\n- a dash", ["A title", "One line", "a dash"]),
        ("你好。你好吗？", ["你好。", "你好吗？"]),
        ("Now!\u200b\u00a0Then.\v\tLast", ["Now!", "Then.", "Last"]),
        (" \n\u200b\t", []),
        ("", []),
    ],
)
def test_a_sentence_ends_at_its_punctuation_or_its_line(text: str, expected: list[str]):
    assert segments(text) == expected


@pytest.mark.parametrize("end", ["\n", "\r\n", "\v", "\u2028", " \n\t"])
def test_in_wrapped_text_only_a_blank_line_ends_a_sentence(end: str):
    assert segments(f"One{end}sentence. Another{end}one{end}{end}End", Split.NONEWLINES) == [
        f"One{end}sentence.",
        f"Another{end}one",
        "End",
    ]


def test_without_splitting_a_text_is_one_segment_between_its_outer_blanks():
    assert segments(" One. Two.\n\nThree. \n", Split.OFF) == ["One. Two.\n\nThree."]


def test_sentences_without_a_space_between_them_get_one_in_a_script_with_spaces():
    document = TextLayout.of("你好。你好吗？", Split.SENTENCES, "zh")
    assert document.join(["Hello.", "How?"]).text == "Hello. How?"
    assert document.join(["はい。", "何？"]).text == "はい。何？"


def test_a_run_without_a_sentence_end_is_cut_after_a_word():
    text = "word " * 3000
    found = segments(text)
    assert all(len(each) <= LONGEST and each.endswith("word") for each in found)
    assert len(found) <= len(text) / (LONGEST - 10) + 1
    assert segments("x" * 10_000 + " y") == ["x" * 10_000, "y"]


@pytest.mark.parametrize("split", [Split.SENTENCES, Split.NONEWLINES])
@pytest.mark.parametrize(
    "hostile", [".", ". ", '"', "“", "“a. ", "。", "你好。", "「你。", "\n", "a\n", "1. ", "\n \u200b", "a.b"]
)
def test_a_mebibyte_of_any_text_takes_a_time_that_grows_linearly(hostile: str, split: Split):
    text = hostile * (scaled(MEBIBYTE // 8, MEBIBYTE) // len(hostile.encode()))
    begin = time.process_time()
    document = TextLayout.of(text, split, "en")
    seconds = time.process_time() - begin
    assert seconds < scaled(4, 10)  # measured: at most 0.1 s, and 0.9 s for a whole mebibyte
    assert len(document.segments) <= len(text)
    assert sys.getsizeof(document.segments) <= 16 * len(text) + 64
