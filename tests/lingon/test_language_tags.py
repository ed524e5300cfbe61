"""Language tags: their canonical form, whether two are one, and the distance between two."""

from __future__ import annotations

import pytest

from lingon.errors import InvalidRequest
from lingon.language_tags import MAX_CHARACTERS, canonical, distance, is_same_language, is_same_tag


@pytest.mark.parametrize(
    ("tag", "expected"),
    [("EN", "en"), ("de_at", "de-AT"), ("zh-HANT-tw", "zh-Hant-TW"), ("eng_Latn", "en-Latn"), ("deu", "de")],
)
def test_language_tags_have_one_canonical_form(tag: str, expected: str):
    assert canonical(tag, "field") == expected


def test_three_letters_are_the_two_of_iso_639_1_where_it_has_some():
    """Members of a macrolanguage, such as lvs, have the letters of the whole, but those of others keep their own."""
    pairs = {"gla": "gd", "hat": "ht", "nya": "ny", "mri": "mi", "lvs": "lv", "gaz": "om", "als": "sq", "srp": "sr"}
    assert {tag: canonical(tag, "field") for tag in pairs} == pairs
    for tag in ("ary", "azb", "ckb", "yue", "ast", "de", "qaa"):
        assert canonical(tag, "field") == tag


def test_a_language_matches_less_specific_models_but_not_more_specific_ones():
    assert [distance("en-Latn-US", served) for served in ("en-Latn-US", "en-Latn", "en", "de")] == [0, 1, 2, None]
    assert distance("en", "en-US") is None


LANGUAGES = ["pt", "por", "pt-BR", "PT_br", "por-BR", "pt_PT", "pt_PT.UTF-8", "sr@latin", "srp_Cyrl", "sr", "", "name"]


@pytest.mark.parametrize("tag", LANGUAGES)
@pytest.mark.parametrize("other", LANGUAGES)
def test_one_tag_is_one_language_and_both_relations_divide_tags_into_classes(tag: str, other: str):
    for same in (is_same_tag, is_same_language):
        assert same(tag, tag)
        assert same(tag, other) == same(other, tag)
        assert all(same(tag, each) == same(other, each) for each in LANGUAGES if same(tag, other))
    assert is_same_language(tag, other) or not is_same_tag(tag, other)


def test_tags_that_are_written_otherwise_are_one_and_varieties_are_one_language():
    tags = {each: [other for other in LANGUAGES if is_same_tag(each, other)] for each in ("pt", "pt-BR", "sr", "")}
    assert tags == {"pt": ["pt", "por"], "pt-BR": ["pt-BR", "PT_br", "por-BR"], "sr": ["sr"], "": [""]}
    assert [each for each in LANGUAGES if is_same_language(each, "pt-AO")] == LANGUAGES[:7]
    assert [each for each in LANGUAGES if is_same_language(each, "sr_Latn")] == ["sr@latin", "srp_Cyrl", "sr"]


@pytest.mark.parametrize("tag", ["EN", "de_at", "zh-HANT-tw", "eng_Latn", "deu", "arb-EG", "lvs"])
def test_a_tag_and_its_canonical_form_are_one(tag: str):
    assert is_same_tag(tag, canonical(tag, "field"))


def test_a_tag_of_any_length_is_answered_at_once():
    """Matching a tag takes time by the square of its subtags, of which a message of 4 MB can hold a million."""
    with pytest.raises(InvalidRequest, match="must be a BCP-47 language tag"):
        canonical("en" + "-ab" * 1_000_000, "source_language_code")
    longest = "en" + "-ab" * ((MAX_CHARACTERS - 2) // 3)
    assert distance(canonical(longest, "source_language_code"), "en") == longest.count("-")
