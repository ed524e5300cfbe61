"""Sentences in capitals, and a sentence on its way through capitals and protection."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.segments.capitals import is_in_capitals, lowered, names_of, raised
from lingon.segments.protection import find_protected
from lingon.segments.sentence import Restored, SentenceRequest, TranslateStep
from lingon.segments.steps import translate_sentence

NAMES = {"tom": "Tom", "i": "I", "tv": "TV"}
TEXTS = st.lists(
    st.sampled_from(["GO", "Go", "ÉTÉ", "STRASSE", "İS", "ß", "%s", "{x}", "https://a.example/B", "-"])
).map(" ".join)


def translate(text: str, *answers: str) -> tuple[Restored, list[SentenceRequest]]:
    steps, requests = translate_sentence(text, find_protected(text), ["Tom", "Boston"], NAMES), []
    try:
        requests.append(next(steps))
        for answer in answers:
            requests.append(steps.send([answer]))
    except StopIteration as done:
        return done.value, requests
    raise AssertionError("it asks for more")


@pytest.mark.parametrize("text", ["GO HOME!", "ÉTÉ À %s PARIS", "ÜBER 20 STRASSEN", "ПРИВЕТ МИР"])
def test_two_words_without_a_small_letter_are_in_capitals(text: str):
    assert is_in_capitals(text, find_protected(text))


@pytest.mark.parametrize("text", ["STOP!", "GO Home", "I A", "1 2 3", "今日は 明日は", "{NAME} %s ABC", "", "GROß GO"])
def test_one_word_or_a_text_without_capitals_is_not(text: str):
    assert not is_in_capitals(text, find_protected(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I SAW TOM'S TV, AND I'M HAPPY.", "I saw Tom's TV, and I'm happy."),
        ('"WHAT IS %s?"', '"What is %s?"'),
        ("{NAME} IS HERE", "{NAME} is here"),
        ("GO TO https://A.EXAMPLE/B NOW", "Go to https://A.EXAMPLE/B now"),
    ],
)
def test_names_get_their_capitals_back_and_what_is_protected_stays(text: str, expected: str):
    assert lowered(text, find_protected(text), NAMES)[0] == expected


@given(TEXTS)
def test_spans_hold_the_same_strings_in_either_case(text: str):
    spans = find_protected(text)
    lower, places = lowered(text, spans, NAMES)
    upper, kept = raised(lower, [place[:2] for place in places])
    strings = [text[begin:end] for begin, end, _ in spans]
    assert [lower[begin:end] for begin, end, _ in places] == strings
    assert [upper[begin:end] for begin, end in kept] == strings


def test_a_sharp_s_is_raised_to_two_letters():
    assert raised("Die Straße: %s", [(12, 14)]) == ("DIE STRASSE: %s", [(13, 15)])


def test_a_name_is_what_a_vocabulary_has_with_a_capital_as_by_far_the_likelier_form():
    pieces = [("▁Tom", -2.0), ("▁We", -6.2), ("▁we", -6.9), ("▁TV", -9.0), ("▁Tv", -9.5), ("Paris", -1.0)]
    pieces += [("▁a1", -1.0), ("▁June", -5.0), ("▁june", -7.0)]
    assert names_of(pieces) == {"tom": "Tom", "tv": "TV", "june": "June"}


def test_a_sentence_in_capitals_is_translated_in_lower_case_and_raised_but_for_what_is_protected():
    result, requests = translate("GO TO {x} ON THE STREET!", "Geh nach Tom auf die Straße!")
    assert requests == [TranslateStep("Go to Tom on the street!")]
    assert result.text == "GEH NACH {x} AUF DIE STRASSE!"
    assert [result.text[begin:end] for begin, end in result.kept] == ["{x}"]


def test_what_raising_would_double_is_not_raised():
    result, _ = translate("GO TO __A__ NOW", "Gehe __a__ zu Tom jetzt.")
    assert result.text == "GO TO __A__ NOW"


def test_a_sentence_in_normal_case_is_translated_as_it_is():
    result, requests = translate("Go home, NATO!", "Geh heim, NATO!")
    assert (result.text, requests) == ("Geh heim, NATO!", [TranslateStep("Go home, NATO!")])
