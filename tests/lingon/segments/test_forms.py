"""The table of string forms: each string of it is found in every arrangement, and alone changes what is around it."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.segments.protection.find import find_protected, with_figures
from lingon.segments.protection.form import WORD, Form
from lingon.segments.protection.forms import FORMS
from lingon.segments.protection.patterns import spans_of
from lingon.segments.protection.sentence import kept_strings
from lingon.segments.protection.spans import Kind
from tests.support.growth import LINEAR, growth_of

EXAMPLES = [(form, example) for form in FORMS for example in form.examples]
ARRANGEMENTS = [
    "{}",
    "Open {} now.",
    "{} is here.",
    "See {}",
    "See {}.",
    "We know {}, don't we?",
    "Is it {}?",
    "It is ({}) today.",
    'They say "{}" here.',
    "Between {} and {} is the house.",
    "Die Häuser: {}; schöne Gärten.",
    "Eins.\n{}\nZwei.",
]


def sibling(example: str, chance: random.Random) -> str:
    """Return a string with other figures."""
    return re.sub("[1-9]", lambda _: chance.choice("123456789"), example)


@pytest.mark.parametrize(("form", "example"), EXAMPLES, ids=[f"{form.name}: {example}" for form, example in EXAMPLES])
def test_each_example_is_found_whole_in_every_arrangement(form: Form, example: str):
    for arrangement in ARRANGEMENTS:
        text = arrangement.replace("{}", example)
        found = [text[begin:end] for begin, end, _ in find_protected(text)]
        assert found == [example] * arrangement.count("{}"), text


@pytest.mark.parametrize("form", FORMS, ids=[form.name for form in FORMS])
def test_each_form_has_two_examples_or_more_and_finds_them_itself(form: Form):
    assert len(set(form.examples)) > 1 or form.kind is Kind.PLACEHOLDER
    for example in form.examples:
        assert form.may_be_in(example)
        assert (0, len(example)) in [(begin, end) for begin, end, _ in spans_of(form, example)]


@pytest.mark.parametrize("seed", range(20))
def test_strings_with_other_figures_are_found_as_well(seed: int):
    chance = random.Random(seed)
    for form, example in EXAMPLES:
        if form.kind in (Kind.NUMBER, Kind.PLACEHOLDER) and "XXX" not in example:
            text = f"We see {(other := sibling(example, chance))} there."
            assert [text[begin:end] for begin, end, _ in find_protected(text)] == [other], text


@pytest.mark.parametrize(("form", "example"), EXAMPLES, ids=[f"{form.name}: {example}" for form, example in EXAMPLES])
def test_words_that_touch_a_string_are_kept_with_it_if_the_table_says_so(form: Form, example: str):
    text = f"Go {example} on"
    assert kept_strings(text, find_protected(text)) == [example]
    if not (example[0].isalnum() or example[-1].isalnum() or form.kind is Kind.CODE or example == 2 * "\\"):
        text = f"Go {example}é on"
        kept = kept_strings(text, find_protected(text))
        if kept and kept[0].startswith(example):
            assert kept == [example + "é" * (form.around == WORD)]


@pytest.mark.parametrize(
    ("text", "figures"),
    [
        ("He has 5 cars and 12 boats.", ["5", "12"]),
        ("A 5-year-old boy, no. 7: 3", ["5", "7", "3"]),
        ("The 5th of May, 3D, MP3, 1.5 and 100 and 2019", []),
        ("{0} of 5 and %2$s of 7", ["5", "7"]),
    ],
)
def test_small_numbers_beside_what_is_protected_are_figures(text: str, figures: list[str]):
    spans = with_figures(text, find_protected(text))
    assert [text[begin:end] for begin, end, kind in spans if kind is Kind.FIGURE] == figures
    assert spans == sorted(spans)


@given(st.text(alphabet="0123456789 ,.:-–$€§<~kmghoursé²½\n", max_size=60), st.sampled_from([1, 2, 400]))
def test_numbers_are_found_near_digits_as_in_the_whole_text(part: str, times: int):
    text = part * times
    for form in FORMS:
        if form.kind is Kind.NUMBER and not form.trims:
            found = [each.span() for each in form.pattern.finditer(text) if form.accepts(text, *each.span())]
            assert [span[:2] for span in spans_of(form, text)] == found


PARTS = sorted({part for _, example in EXAMPLES for part in (example, example[:-1], example[: len(example) // 2])})


@pytest.mark.parametrize("part", [each for each in PARTS if each])
def test_many_strings_and_begins_of_strings_take_a_time_that_is_linear_in_their_number(part: str):
    growth = growth_of(lambda size: lambda: find_protected((part * size)[:size]), 4_000, worth=0.002, most=32_000)
    assert growth.ratio <= LINEAR
