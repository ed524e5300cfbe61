"""Where terms are found in texts, in which case targets are written, and where they stand in translations."""

from __future__ import annotations

import sys
import threading
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lingon.terms.matcher import Matcher, in_case, stands
from lingon.terms.term import Term, TermError, check_terms
from tests.support.timing import LINEAR, growth_of

LETTERS = "aAbB"
WORDS = st.text(alphabet=LETTERS, min_size=1, max_size=2)
PHRASES = st.lists(WORDS, min_size=1, max_size=4)


def found(terms: list[Term], text: str, language: str = "en", kept=()) -> list[tuple[str, str]]:
    """What is found in a text: as it is written there, and the targets."""
    return [(text[begin:end], term.target) for begin, end, term in Matcher(terms, language).find(text, kept)]


def term(source: str, **rest) -> Term:
    return Term(source, f"<{source}>", **rest)


def by_comparing(phrases: list[str], words: list[str]) -> list[tuple[int, int]]:
    """The leftmost longest phrases in words, by comparing every phrase at every place."""
    places, at = [], 0
    split = [phrase.lower().split() for phrase in phrases]
    while at < len(words):
        rest = [word.lower() for word in words[at:]]
        longest = max((len(each) for each in split if rest[: len(each)] == each), default=0)
        if longest:
            places.append((at, at + longest))
        at += max(longest, 1)
    return places


@given(st.lists(PHRASES.map(" ".join), max_size=8), st.lists(WORDS, max_size=12))
@example(["a b a b", "b a"], ["a", "b", "a", "a"])
def test_the_longest_term_at_the_first_place_is_found(phrases: list[str], words: list[str]):
    terms = check_terms(Term(phrase, "x") for phrase in phrases)
    text = " ".join(words)
    begins = [len(" ".join(words[:at])) + (at > 0) for at in range(len(words))]
    wanted = [(begins[first], begins[last - 1] + len(words[last - 1])) for first, last in by_comparing(phrases, words)]
    assert [each[:2] for each in Matcher(terms, "en").find(text)] == wanted


@pytest.mark.parametrize(
    ("sources", "text", "wanted"),
    [
        ("house", "The house, the houseboat, a greenhouse.", ["house"]),
        ("house", "HOUSE House hoUse", ["HOUSE", "House", "hoUse"]),
        ("house", "(house) house's house-boat", ["house", "house", "house"]),
        ("New York", "New  York New\nYork New\u00a0York NewYork", ["New  York", "New\nYork", "New\u00a0York"]),
        ("dog|hot dog", "a hot dog, a dog", ["hot dog", "dog"]),
        ("hot dog stand|dog", "a hot dog here", ["dog"]),
        ("e-mail", "e-mail e‑mail e mail email", ["e-mail", "e‑mail"]),
        ("don't", "Don’t don't", ["Don’t", "don't"]),
        ("eau", "l'eau, l’eau", ["eau", "eau"]),
        ("C++", "C++ and C", ["C++"]),
        (".NET", "use .NET, ASP.NET", [".NET", ".NET"]),
        ("5", "5 and 3.5 and 1,500 and 5.", ["5", "5"]),
        ("caf\u00e9", "cafe\u0301 CAF\u00c9 caf\u00e9\u0300", ["cafe\u0301", "CAF\u00c9"]),
        ("Straße", "STRASSE strasse", ["STRASSE", "strasse"]),
        ("house", "ho\u00aduse \u200bhouse", ["ho\u00aduse", "house"]),
        ("東京", "私は東京都にいた", ["東京"]),
        ("กรุงเทพ", "ฉันอยู่กรุงเทพครับ", ["กรุงเทพ"]),
        ("हिन्दी", "वह हिन्दी बोलता है, हिन्दीभाषी", ["हिन्दी"]),
        ("शहर", "शहरों में शहर", ["शहर"]),
        ("ก", "กิ ก", ["ก"]),
        ("π\u03ac\u03c2", "π\u1f71\u03c2", ["π\u1f71\u03c2"]),
        ("кот", "Кот, КОТ, который", ["Кот", "КОТ"]),
        ("𝒳", "𝒳 and 😀 house", ["𝒳"]),
        ("a_b", "a_b a b_c", ["a_b"]),
    ],
)
def test_a_term_is_found_as_a_word(sources: str, text: str, wanted: list[str]):
    assert [each for each, _ in found(list(map(term, sources.split("|"))), text)] == wanted


@given(st.text(alphabet="aé漢ñ -'\u00ad\u0301ßİ😀", max_size=20))
def test_places_are_those_of_the_text_as_it_was_given(text: str):
    for begin, end, each in Matcher([term("é"), term("漢"), term("ss"), term("a é"), term("ñ")], "en").find(text):
        letters = unicodedata.normalize("NFC", text[begin:end].replace("\u00ad", "")).casefold().split()
        assert letters == each.source.split()


@pytest.mark.parametrize(("language", "wanted"), [("tr", ["ISI", "ısı"]), ("en", ["ısı"])])
def test_the_case_of_turkish_letters_is_that_of_the_language(language: str, wanted: list[str]):
    assert [each for each, _ in found([term("ısı")], "ISI ısı", language)] == wanted


def test_a_term_whose_case_counts_is_found_as_it_is_written_and_before_others():
    terms = [Term("apple", "Apfel"), Term("Apple", "Apple", exact=True), Term("IT", "IT", exact=True)]
    expected = [("Apple", "Apple"), ("apple", "Apfel"), ("APPLE", "Apfel"), ("IT", "IT")]
    assert found(terms, "Apple apple APPLE it IT") == expected


def test_a_shorter_term_is_found_where_the_case_of_a_longer_one_is_wrong():
    terms = [Term("New York Times", "NYT", exact=True), Term("new york", "Neu York")]
    assert found(terms, "New York times. New York Times.") == [("New York", "Neu York"), ("New York Times", "NYT")]


def test_no_term_is_found_in_what_is_kept():
    text = "{house} house x<house>"
    kept = [(0, 7), (15, 22)]
    matcher = Matcher([term("house"), term("house house")], "en")
    assert [each[:2] for each in matcher.find(text, kept)] == [(8, 13)]
    assert [each[:2] for each in matcher.find("house house house", [(6, 11)])] == [(0, 5), (12, 17)]


def test_the_rest_of_a_word_that_is_kept_in_part_is_no_word():
    assert found([term("house")], "house", kept=[(0, 1)]) == []
    assert found([term("use")], "house", kept=[(0, 2)]) == []


def test_inflected_forms_are_found_by_their_stems_if_that_is_wanted():
    terms = [Term("house", "Haus", stems=True), Term("run fast", "rennen", stems=True), Term("dog", "Hund")]
    wanted = [("houses", "Haus"), ("runs  fast", "rennen"), ("dog", "Hund")]
    assert found(terms, "houses; he runs  fast; dogs, dog") == wanted


def test_a_word_itself_is_taken_before_one_with_its_stem():
    terms = [Term("house", "Haus", stems=True), Term("houses", "Häuser", stems=True), Term("housing", "Wohnen")]
    wanted = [("houses", "Häuser"), ("house", "Haus"), ("housing", "Wohnen"), ("housed", "Haus")]
    assert found(terms, "houses house housing housed") == wanted


def test_an_inflected_form_of_a_term_whose_case_counts_has_its_case():
    terms = [Term("Apple", "Apple", exact=True, stems=True)]
    assert found(terms, "Apples apples Apple APPLE") == [("Apples", "Apple"), ("Apple", "Apple")]


@pytest.mark.parametrize(("language", "where"), [("ja", "in ja"), ("", "in a language that is not named")])
def test_a_language_without_stems_is_named(language: str, where: str):
    message = f'^entry 2: there are no stems of words {where}, but "dog" is looked for by them$'
    with pytest.raises(TermError, match=message) as raised:
        Matcher([term("cat"), term("dog", stems=True)], language)
    assert raised.value.number == 2


def test_threads_find_the_stems_of_words_at_the_same_time():
    """Snowball keeps the word that it works on, so that two threads would mix theirs."""
    matcher = Matcher([term("walk", stems=True)], "en")
    text = " ".join("walking" if number % 2 else f"b{number:x}izations" for number in range(2000))
    results: list[int] = []
    threads = [threading.Thread(target=lambda: results.append(len(matcher.find(text)))) for _ in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert results == [1000] * 4


def test_a_matcher_without_terms_finds_nothing():
    assert Matcher([], "en").find("a house") == []


def test_a_matcher_tells_what_it_takes_in_memory():
    sizes = [Matcher([term(f"word {number}") for number in range(count)], "en").size_bytes for count in (100, 200)]
    assert 100 * 200 < sizes[1] - sizes[0] < 100 * 2000


def test_finding_terms_takes_time_that_is_linear_in_the_text():
    matcher = Matcher([Term(" ".join(["a"] * length + ["b"]), "x") for length in (1, 60, 120)], "en")
    assert growth_of(lambda size: lambda: matcher.find("a " * size), 500, worth=0.002, most=8000).ratio <= LINEAR


@pytest.mark.parametrize(
    ("source", "target", "there", "wanted"),
    [
        ("house", "Gebäude", "house", "Gebäude"),
        ("house", "Gebäude", "HOUSE", "GEBÄUDE"),
        ("house", "gebäude", "House", "Gebäude"),
        ("house", "“gebäude”", "House", "“Gebäude”"),
        ("new york", "neu york", "New York", "Neu york"),
        ("new york", "neu york", "NEW YORK", "NEU YORK"),
        ("a", "ein", "A", "Ein"),
        ("USA", "Vereinigte Staaten", "USA", "Vereinigte Staaten"),
        ("English", "englisch", "English", "englisch"),
        ("English", "englisch", "ENGLISH", "ENGLISCH"),
        ("USA", "die Staaten", "usa", "die Staaten"),
        ("iPhone", "iPhone", "iPhone", "iPhone"),
        ("東京", "tokio", "東京", "tokio"),
        ("ǆep", "ǆep", "ǅep", "ǅep"),
    ],
)
def test_a_target_has_the_case_in_which_its_source_was_found(source: str, target: str, there: str, wanted: str):
    assert in_case(Term(source, target), there) == wanted


def test_the_target_of_a_term_whose_case_counts_stays_as_it_is():
    assert in_case(Term("House", "gebäude", exact=True), "House") == "gebäude"


def standing(text: str, wanted: str, language: str = "de", *, exact: bool = False, kept=()) -> list[str]:
    return [text[slice(*span)] for span in stands(text, wanted, exact=exact, language=language, kept=kept)]


@pytest.mark.parametrize(
    ("language", "wanted", "text", "places"),
    [
        ("de", "Gebäude", "Das Gebäude; GEBÄUDE, des Gebäudes", ["Gebäude", "GEBÄUDE", "Gebäudes"]),
        ("de", "Schnellzug", "Schnellzugs Schnellzugverkehr", ["Schnellzugs"]),
        ("de", "Zug", "Zugang Zuges Anzug", ["Zuges"]),
        ("de", "roter Hund", "roter Hund, roten Hund, roter Hunde, roter Hut", ["roter Hund", "roter Hunde"]),
        ("fr", "voiture électrique", "les voitures électriques", ["voitures électriques"]),
        ("zh", "东京", "我在东京都", ["东京"]),
        ("vi", "nhà", "nhàn nhà", ["nhà"]),
        ("ko", "건물", "건물을 보다", ["건물을"]),
        ("", "dog", "dogs dogged dogmatic", ["dogs", "dogged"]),
        ("", "do", "dog do", ["do"]),
        ("de", "Hund Hund", "Hund Hund Hund", ["Hund Hund"]),
        ("de", "C++", "C++ und C", ["C++"]),
        ("de", "Hund", "", []),
        ("de", "Hund und Katze", "Hund", []),
    ],
)
def test_a_target_stands_in_a_translation_as_a_word_or_inflected(language: str, wanted: str, text: str, places):
    assert standing(text, wanted, language) == places


def test_the_case_of_a_target_counts_if_that_is_wanted():
    text = "gebäude Gebäudes GEBÄUDE Geba\u0308ude"
    assert standing(text, "Gebäude", exact=True) == ["Gebäudes", "Geba\u0308ude"]
    assert standing("STRASSE straße Große  Straßen", "Große Straße", exact=True) == ["Große  Straßen"]


def test_a_target_does_not_stand_in_what_is_kept():
    assert stands("Hund {Hund} Hund", "Hund", exact=False, language="de", kept=[(5, 11)]) == [(0, 4), (12, 16)]
