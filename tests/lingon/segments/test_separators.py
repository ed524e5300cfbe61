"""Numbers get the separators of another language, and nothing else of a text changes."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.segments.protection import find_protected
from lingon.segments.sentence import Custom, Restored, Separators, TranslateStep
from lingon.segments.steps import translate_sentence
from tests.support.sentence_steps import run_steps
from tests.support.timing import LINEAR, growth_of

ENGLISH, GERMAN, FRENCH = Separators(",", "."), Separators(".", ","), Separators("\u202f", ",")
TO_GERMAN, TO_FRENCH, BACK = Custom(ENGLISH, GERMAN), Custom(ENGLISH, FRENCH), Custom(GERMAN, ENGLISH)


@pytest.mark.parametrize(
    ("number", "german", "french"),
    [
        ("1,299.99", "1.299,99", "1\u202f299,99"),
        ("$3,410,227", "$3.410.227", "$3\u202f410\u202f227"),
        ("12.5", "12,5", "12,5"),
        ("−3.50 °C", "−3,50 °C", "−3,50 °C"),
        ("0.125", "0,125", "0,125"),
        ("1.5–2.5", "1,5–2,5", "1,5–2,5"),
    ],
)
def test_a_number_has_the_separators_of_the_target_language(number: str, german: str, french: str):
    assert TO_GERMAN.written(number) == german
    assert TO_FRENCH.written(number) == french


@pytest.mark.parametrize(
    "text",
    ["2026", "12:30", "12:30:05", "2026-11-23", "11/23/2026", "23.11.2026", "1.2.3", "192.168.0.1", "5–10", "1.5-2.5",
     "1/2", "1,29", "12,345,6", "1,2,3", "1 250 000", "v1.5", "a1,299", "+49 30 1234567", "½"],
)  # fmt: skip
def test_what_is_no_single_number_of_the_source_language_stays(text: str):
    assert TO_GERMAN.written(text) == text


@given(st.integers(0, 10**9), st.integers(0, 999), st.booleans())
def test_a_number_comes_back_by_the_way_back(whole: int, decimals: int, has_decimals: bool):
    number = f"{whole:,}" + f".{decimals}" * has_decimals
    assert BACK.written(TO_GERMAN.written(number)) == number


@given(st.text(alphabet="0123456789.,- :/'", max_size=40))
def test_no_figure_changes(text: str):
    assert re.sub(r"\D", "", TO_FRENCH.written(text)) == re.sub(r"\D", "", text)


@pytest.mark.parametrize("unit", ["1", "1,", "1,000", "1,000.", "1.", ",", "1,00"])
def test_long_numbers_are_written_in_a_time_that_is_linear_in_their_length(unit: str):
    growth = growth_of(lambda size: lambda: TO_GERMAN.written((unit * size)[:size]), 8_000, worth=0.002, most=64_000)
    assert growth.ratio <= LINEAR


def translate(text: str, *outputs: str, custom: Custom | None = TO_GERMAN) -> tuple[Restored, list[str]]:
    waiting, sent = [*outputs], []

    def answer(request: TranslateStep) -> list[str]:
        sent.append(request.text)
        return [waiting.pop(0)]

    return run_steps(translate_sentence(text, find_protected(text), ["Tom"], {}, custom), answer), sent


def test_a_kept_number_is_written_as_the_target_language_does():
    result, _ = translate("It costs 1,299.99 or 12.5.", "Es kostet 1,299.99 oder 12.5.")
    assert result.text == "Es kostet 1.299,99 oder 12,5."
    assert [result.text[begin:end] for begin, end in result.kept] == ["1.299,99", "12,5"]
    assert translate("It costs 12.5.", "Es kostet 12.5.", custom=None)[0].text == "Es kostet 12.5."


def test_a_number_of_the_same_value_is_not_translated_again():
    result, sent = translate("It costs 1,299.99.", "Es kostet 1.299,99.")
    assert (result.text, sent) == ("Es kostet 1.299,99.", ["It costs 1,299.99."])
    result, sent = translate("It costs 1,299.99.", "Es kostet 1.299.", "Es kostet 25.")
    assert (result.text, len(sent)) == ("Es kostet 1.299,99.", 2)


def test_a_number_within_another_string_stays():
    text = "See https://x.org/1,299.99 now"
    assert translate(text, "Siehe Tom jetzt")[0].text == "Siehe https://x.org/1,299.99 jetzt"


def test_numbers_of_a_sentence_in_capitals_and_of_one_without_words_are_written_so_too():
    assert translate("IT COSTS 1,299.99 NOW.", "Es kostet jetzt 1,299.99.")[0].text == "ES KOSTET JETZT 1.299,99."
    assert translate("1,299.99")[0].text == "1.299,99"
