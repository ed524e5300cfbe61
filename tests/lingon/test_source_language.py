"""The source language of texts whose requests do not name it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from lingon.source_language import CERTAIN, FEWEST_LETTERS, NotTranslated, Source, readable, sources_of, starts_of
from lingon.translation.v1 import translation_pb2 as pb

LONG = "x" * FEWEST_LETTERS


def sources(
    *detected: Sequence[tuple[str, float]], served: Sequence[str] = ("en", "fr"), text: str = LONG
) -> list[Source]:
    """Return the sources of texts that are translated into German."""
    return sources_of([text] * len(detected), detected, served, "de", lambda tag: tag.startswith("de"))


def test_a_text_that_is_certainly_in_the_target_language_stays():
    assert sources([("de", CERTAIN), ("en", 1 - CERTAIN)]) == [Source("de", CERTAIN, stays=True)]


def test_a_text_that_may_be_in_the_target_language_is_translated_from_the_likeliest_other_one():
    assert sources([("de", 0.93), ("fr", 0.06), ("en", 0.01)]) == [Source("fr", 0.06)]


def test_an_undecided_text_is_translated_from_the_likeliest_language_that_is_served():
    served = ("en", "fr", "es", "it")
    assert sources([("it", 0.3), ("es", 0.28), ("fr", 0.22), ("en", 0.2)], served=served) == [Source("it", 0.3)]
    assert sources([("cs", 0.6), ("es", 0.21), ("fr", 0.19)], served=served, text="x") == [Source("es", 0.21)]


@pytest.mark.parametrize(
    ("served", "text", "source"),
    [
        (("ar", "fr", "en-GB"), "12", "en-GB"),
        (("ar", "fr", "eng_Latn"), "save", "eng_Latn"),
        (("ar", "fr", "it"), "save", "fr"),
        (("ar", "en", "ru", "uk"), "имя", "ru"),
        (("ar", "zh"), "save", "ar"),
    ],
)
def test_of_a_text_without_any_detected_language_the_script_and_then_english_decide(
    served: Sequence[str], text: str, source: str
):
    others = [("xx", 1.0)]  # as if the server told languages apart
    assert sources_of([text, "x"], [[], others], served, "de", lambda tag: tag == "de")[0] == Source(source, 0.0)


@pytest.mark.parametrize("text", [LONG, "Cancel"])
def test_texts_are_refused_if_no_model_tells_their_possible_languages_apart(text: str):
    with pytest.raises(NotTranslated, match="source language must be named: no served model tells en, fr apart"):
        sources([], [], text=text)
    assert sources([], text=text, served=("en", "de-AT")) == [Source("en", 0.0)]
    assert sources([], text="12:30") == [Source("en", 0.0)]
    assert sources([], text="имя", served=("en", "ru")) == [Source("ru", 0.0)]
    assert sources([], text="name", served=("ar", "en", "ru")) == [Source("en", 0.0)]
    assert sources([], [("en", 1.0)], text=text) == [Source("en", 0.0), Source("en", 1.0)]


def test_a_variety_of_the_target_is_a_source_only_without_another_one():
    assert sources([("en", 0.6)], served=("de-AT", "en")) == [Source("en", 0.6)]
    assert sources([("en", 0.6), ("de-AT", 0.4)], served=("de-AT",)) == [Source("de-AT", 0.4)]


def test_texts_that_are_certainly_in_a_language_without_a_model_are_refused():
    with pytest.raises(NotTranslated, match="detected to be 'cs', and no model translates from it to 'de'"):
        sources([("cs", 0.9995), ("en", 0.0005)])
    with pytest.raises(NotTranslated, match="'cs'"):
        sources([("cs", 0.98), ("en", 0.02)], [("cs", 0.97), ("en", 0.03)])


@pytest.mark.parametrize("text", [LONG, "x"])
def test_texts_that_may_be_in_a_language_with_a_model_are_not_refused(text: str):
    likely = 0.99 if text == LONG else 1.0  # a short text never says enough
    assert sources([("cs", likely), ("en", 1 - likely)], text=text)[0].language == "en"
    if text == LONG:
        assert sources([("cs", 0.9995), ("en", 0.0005)], [("en", 1.0), ("cs", 0.0)])[0].language == "en"


def test_without_a_model_into_the_target_only_texts_that_may_be_in_it_are_accepted():
    assert sources([("de", 0.6), ("en", 0.4)], served=()) == [Source("de", 0.6, stays=True)]
    for languages in ([("en", 0.6), ("de", 0.4)], []):
        with pytest.raises(NotTranslated, match="no model translates into 'de'"):
            sources(languages, served=())


def test_the_language_of_a_page_is_that_of_its_text():
    page = f"<script>{'if (der und die) das();' * 6000}</script><a title='Der Hund'>Read <b>more</b>.</a><p>Now</p>"
    assert readable(page, pb.TEXT_FORMAT_HTML).split() == ["Read", "more.", "Now"]
    assert readable(page, pb.TEXT_FORMAT_PLAIN).startswith("<script>")
    assert len(readable("word " * 100_000, pb.TEXT_FORMAT_HTML)) == 2000


@pytest.mark.parametrize("sign", ["<b>", "&#1"])
def test_the_markup_that_is_read_to_detect_languages_has_a_bound_over_all_texts(sign: str):
    few, many = f"{sign * 100}Tom. ", f"{sign * 30_000}Tom. "
    assert starts_of([few, few], pb.TEXT_FORMAT_HTML) == ["Tom. ", "Tom. "]
    assert starts_of([many], pb.TEXT_FORMAT_HTML) == ["Tom. "]
    assert starts_of([many] * 4, pb.TEXT_FORMAT_HTML) == [""] * 4
