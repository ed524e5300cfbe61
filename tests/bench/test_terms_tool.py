"""The comparison of ways to get wanted words into translations: its list, its judgement and its methods."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from lingon.bench.tools.kept_terms import KINDS, is_kept
from lingon.bench.tools.kept_terms import measure as measure_kept
from lingon.bench.tools.term_costs import cases_of, made_up_terms, measure
from lingon.bench.tools.term_methods import (
    Linked,
    Sentence,
    ServiceMethods,
    Wanted,
    aligned_word,
    cased,
    looked_for,
    repaired,
    standing,
)
from lingon.bench.tools.term_mining import mine
from lingon.bench.tools.terms import Compared, compare, compared_engines, masked, masked_chrf, read, table
from lingon.bundle.store import open_bundle
from lingon.errors import SettingsError
from lingon.files import read_parallel
from lingon.serving.in_process import LocalTranslator
from lingon.serving.models.loading import LoadOptions, load_translator
from lingon.serving.translation.translator import Translator
from lingon.terms.matcher import Matcher
from tests.support.repository import ROOT
from tests.support.shipped_model import MODEL

LIST = ROOT / "tests" / "data" / "terms.tsv"
HOUSE = Wanted("house", "Gebäude")


@pytest.fixture(scope="module")
def service() -> Iterator[ServiceMethods]:
    with LocalTranslator(MODEL) as translator:
        yield ServiceMethods(translator, beam_size=2)


@pytest.fixture(scope="module")
def loaded() -> Iterator[Translator]:
    translator = load_translator(open_bundle(MODEL), LoadOptions(engines=1, threads=1))
    yield translator
    translator.engine.stop(0)


def word_by_word(source: str, text: str) -> Linked:
    """A translation whose words are linked in their order."""
    spans = [[(text.index(word), text.index(word) + len(word)) for word in text.split()] for text in (source, text)]
    return Linked(source, text, tuple((*pair, 1.0) for pair in zip(*spans, strict=True)))


def test_each_sentence_of_the_list_has_one_of_the_nouns():
    sentences = [each.sentence for each in read(LIST)]
    terms = {term for each in sentences for term in each.terms}
    assert len(sentences) == len({each.text for each in sentences}) == 196
    assert len(terms) == len({source for source, _ in terms}) == 20
    for each in sentences:
        assert [term for term in terms if looked_for(each.text, term.source)] == list(each.terms)


@pytest.mark.parametrize("text", ["Das Gebäude.", "das gebäude", "GEBÄUDE", "des Gebäudes", "den Gebäuden, die"])
def test_a_term_stands_in_any_case_and_inflected(text):
    assert text[slice(*standing(text, "Gebäude"))].lower().startswith("gebäude")


@pytest.mark.parametrize("text", ["Das Haus.", "Die Nebengebäude.", "Gebäudeteile", "Gebäu"])
def test_a_term_does_not_stand_in_other_words(text):
    assert standing(text, "Gebäude") is None


@pytest.mark.parametrize(("found", "term"), [("house", "köter"), ("House", "Köter"), ("HOUSE", "KÖTER")])
def test_a_term_gets_the_case_of_its_source(found, term):
    assert cased("köter", found) == term


def test_the_aligned_word_has_most_weight():
    linked = Linked(
        "a house", "im großen Haus", (((2, 7), (3, 6), 0.3), ((2, 7), (10, 14), 0.2), ((2, 7), (12, 14), 0.2))
    )
    assert aligned_word(linked, "house") == (10, 14)
    assert aligned_word(linked, "garden") is None


def test_a_repair_decodes_from_the_leftmost_missed_term_once_for_each():
    asked = []

    def decode(texts: Sequence[str], prefixes: Sequence[str]) -> list[Linked]:
        """Translate each word into itself, so that every term that is not in the prefix is missed."""
        asked.append(list(zip(texts, prefixes, strict=True)) if prefixes else list(texts))
        begins = list(prefixes) or [""] * len(texts)
        return [
            word_by_word(text, " ".join([*begin.split(), *text.split()[len(begin.split()) :]]))
            for text, begin in zip(texts, begins, strict=True)
        ]

    both = Sentence("the dog has a house", (HOUSE, Wanted("dog", "Köter")))
    free = Sentence("the Gebäude is a house", (HOUSE,))
    assert repaired(decode, [both, free]) == ["the Köter has a Gebäude", "the Gebäude is a house"]
    assert asked == [
        [both.text, free.text],
        [(both.text, "the Köter")],
        [(both.text, "the Köter has a Gebäude")],
    ]


def test_a_prefix_that_an_engine_refuses_leaves_the_translation_as_it_was():
    def decode(texts: Sequence[str], prefixes: Sequence[str]) -> list[Linked]:
        return [Linked(text, "", ()) if prefixes else word_by_word(text, text) for text in texts]

    assert repaired(decode, [Sentence("the house", (HOUSE,))]) == ["the house"]


def test_some_methods_can_be_chosen_and_are_compared_with_none(service, tmp_path):
    (engine,) = compared_engines(service, MODEL, tmp_path, ["terms"])
    assert list(engine.methods) == ["nothing", "terms"]
    with pytest.raises(SettingsError, match="--method must be one of nothing"):
        compared_engines(service, MODEL, tmp_path, ["magic"])


def test_a_mask_hides_the_term_and_the_word_in_its_place():
    free = word_by_word("the old house", "das alte Haus")
    assert masked("das alte Gebäude", [HOUSE]) == masked("das alte Haus", [HOUSE], free) == "das alte @"
    assert masked("das alte Haus", [HOUSE]) == "das alte Haus"


def test_chrf_falls_with_the_rest_of_a_translation_and_not_with_its_term():
    free, sentence = word_by_word("the old house", "das alte Haus"), Sentence("the old house", (HOUSE,))
    texts = ("das alte Haus", "das alte Gebäude", "das neue Gebäude", "das neue Haus")
    unchanged, term, other, missed = (masked_chrf([text], [free], [sentence]) for text in texts)
    assert unchanged == term == pytest.approx(100)
    assert missed < other < 80


def test_every_method_is_measured_beside_the_translation_without_terms(service):
    given = read(LIST)[:6]
    sentences = [each.sentence for each in given]
    names = ("nothing", "naive replacement", "replace in place", "placeholder", "repair by prefix")
    methods = {name: service.all()[name] for name in names}
    texts, costs = compare(methods, sentences, rounds=1)
    rows = {row["method"]: row for row in table(service, [Compared(methods, service.linked)], texts, costs, given)}
    nothing = rows.pop("nothing")
    assert nothing["satisfied"] == 0
    assert nothing["chrF, terms masked"] == pytest.approx(100)
    assert nothing["cost"] == 1
    for row in rows.values():
        assert row["satisfied"] >= 5
        assert row["log p a token"] < nothing["log p a token"]


def test_terms_are_mined_from_words_of_both_sides_that_are_rare(service):
    pairs = list(read_parallel(LIST.parent / "tatoeba.en", LIST.parent / "tatoeba.de"))
    mined = mine(service.translator, pairs[:60], count=20, terms=1)
    assert len(mined) == 20
    words = Counter(word for pair in pairs[:60] for word in set(re.findall(r"\w+", pair[0].lower())))
    for sentence, reference in mined:
        (term,) = sentence.terms
        assert (sentence.text, reference) in pairs
        assert looked_for(sentence.text, term.source)
        assert looked_for(reference, term.target)
        assert words[term.source.lower()] <= 2
        assert term.source != term.target


async def test_the_cost_of_terms_is_relative_to_the_same_sentences_without_terms(loaded):
    sentences = [each.sentence for each in read(LIST)]
    cases = cases_of(sentences[:4], sentences[4:8], entries=300, beam_size=1)
    for case in cases.values():
        free = cases[case.base]
        assert [each.texts for each in free.requests] == [each.texts for each in case.requests]
        assert not any(each.terms or each.glossaries for each in free.requests)
    rows = {row["case"]: row for row in await measure(loaded, cases, rounds=1)}
    for name, row in rows.items():
        with_terms = name.endswith("in every sentence")
        assert row["terms"] == row["repaired or constrained"] == (4 if with_terms else 0), name
        assert row["CPU ms a sentence"] > 0
        assert (row["share of free throughput, %"] == 100) is (cases[name].base == name)


def test_made_up_terms_are_different_and_in_no_text():
    found = made_up_terms(2000)
    assert len({each.source for each in found}) == len(found) == 2000
    matcher = Matcher(found, "en")
    assert not [each for each in read(LIST) if matcher.find(each.sentence.text)]
    assert matcher.find(f"The {found[7].source}.")


def test_a_string_is_kept_as_a_whole_and_once():
    assert is_kept("Ich sah 🚀.", "🚀")
    assert is_kept("Ich sah a_b().", "a_b()")
    assert not is_kept("Ich sah a_b.", "a_b()")
    assert not is_kept("Ich sah 8-5/Zeh.", "8-5/Z")
    assert not is_kept("🚀 🚀", "🚀")


def test_strings_of_each_kind_are_tried_in_place_of_a_name(service):
    rows, lost = measure_kept(service.translator, ["Tom is here.", "I saw Tom."], 2 * len(KINDS), beam_size=1)
    assert [row["kind"] for row in rows] == list(KINDS)
    assert {row["strings"] for row in rows} == {2}
    assert sum(row["kept"] for row in rows) + len(lost) == 2 * len(KINDS)
    assert {"URL", "Cyrillic", "emoji"} <= {row["kind"] for row in rows if row["kept"] == 2}
