"""A text that is certainly one sentence, as a glance shows, has nothing that is kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.segments.protection.find import find_protected
from lingon.segments.protection.table import TABLE
from lingon.serving.translation.planning.source import is_simple


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
