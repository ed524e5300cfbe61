"""Which languages a text may be in by the scripts of its letters."""

from __future__ import annotations

import pytest
from babel.core import get_global

from lingon.language_scripts import written_in

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
