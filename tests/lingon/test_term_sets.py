"""Sets of equivalent terms: read from tables, joined, and found again in the terms of the pairs of languages."""

from __future__ import annotations

import random

import pytest

from lingon.errors import InvalidRequest
from lingon.google.term_sets import check_languages, is_of_sets, joined, read_sets, sets_of, terms_of
from lingon.translation.v1 import translation_pb2 as pb

LANGUAGES = ["de", "en", "fr"]
SEA = {"en": "sea", "de": "Meer", "fr": "mer"}
CAT = {"en": "cat", "de": "Katze"}


def pairs(*sets: dict[str, str]) -> dict[tuple[str, str], list[tuple[str, str]]]:
    found = terms_of(sets, LANGUAGES)
    return {pair: [(term.source, term.target) for term in own] for pair, own in found.items() if own}


def test_a_table_names_its_languages_in_the_first_row_and_may_lack_terms():
    content = '\ufeffen,FR,pos,de,description\nsea,mer,noun,Meer,"the, sea"\ncat,,,Katze\n , ,,,\n'.encode()
    assert read_sets(content, LANGUAGES, "f") == [SEA, CAT, {}]
    assert read_sets(b"en\tde\nsea\tMeer", LANGUAGES, "f", delimiter="\t") == [{"en": "sea", "de": "Meer"}]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "f: the first row must name languages of the glossary, each once; got 0 in 0 columns"),
        (b"en\nsea", "each once; got 1 in 1 columns"),
        (b"en,de,en\na,b,c", "each once; got 2 in 3 columns"),
        (b"en,es\nsea,mar", 'got "es"'),
        (b"sea,Meer", 'got "sea"'),
        (b"en,de\na,b\na,b,c", "f: entry 2 has 3 columns, and the first row has 2"),
        (b'en,de\n"a', "f is no table: "),
        (b"en,de\n\xff,b", "f is not UTF-8"),
    ],
)
def test_a_table_that_has_no_sets_is_refused_in_one_line(content: bytes, message: str):
    with pytest.raises(InvalidRequest) as caught:
        read_sets(content, LANGUAGES, "f")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_term_of_a_set_is_the_translation_of_every_other_one():
    assert pairs(SEA, CAT) == {
        ("de", "en"): [("Meer", "sea"), ("Katze", "cat")],
        ("en", "de"): [("sea", "Meer"), ("cat", "Katze")],
        ("en", "fr"): [("sea", "mer")],
        ("fr", "en"): [("mer", "sea")],
        ("de", "fr"): [("Meer", "mer")],
        ("fr", "de"): [("mer", "Meer")],
    }


def test_sets_with_a_term_in_common_are_one():
    chain = [{"en": "sea", "de": "Meer"}, CAT, {"fr": "mer", "es": "mar"}, {"de": "MEER", "fr": "mer"}]
    assert joined(chain, "f") == [{"en": "sea", "de": "Meer", "fr": "mer", "es": "mar"}, CAT]
    assert joined([{"en": "alone"}, {"en": "alone"}, {}], "f") == []


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ([SEA, CAT, {"en": "ocean", "de": "Meer"}], "f: entries 1 and 3 have a term in common, and in en the terms"),
        ([CAT, SEA, {"en": "cat", "fr": "mer"}], "f: entries 1 and 3 have a term in common, and in "),
        ([SEA, {"en": "a" * 257, "de": "b"}], "f: entry 2: its source"),
        ([{"en": "a\x07", "de": "b"}], "control character"),
    ],
)
def test_terms_that_contradict_each_other_or_are_out_of_bounds_are_named(sets: list[dict[str, str]], message: str):
    with pytest.raises(InvalidRequest) as caught:
        joined(sets, "f")
    assert message in str(caught.value)


def test_sets_are_found_again_in_the_terms_of_their_pairs():
    draw = random.Random(1)
    for _ in range(100):
        sets = [
            {tag: f"{tag} {number}" for tag in draw.sample(LANGUAGES, draw.choice([2, 3]))}
            for number in range(draw.randrange(6))
        ]
        terms = terms_of(sets, LANGUAGES)
        assert is_of_sets(terms)
        found = sets_of(terms)
        assert found is not None
        assert sorted(map(sorted, (each.items() for each in found))) == sorted(
            map(sorted, (each.items() for each in sets))
        )


def test_other_terms_are_no_sets():
    assert not is_of_sets([("en", "de")])
    assert not is_of_sets([("en", "de"), ("de", "en"), ("en", "fr"), ("fr", "en")])
    one, other = pb.Term(source="sea", target="Meer"), pb.Term(source="Meer", target="sea")
    assert sets_of({("en", "de"): [one], ("de", "en"): [other]}) == [{"en": "sea", "de": "Meer"}]
    assert sets_of({("en", "de"): [one], ("de", "en"): []}) is None
    with_variant = pb.Term(source="sea", target="Meer", variants=["See"])
    assert sets_of({("en", "de"): [with_variant], ("de", "en"): [other]}) is None
    ocean = pb.Term(source="ocean", target="Meer")
    assert sets_of({("en", "de"): [one, ocean], ("de", "en"): [other]}) is None


def test_a_glossary_has_2_to_32_languages():
    assert check_languages(["fr", "EN", "en"], "f") == ["en", "fr"]
    for codes in (["en"], ["en", "EN"], [f"a{chr(97 + one)}{chr(97 + two)}" for one in range(6) for two in range(6)]):
        with pytest.raises(InvalidRequest, match="f must have 2 to 32 languages"):
            check_languages(codes, "f")
