"""Text for the gates that is made from locale data: in the language, each text once, the same every time."""

from __future__ import annotations

import pytest

from lingon.fetching.catalogue import packaged
from lingon.importers.gate_text import KINDS, UNITS, made_sentences

SOURCES = sorted({each.source_language for each in packaged().models})


@pytest.mark.parametrize("language", SOURCES)
def test_there_is_text_for_every_language_of_the_catalogue(language: str) -> None:
    found = made_sentences(language, 200)
    assert len(set(found)) == len(found) == 200
    assert all(text.strip() == text and text for text in found)
    assert not any(unit in text for unit in UNITS for text in found)


def test_the_same_language_gives_the_same_text_and_more_of_it_begins_alike() -> None:
    assert made_sentences("de", 300)[:100] == made_sentences("de", 100)


def test_the_first_texts_have_all_kinds_because_gates_read_the_first() -> None:
    first = made_sentences("en", len(KINDS) + 1)
    assert any(" and " in text for text in first)
    assert any("," in text and any(month in text for month in ("June", "July")) for text in first)
    assert max(map(len, first)) > 3 * min(map(len, first))


def test_a_script_and_a_region_fall_back_to_the_language() -> None:
    assert made_sentences("zh-Hans", 20) != made_sentences("zh-Hant", 20)
    assert made_sentences("de-XX", 20) == made_sentences("de", 20)


@pytest.mark.parametrize("language", ["xx", "mul", ""])
def test_a_language_without_locale_data_has_no_text(language: str) -> None:
    assert made_sentences(language, 10) == []
