"""The source language of texts whose requests do not name it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from babel.core import get_global

from lingon.errors import InvalidRequest
from lingon.language_tags import MAX_CHARACTERS, canonical, distance, is_same_language, is_same_tag
from lingon.source_language import (
    CERTAIN,
    FEWEST_LETTERS,
    NotTranslated,
    TextLanguage,
    readable,
    sources_of,
    starts_of,
    written_in,
)
from lingon.translation.v1 import translation_pb2 as pb


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


SERVED = ["ar", "en", "deu_Latn", "el", "ja", "ko", "ru", "sr", "zh-Hans", "zho_Hant"]


@pytest.mark.parametrize(
    ("text", "languages"),
    [
        ("proton beam", ["en", "deu_Latn", "sr"]),
        ("Настройки", ["ru", "sr"]),
        ("إعدادات", ["ar"]),
        ("保存", ["ja", "ko", "zh-Hans", "zho_Hant"]),
        ("保存する", ["ja", "ko", "zh-Hans", "zho_Hant"]),
        ("ﾊﾟｿｺﾝ", ["ja"]),
        ("Ｓａｖｅ", ["en", "deu_Latn", "sr"]),
    ],
)
def test_a_text_is_in_a_language_that_is_written_in_its_script(text: str, languages: list[str]):
    assert written_in(text, SERVED) == languages


def test_a_name_in_another_script_excludes_no_language():
    assert set(written_in("使用 Wagtail 登录", SERVED)) >= {"zh-Hans", "en"}
    assert "el" not in written_in("Die Schrödinger-Gleichung bestimmt ψ zu jeder Zeit", SERVED)


@pytest.mark.parametrize("text", ["", "12:30", "ខ្មែរ"])
def test_a_text_without_letters_or_of_no_served_script_may_be_in_any_language(text: str):
    assert written_in(text, SERVED) == SERVED


def test_a_language_whose_scripts_are_not_known_is_never_excluded():
    assert written_in("Настройки", ["en", "xyz", "not a tag"]) == ["xyz", "not a tag"]


def test_the_languages_of_two_letters_have_the_scripts_of_cldr():
    """Avestan and Pali, which nobody translates, are left out."""
    samples = {
        "Arab": "سلام",
        "Armn": "բարև",
        "Beng": "নমস্কার",
        "Cans": "ᐃᓄᒃ",
        "Cyrl": "привет",
        "Deva": "नमस्ते",
        "Ethi": "ሰላም",
        "Geor": "გამარჯობა",
        "Grek": "γεια",
        "Gujr": "નમસ્તે",
        "Guru": "ਸਤਿ",
        "Hans": "你好",
        "Hebr": "שלום",
        "Jpan": "こんにちは",
        "Khmr": "សួស្តី",
        "Knda": "ನಮಸ್ಕಾರ",
        "Kore": "안녕",
        "Laoo": "ສະບາຍດີ",
        "Latn": "hello",
        "Mlym": "നമസ്കാരം",
        "Mymr": "မင်္ဂလာပါ",
        "Orya": "ନମସ୍କାର",
        "Sinh": "ආයුබෝවන්",
        "Taml": "வணக்கம்",
        "Telu": "నమస్కారం",
        "Thaa": "ސަލާމް",
        "Thai": "สวัสดี",
        "Tibt": "བཀྲ་ཤིས",
        "Yiii": "ꆈꌠ",
    }
    likely = {tag: full.split("_")[1] for tag, full in get_global("likely_subtags").items() if len(tag) == 2}
    for tag in likely.keys() - {"ae", "pi"}:
        script = likely[tag]
        assert written_in(samples[script], [tag, "und-Cyrl" if script == "Latn" else "und-Latn"]) == [tag]


LONG = "x" * FEWEST_LETTERS


def sources(
    *detected: Sequence[tuple[str, float]], served: Sequence[str] = ("en", "fr"), text: str = LONG
) -> list[TextLanguage]:
    """Return the sources of texts that are translated into German."""
    return sources_of([text] * len(detected), detected, served, "de", lambda tag: tag.startswith("de"))


def test_a_text_that_is_certainly_in_the_target_language_stays():
    assert sources([("de", CERTAIN), ("en", 1 - CERTAIN)]) == [TextLanguage("de", CERTAIN, stays=True)]


def test_a_text_that_may_be_in_the_target_language_is_translated_from_the_likeliest_other_one():
    assert sources([("de", 0.93), ("fr", 0.06), ("en", 0.01)]) == [TextLanguage("fr", 0.06)]


def test_an_undecided_text_is_translated_from_the_likeliest_language_that_is_served():
    served = ("en", "fr", "es", "it")
    assert sources([("it", 0.3), ("es", 0.28), ("fr", 0.22), ("en", 0.2)], served=served) == [TextLanguage("it", 0.3)]
    assert sources([("cs", 0.6), ("es", 0.21), ("fr", 0.19)], served=served, text="x") == [TextLanguage("es", 0.21)]


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
    assert sources_of([text, "x"], [[], others], served, "de", lambda tag: tag == "de")[0] == TextLanguage(source, 0.0)


@pytest.mark.parametrize("text", [LONG, "Cancel"])
def test_texts_are_refused_if_no_model_tells_their_possible_languages_apart(text: str):
    with pytest.raises(NotTranslated, match=r"source language must be named: .* en, fr "):
        sources([], [], text=text)
    assert sources([], text=text, served=("en", "de-AT")) == [TextLanguage("en", 0.0)]
    assert sources([], text="12:30") == [TextLanguage("en", 0.0)]
    assert sources([], text="имя", served=("en", "ru")) == [TextLanguage("ru", 0.0)]
    assert sources([], text="name", served=("ar", "en", "ru")) == [TextLanguage("en", 0.0)]
    assert sources([], [("en", 1.0)], text=text) == [TextLanguage("en", 0.0), TextLanguage("en", 1.0)]


def test_a_variety_of_the_target_is_a_source_only_without_another_one():
    assert sources([("en", 0.6)], served=("de-AT", "en")) == [TextLanguage("en", 0.6)]
    assert sources([("en", 0.6), ("de-AT", 0.4)], served=("de-AT",)) == [TextLanguage("de-AT", 0.4)]


def test_texts_that_are_certainly_in_a_language_without_a_model_are_refused():
    with pytest.raises(NotTranslated, match=r"'cs', .* 'de'"):
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
    assert sources([("de", 0.6), ("en", 0.4)], served=()) == [TextLanguage("de", 0.6, stays=True)]
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
