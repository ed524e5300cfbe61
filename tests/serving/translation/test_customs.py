"""How languages write numbers, by the locale data of Unicode."""

from __future__ import annotations

import pytest

from lingon.segments.protection.separators import Custom, Separators
from lingon.serving.translation.planning.customs import custom_of


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
