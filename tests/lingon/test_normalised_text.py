"""A client that follows translation.proto counts as the server does, and finds each span in its own text."""

from __future__ import annotations

import itertools
import re
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lingon import NormalisedText
from lingon.errors import LingonError
from lingon.text import normalise
from tests.support.repository import ROOT

PROTO = (ROOT / "protos" / "lingon" / "translation" / "v1" / "translation.proto").read_text(encoding="utf-8")
EVERY_CHARACTER = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code <= 0xDFFF]
INVISIBLE = "\u0000\u001b\u0084\u00ad\u200b\u202e\u2060\u2066\ufeff"
WHITE = " \t\n\u001c\u001f\u0085\u00a0\u2028\u3000"
JOINING = "e=\u0301\u0308\u0323\u0338\u0344\u0f71\u0f73\u0f74\u1100\u1161\u11a8\uac00\u09c7\u09be\u212b\ufb2a"
TEXTS = st.one_of(st.text(), st.text(alphabet=INVISIBLE + WHITE + JOINING + "abc漢😀", max_size=40))


def listed(step: str) -> str:
    """The characters that a step of the header of the proto file names, as U+XXXX or U+XXXX to U+XXXX."""
    header = PROTO.partition('syntax = "proto3"')[0].replace("\n// ", " ")
    text = header.partition(f" {step}. ")[2].partition(f" {int(step) + 1}. ")[0]
    found = re.findall(r"U\+([0-9A-F]{4})(?: to U\+([0-9A-F]{4}))?", text)
    return "".join(chr(code) for low, high in found for code in range(int(low, 16), int(high or low, 16) + 1))


REMOVED, WHITE_SPACE = listed("1"), listed("3")


def by_contract(text: str) -> str:
    """The normalised text as a client makes it that has read the proto file only."""
    visible = "".join(character for character in text if character not in REMOVED)
    composed = unicodedata.normalize("NFC", visible)
    return re.sub(f"[{re.escape(WHITE_SPACE)}]+", " ", composed).strip(" ")


def test_the_contract_names_every_character_that_is_removed_or_white_space():
    removed = [each for each in EVERY_CHARACTER if normalise(f"a{each}b") == "ab"]
    white = [each for each in EVERY_CHARACTER if normalise(f"a{each}b") == "a b"]
    assert (removed, white) == (sorted(REMOVED), sorted(WHITE_SPACE))


@given(TEXTS)
@example("a\u001cb\u0085c")
@example(" \ufeffa\u00ad\u0301\u200b \u2060 b")
def test_a_client_that_follows_the_contract_has_the_normalised_text_of_the_server(text: str):
    assert by_contract(text) == normalise(text)


@given(TEXTS)
@example("=\u0f73\u0338")
@example("\u1100\u00ad\u1161\u11a8")
@example("\u09c7\u09be")
def test_the_text_is_the_normalised_text(text: str):
    assert NormalisedText(text).text == normalise(text)


def test_characters_that_nfc_changes_give_the_normalised_text_after_others():
    changing = [each for each in EVERY_CHARACTER if unicodedata.combining(each) or unicodedata.decomposition(each)]
    letters = [*changing, *map(chr, range(0x1100, 0x1200)), *"\u09be\u09d7\u0b3e\u0dcf\u3099"]
    for before in ("", "e", "=\u0301", "\u1100", "\uac00", "\u09c7", " "):
        assert [each for each in letters if NormalisedText(before + each).text != normalise(before + each)] == []


@given(TEXTS, st.data())
def test_what_a_span_was_read_from_normalises_to_the_span(text: str, data: st.DataObject):
    source = NormalisedText(text)
    begin = data.draw(st.integers(0, len(source.text)))
    end = data.draw(st.integers(begin, len(source.text)))
    first, last = source.original_span((begin, end))
    assert 0 <= first <= last <= len(text)
    wanted, found = source.text[begin:end].strip(), normalise(text[first:last])
    assert wanted in found
    if unicodedata.is_normalized("NFC", text):
        assert wanted == found


@given(TEXTS)
def test_spans_of_neighbours_are_in_order(text: str):
    source = NormalisedText(text)
    spans = [source.original_span((place, place + 1)) for place in range(len(source.text))]
    assert all(begin < end for begin, end in spans)
    assert all(one == other or one[1] <= other[0] for one, other in itertools.pairwise(spans))


@given(TEXTS.map(normalise), st.data())
def test_a_normalised_text_has_its_own_spans(text: str, data: st.DataObject):
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, len(text)))
    assert NormalisedText(text).original_span((begin, end)) == (begin, end)


@pytest.mark.parametrize(
    ("text", "word", "found"),
    [
        ("Schiff\u00adfahrt heute", "Schifffahrt", "Schiff\u00adfahrt"),
        ("Schiff\u00adfahrt heute", "heute", "heute"),
        ("\ufeff a\u200b \u2066x\u2069  Cafe\u0301\u0085y", "Café", "Cafe\u0301"),
        ("one\u001ctwo", "two", "two"),
        ("\u1100\u1161\u11a8 na", "각", "\u1100\u1161\u11a8"),
    ],
)
def test_a_word_is_found_in_the_text_of_the_caller(text: str, word: str, found: str):
    source = NormalisedText(text)
    begin = source.text.index(word)
    first, last = source.original_span((begin, begin + len(word)))
    assert text[first:last] == found


@pytest.mark.parametrize("gap", [" ", "\t\u3000", " \u200b\n\u00ad "])
def test_the_span_of_a_space_is_all_white_space_that_it_was_read_from(gap: str):
    assert NormalisedText(f" a{gap}b").original_span((1, 2)) == (2, 2 + len(gap))


@pytest.mark.parametrize("span", [(-1, 0), (0, 4), (2, 1)])
def test_a_span_that_is_not_in_the_text_is_refused(span: tuple[int, int]):
    with pytest.raises(LingonError, match=r"span must be within 0 and 3, the length of the text, got \(-?\d, \d\)"):
        NormalisedText(" a b ").original_span(span)


def test_a_long_run_of_marks_is_read():
    text = "e" + "\u0301\u0323" * 50_000 + " x"
    source = NormalisedText(text)
    assert source.original_span((len(source.text) - 1, len(source.text))) == (len(text) - 1, len(text))


def test_the_corpora_of_the_repository_have_none_of_the_white_space_that_used_to_be_removed():
    files = [*(ROOT / "tests" / "data").glob("tatoeba.*"), *(ROOT / "models" / "en-de").glob("*/golden.json")]
    assert len(files) == 3
    assert not any(set(Path(file).read_text(encoding="utf-8")) & set("\x1c\x1d\x1e\x1f\x85") for file in files)
