"""A text in two parts has the sentences that it has as a whole."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingon.segments.halves import SPLITS, halves
from lingon.segments.layout import Split, cut
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.repository import scaled
from tests.support.timing import LINEAR, growth_of

PROSE = ["Tom left. ", "He saw Prof. Boston again. ", "What is it? ", "M. Dupont smiled. ", "It is etc. and so on. "]
PROSE += ["你好。", "「はい。」と言った。", "नमस्ते। ", "Tom is\nhere. ", "\n\n"]
LINES = ["- bread\n", "1. milk\n", "\n", "a\tb\n", "Home | About us | Contact\n"]


def segments(text: str, split: Split) -> list[str]:
    return [text[begin:end] for begin, end in cut(text, split, "en") if begin < end]


@settings(max_examples=scaled(100, 5_000))
@given(st.lists(st.sampled_from([*PROSE, *LINES]), min_size=2, max_size=30).map("".join))
def test_the_sentences_of_both_parts_are_those_of_the_whole(text: str):
    check(text, pb.SENTENCE_SPLITTING_ON)


@settings(max_examples=scaled(100, 5_000))
@given(st.lists(st.sampled_from(PROSE), min_size=2, max_size=30).map("".join))
def test_the_sentences_of_both_parts_of_wrapped_text_are_those_of_the_whole(text: str):
    check(text, pb.SENTENCE_SPLITTING_NONEWLINES)


def check(text: str, how: pb.SentenceSplitting.ValueType) -> None:
    found = halves(text, pb.TextOptions(split_sentences=how), "en")
    if found is not None:
        assert "".join(found) == text
        assert all(found)
        assert [each for half in found for each in segments(half, SPLITS[how])] == segments(text, SPLITS[how])


def test_the_base_install_cuts_at_lines_and_certain_ends(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "sentencex", None)  # as if it were not installed
    options = pb.TextOptions()
    assert halves("One. Two.\nThree.", options, "en") == ("One. Two.\n", "Three.")
    assert halves("Please close. Tom left.", options, "en") == ("Please close. ", "Tom left.")
    assert halves("A. B. C.", options, "en") is None


def test_a_text_that_is_read_as_a_whole_has_no_parts():
    assert halves("One here.\nTwo there.", pb.TextOptions(split_sentences=pb.SENTENCE_SPLITTING_OFF), "en") is None


@pytest.mark.parametrize("piece", ["a", "ab.", "Words. ", "\n", "。", ". ", "Tom ", "\n \n", "| "])
def test_the_time_grows_linearly_with_the_text(piece: str):
    def prepare(size: int):
        text = piece * (size // len(piece))
        return lambda: halves(text, pb.TextOptions(), "en")

    growth = growth_of(prepare, 2**12, worth=0.002, most=2**16)
    assert growth.ratio <= LINEAR or growth.twice < 0.05
