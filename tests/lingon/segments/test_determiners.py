"""The determiner before a position of a text, and its other forms."""

from __future__ import annotations

import pytest

from lingon.segments.determiners import other_forms


@pytest.mark.parametrize(
    ("language", "before", "determiner", "some"),
    [
        ("de", "Er sieht das ", "das ", {"den ", "die "}),
        ("de-AT", "Das ", "Das ", {"Der ", "Die "}),
        ("de", "Er ist im ", "im ", {"in der "}),
        ("de", "Er ist in der ", "in der ", {"im "}),
        ("fr", "Il voit l'", "l'", {"le ", "la "}),
        ("fr", "Il voit l’", "l’", {"le ", "la "}),
        ("it", "nella ", "nella ", {"nel ", "nell'"}),
        ("nb", "en ", "en ", {"et "}),
    ],
)
def test_the_determiner_that_ends_at_a_position_has_other_forms(
    language: str, before: str, determiner: str, some: set[str]
) -> None:
    found = other_forms(f"{before}Wort", len(before), language)
    assert found is not None
    (begin, end), forms = found
    assert before[begin:end] == determiner
    assert end == len(before)
    assert some <= set(forms)
    assert determiner not in forms


@pytest.mark.parametrize(
    ("language", "before"),
    [("de", "Er sieht "), ("de", ""), ("de", "Räder "), ("ja", "der "), ("", "der "), ("de", "der, ")],
)
def test_a_word_that_is_no_determiner_has_none(language: str, before: str) -> None:
    assert other_forms(f"{before}Wort", len(before), language) is None
