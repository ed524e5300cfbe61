"""The identifiers of languages: whether a text is in a language, and the codes that they give it."""

from __future__ import annotations

import pytest

from lingon.identifiers import Identifier, Identifiers, load_identifiers


@pytest.fixture(scope="module")
def identifiers() -> Identifiers:
    found = load_identifiers()
    assert found is not None
    return found


def test_varieties_of_one_language_have_the_codes_of_all(identifiers: Identifiers):
    assert identifiers.codes_of("de") == {"de"}
    assert identifiers.codes_of("nb") == identifiers.codes_of("nn") >= {"no", "nn"}
    assert identifiers.codes_of("hr") == identifiers.codes_of("sr")


def test_an_unknown_language_has_no_codes(identifiers: Identifiers):
    assert identifiers.codes_of("xyz") == frozenset()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("The committee will meet again on Monday.", "en"),
        ("THE COMMITTEE WILL MEET AGAIN ON MONDAY.", "en"),
        ("Der Ausschuss trifft sich am Montag wieder.", "de"),
        ("Комитет снова соберётся в понедельник.", "ru"),
        ("委员会将于星期一再次开会。", "zh"),
    ],
)
def test_a_text_is_in_its_language_alone(identifiers: Identifiers, text: str, code: str):
    confirmed = [each for each in ("en", "de", "ru", "zh", "fr") if identifiers.confirms(text, frozenset({each}), 0.5)]
    assert confirmed == [code]


def test_either_identifier_can_confirm_a_language_and_varieties_are_added():
    by_bytes = Identifier(lambda text: [("de", 0.9), ("en", 0.1)], 1.0, 0.0)
    found = Identifiers(by_bytes, by_bytes, lambda text: [("no", 0.4), ("nb", 0.3), ("en", 0.2)])
    assert found.confirms("text", frozenset({"de"}), 0.9)
    assert found.confirms("text", frozenset({"no", "nb", "nn"}), 0.7)
    assert not found.confirms("text", frozenset({"en"}), 0.25)
