"""Numbers that a large model writes as its language does."""

from __future__ import annotations

import pytest

from lingon.serving.second.numbers import with_numbers_of


@pytest.mark.parametrize(
    ("answer", "kept", "found"),
    [
        ("Es waren 4.000 Leute.", ["4,000"], "Es waren 4,000 Leute."),
        ("Es waren 4000 Leute.", ["4,000"], "Es waren 4,000 Leute."),
        ("Es waren 4 000 Leute.", ["4,000"], "Es waren 4,000 Leute."),
        ("Il y en avait 4\u202f000.", ["4,000"], "Il y en avait 4,000."),
        ("Es waren 1.234.567 Leute.", ["1234567"], "Es waren 1234567 Leute."),
        ("um 2.30 Uhr", ["2:30"], "um 2:30 Uhr"),
        ("2,4 und 4.000", ["4,000", "2.4"], "2.4 und 4,000"),
        ("4.000 und 4.000", ["4,000"], "4,000 und 4.000"),
        ("4,000 und 4.000", ["4,000"], "4,000 und 4.000"),
        ("4,000 und 4.000", ["4,000", "4,000"], "4,000 und 4,000"),
        ("4.000 und 4,000", ["4.000", "4,000"], "4.000 und 4,000"),
    ],
)
def test_a_number_is_written_as_it_is_kept(answer: str, kept: list[str], found: str):
    assert with_numbers_of(answer, kept) == found


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        ("Es sind 15 Meter.", ["1.5"]),
        ("Es sind 1,50 Meter.", ["1.5"]),
        ("um 23.0 Uhr", ["2:30"]),
        ("Es waren 40.00 Leute.", ["4,000"]),
        ("Es waren 14.000 Leute.", ["4,000"]),
        ("Es waren 4.000 Leute.", ["{4,000}"]),
        ("im Jahr 2 3000 Leute", ["23,000"]),
        ("ohne Zahl", ["4,000"]),
        ("Es waren 4.000 Leute.", []),
    ],
)
def test_another_number_and_a_string_that_is_none_stay(answer: str, kept: list[str]):
    assert with_numbers_of(answer, kept) == answer
