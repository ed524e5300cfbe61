"""What `lingon.bench.tools.quality.protection` asks a model, and how it makes its cases."""

from __future__ import annotations

import random

import pytest

from lingon.bench.tools.quality.protection.placeholders import KINDS, POSITIONS, usable_pairs
from lingon.segments.protection.find import find_protected

PAIR = ("I saw Tom at home.", "Ich sah Tom daheim.")


@pytest.mark.parametrize(("place", "make", "count"), POSITIONS)
def test_a_case_has_its_strings_once_and_each_is_found(place, make, count):
    case = make(PAIR, ["Tom", "Boston"], KINDS[:count], random.Random(0))
    assert case.strings == KINDS[:count]
    assert [case.text[begin:end] for begin, end, _ in find_protected(case.text)] == sorted(
        case.strings, key=case.text.index
    )
    assert case.reference is None or case.strings[0] in case.reference


def test_pairs_have_the_name_once_on_both_sides():
    others = [
        ("Tom saw Tom at home.", "Tom sah Tom."),
        ("I saw Tom's old car.", "Ich sah Toms Auto."),
        ("Tom!", "Tom!"),
    ]
    assert usable_pairs([PAIR, *others], "Tom") == [PAIR]
