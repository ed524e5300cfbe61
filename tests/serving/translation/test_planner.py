"""Texts that are certainly one sentence, and how languages write numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.segments.protection import TABLE, find_protected
from lingon.segments.sentence import Custom, Separators
from lingon.serving.translation.planner import custom_of, is_simple


@pytest.mark.parametrize("example", [example for form in TABLE for example in form.examples])
@pytest.mark.parametrize("text", ["{}", "We see {} here", "{}.", "a{}b"])
def test_no_string_that_is_kept_is_in_a_simple_text(text: str, example: str):
    whole = text.replace("{}", example)
    assert not (is_simple(whole) and find_protected(whole))


@given(st.text(alphabet="aB ,'’-.!?½²1é－ﬁ", max_size=30))
def test_nothing_is_kept_of_a_simple_text(text: str):
    assert not (is_simple(text) and find_protected(text))


@pytest.mark.parametrize("text", ["Hello", "It is well-known, isn't it?", "Ça va – non", "Tom’s house."])
def test_most_sentences_without_figures_and_signs_are_simple(text: str):
    assert is_simple(text) == ("–" not in text)


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("en", "de", "1.299,99"),
        ("en", "fr", "1\u202f299,99"),
        ("en-GB", "pt-BR", "1.299,99"),
        ("en", "de-CH", "1’299.99"),
        ("en", "pl", "1\u00a0299,99"),
        ("en", "de-XX", "1.299,99"),
    ],
)
def test_a_number_is_written_as_the_language_and_its_region_do(source: str, target: str, expected: str):
    custom = custom_of(source, target)
    assert custom is not None
    assert custom.written("1,299.99") == expected


@pytest.mark.parametrize(
    "pair", [("en", "en"), ("en", "zh-Hans"), ("en", "xx"), ("xx", "de"), ("eng_Latn", "de"), ("", "de")]
)
def test_numbers_stay_where_both_languages_write_them_alike_or_one_is_not_known(pair: tuple[str, str]):
    assert custom_of(*pair) is None


def test_both_ways_are_each_the_other_one():
    assert custom_of("de", "en") == Custom(Separators(".", ","), Separators(",", "."))
