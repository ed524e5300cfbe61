"""Filters of pairs: which real pairs stay and which go, in many scripts and notations, in a linear time."""

from __future__ import annotations

import pickle
import random
import re
import tomllib
from functools import partial
from itertools import islice

import pytest

from lingon.errors import LingonError, SettingsError
from lingon.identifiers import load_identifiers
from lingon.text import normalise
from lingon.training.config import DataSettings, FilterSettings
from lingon.training.filters import PairFilters, folded
from tests.support.hostile_documents import TextPattern, text_patterns
from tests.support.repository import ROOT, scaled
from tests.support.timing import LINEAR, Growth, growth_of

TEXTS = {
    "en": "The Committee will meet again on Monday, the 12th of March, in the small hall of the museum.",
    "de": "Der Ausschuss trifft sich am Montag, dem 12. März, wieder im kleinen Saal des Museums.",
    "el": "Η επιτροπή θα συνεδριάσει ξανά τη Δευτέρα, 12 Μαρτίου, στη μικρή αίθουσα του μουσείου.",
    "ru": "Комитет снова соберётся в понедельник, 12 марта, в малом зале музея.",
    "ar": "ستجتمع اللجنة مرة أخرى يوم الاثنين ١٢ مارس في القاعة الصغيرة بالمتحف.",
    "he": "הוועדה תתכנס שוב ביום שני, 12 במרץ, באולם הקטן של המוזיאון.",
    "hi": "समिति की बैठक फिर से सोमवार, १२ मार्च को संग्रहालय के छोटे हॉल में होगी।",
    "zh": "委员会将于3月12日星期一在博物馆的小厅再次开会。",
    "ja": "委員会は3月12日月曜日に博物館の小ホールで再び開催されます。",
    "ko": "위원회는 3월 12일 월요일에 박물관 소강당에서 다시 모일 것이다.",
    "th": "คณะกรรมการจะประชุมอีกครั้งในวันจันทร์ที่ ๑๒ มีนาคม ที่ห้องโถงเล็กของพิพิธภัณฑ์",
}
"""One sentence in many languages."""

STRICT = {
    "same_brackets": True,
    "max_word": 50,
    "min_mean_word": 2.0,
    "max_mean_word": 15.0,
    "min_letters": 0.5,
    "min_script": 0.9,
    "max_copy": 0,
    "same_addresses": True,
    "min_numbers": 0.5,
    "max_repetition": 0.3,
    "min_score": 0.5,
    "max_token_ratio": 3.0,
}
"""Every filter but that of the language, which needs an extra."""


def filters(source: str = "en", target: str = "de", **chosen: object) -> PairFilters:
    settings = {"source_language": source, "target_language": target, "max_ratio": 5.0, "filters": chosen}
    return PairFilters(DataSettings.model_validate(settings), (source, target))


def reason(found: PairFilters, source: str, target: str) -> str:
    return found.reasons_of([normalise(source)], [normalise(target)], None)[0]


# What stays and what goes.


@pytest.mark.parametrize("source", TEXTS)
@pytest.mark.parametrize("target", TEXTS)
def test_a_translation_passes_all_filters_between_all_scripts(source: str, target: str):
    if source != target:
        assert reason(filters(source, target, **STRICT), TEXTS[source], TEXTS[target]) == ""


@pytest.mark.parametrize("target", sorted(TEXTS.keys() - {"en"}))
def test_a_translation_is_in_its_language_and_the_source_is_not(target: str):
    found = filters("en", target, min_language=0.5)
    assert reason(found, TEXTS["en"], TEXTS[target]) == ""
    assert reason(found, TEXTS["en"], TEXTS["en"]) == "language"
    assert reason(found, TEXTS[target], TEXTS[target]) == "language"


def test_the_language_of_a_short_side_is_not_asked():
    found = filters(min_language=0.5)
    assert reason(found, "Cancel", "Annuler") == ""
    assert (
        reason(found, "Cancel the order of the two tickets", "Annuler la commande des deux billets, merci")
        == "language"
    )


def test_varieties_of_one_language_are_not_told_apart():
    found = filters("en", "nb-NO", min_language=0.5)
    assert reason(found, TEXTS["en"], "Komiteen møtes igjen mandag 12. mars i den lille salen på museet.") == ""
    assert reason(found, TEXTS["en"], "Komiteen møtest igjen måndag 12. mars i den vesle salen på museet.") == ""


SCRIPTS = [
    ("de", "Das griechische Wort λόγος heißt Wort oder Rede.", True),
    ("de", TEXTS["ru"], False),
    ("ru", "В Windows и Linux это работает.", True),
    ("ru", "Windows and Linux only.", False),
    ("el", TEXTS["ru"], False),
    ("ar", "استخدم Google Chrome لفتح هذه الصفحة على جهازك", True),
    ("ar", TEXTS["he"], False),
    ("zh", "请使用微软的视窗系统打开此文件。", True),
    ("zh", TEXTS["ko"], False),
    ("ja", "コンピューター", True),
    ("ja", TEXTS["zh"], True),  # the characters are shared
    ("sr", "Odbor se sastaje ponovo.", True),
    ("sr-Cyrl", "Odbor se sastaje ponovo.", False),
    ("hi", TEXTS["ar"], False),
    ("th", TEXTS["hi"], False),
    ("de", "12.03.2020 – 14:30", True),  # no letters at all
]


@pytest.mark.parametrize(("language", "text", "stays"), SCRIPTS)
def test_the_letters_of_a_side_are_of_a_script_of_its_language(language: str, text: str, stays: bool):
    assert reason(filters("en", language, min_script=0.5), "The words of this text.", text) == (
        "" if stays else "script"
    )


LETTERS = [
    ("Wie geht es Ihnen?", True),
    ("कि वह संग्रहालय में है।", True),  # vowel signs are letters
    ("ที่พิพิธภัณฑ์", True),
    ("他说：“你好！”", True),
    ("12.03.2020, 14:30", False),
    ("=== *** 5 ***", False),
    ("( ) [ ] . . . . . – – –", False),
]


@pytest.mark.parametrize(("text", "stays"), LETTERS)
def test_half_of_the_characters_of_a_side_are_letters(text: str, stays: bool):
    assert reason(filters(min_letters=0.5), "Some words", text) == ("" if stays else "letters")
    assert reason(filters(min_letters=0.5), text, "Some words") == ("" if stays else "letters")


WORDS = [
    ("de", "Die Donaudampfschifffahrtsgesellschaft fährt.", True),
    ("de", "D a s g e h t n i c h t .", False),
    ("de", "Das ist dQ" + "w4B9" * 12, False),  # of 50 characters
    ("de", "Das_ist_ein_Wort von_vielen_anderen", False),  # 17 characters on average
    ("zh", TEXTS["zh"], True),
    ("ja", TEXTS["ja"] * 2, True),
    ("th", TEXTS["th"].replace(" ", ""), True),
    ("ko", "위원회는 월요일에 박물관에서 모일 것이다.", True),
]


@pytest.mark.parametrize(("language", "text", "stays"), WORDS)
def test_words_are_neither_too_long_nor_too_short(language: str, text: str, stays: bool):
    found = filters("en", language, max_word=49, min_mean_word=2, max_mean_word=15)
    assert reason(found, "Some words of this language", text) == ("" if stays else "words")


COPIES = [
    ("The museum is closed.", "Das Museum ist geschlossen.", True),
    ("The museum is closed.", "the Museum is CLOSED", False),
    ("Version 1.2: The museum is closed", "Version 10: the museum is closed!", False),
    ("“Museum”", "„Museum“", False),
    ("Комитет собрался.", "комитет собрался", False),
    ("Ἡ ἐπιτροπὴ Σ", "Ἡ ἐπιτροπὴ ς", False),
    ("委员会再次开会。", "委员会再次开会", False),
    ("समिति की बैठक।", "समिति का बैठक।", True),  # another vowel sign
    ("1,000.5", "1.000,5", True),  # without letters
    ("😀", "😀", True),
]


@pytest.mark.parametrize(("source", "target", "stays"), COPIES)
def test_a_source_is_not_its_own_target(source: str, target: str, stays: bool):
    assert reason(filters(max_copy=0), source, target) == ("" if stays else "copy")


def test_short_copies_may_stay():
    found = filters(max_copy=10)
    assert reason(found, "Hans Meier", "Hans Meier") == ""
    assert reason(found, "Hans Meiers", "Hans Meiers") == ""  # 10 letters
    assert reason(found, "Hanso Meiers", "Hanso Meiers") == "copy"


NUMBERS = [
    ("1,000.5 euros", "1.000,5 Euro", True),
    ("1,000.50 euros", "1 000,5 Euro", True),
    ("1,234,567 people", "1'234'567 Menschen", True),
    ("12,34,567 people", "१२,३४,५६७ लोग", True),
    ("The year 1923", "عام ١٩٢٣", True),
    ("The year 1923", "۱۹۲۳", True),
    ("2020-12-31 at 17:45", "31.12.2020 um 17.45 Uhr", True),
    ("The 350,000 houses", "35万栋房子", True),
    ("1.5 million people", "1,500,000 Menschen", True),
    ("three dogs and 12 cats", "3 Hunde und zwölf Katzen", False),  # 3 and 12 are 3 digits
    ("twelve cats", "12 Katzen", True),  # 2 digits more are allowed
    ("in the year 1923", "im Jahr 1856", False),
    ("a call to 555 1234", "ein Anruf", False),
    ("１２３４ people", "1234 Menschen", True),
    ("١٢٣٤ شخص", "Menschen", False),
]


@pytest.mark.parametrize(("source", "target", "stays"), NUMBERS)
def test_both_sides_have_the_same_digits(source: str, target: str, stays: bool):
    assert reason(filters(min_numbers=0.6), source, target) == ("" if stays else "numbers")
    assert reason(filters(min_numbers=0.6), target, source) == ("" if stays else "numbers")


ADDRESSES = [
    ("See https://en.example.com/a?b=1.", "Siehe https://www.example.com/de/a/.", True),
    ("Write to info@example.com!", "Schreiben Sie an info@example.com", True),
    ("from a sales@example.com account", "von einem sales@example.com-Konto", True),
    ("See www.example.com (in English).", "请看http://example.com。", True),
    ("联系info@example.com吧", "Contact info@example.com", True),
    ("اكتب إلى info@example.com الآن", "Write to info@example.com now", True),
    ("See www.example.com for this", "Siehe www.example.org dafür", False),
    ("Write to info@example.com", "Schreiben Sie uns", False),
    ("@home and a @ b", "zu Hause und b", True),
]


@pytest.mark.parametrize(("source", "target", "stays"), ADDRESSES)
def test_both_sides_have_the_same_addresses(source: str, target: str, stays: bool):
    assert reason(filters(same_addresses=True), source, target) == ("" if stays else "addresses")


BRACKETS = [
    ("a) the first [1]", "a) das erste [1]", True),
    ("the text (in short)", "该文本（简称）", True),
    ("the text (in short)", "der Text", True),  # both are balanced
    ("the text (in short", "der Text (kurz", True),
    ("the text (in short", "der Text (kurz)", False),
    ("the text in short}", "der Text kurz", False),
    ("the text (in short)", "该文本（简称", False),
]


@pytest.mark.parametrize(("source", "target", "stays"), BRACKETS)
def test_both_sides_close_as_many_brackets(source: str, target: str, stays: bool):
    assert reason(filters(same_brackets=True), source, target) == ("" if stays else "brackets")


REPETITIONS = [
    ("de", "Sie sagten, dass das, was das Kind sah, das war, was das Kind sah.", True),
    ("de", "ein Haus ein Haus ein Haus ein Haus", False),
    ("de", "sehr sehr sehr sehr sehr gut", False),
    ("de", "nein, nein", True),
    ("zh", "一二三四五六七八九十", True),
    ("zh", "哈哈哈哈哈哈哈哈哈哈", False),
    ("ja", "それはそれはそれはそれはそれはそれは", False),
    ("th", "มากมากมากมากมากมากมาก", False),
    ("ar", "قال لي ثم قال لي ثم قال لي ثم قال لي", False),
]


@pytest.mark.parametrize(("language", "text", "stays"), REPETITIONS)
def test_a_side_does_not_repeat_itself(language: str, text: str, stays: bool):
    found = filters("en", language, max_repetition=0.3)
    assert reason(found, "Some words of this language", text) == ("" if stays else "repetition")


def broken(text: str, encoding: str) -> str:
    """Return a text that was read as another encoding than UTF-8."""
    return text.encode().decode(encoding, "replace")


MISREAD = [
    *("Die Größe der Räume", "Österreich über Ungarn", "ménage à trois, vérité", "à 5 °C – « oui »"),
    *("мир", "μία λέξη", "السلام"),
]


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        *((text, encoding) for text in MISREAD for encoding in ("latin-1", "cp1252")),
        *((text, "cp1252") for text in ("“Yes”", "はい。")),
    ],
)
def test_utf_8_that_was_read_as_another_encoding_goes(text: str, encoding: str):
    assert reason(filters(), "Some text", broken(text, encoding)) == "encoding"
    assert reason(filters(), broken(text, encoding), "Ein Text") == "encoding"


@pytest.mark.parametrize(
    "text",
    [
        *TEXTS.values(),
        "«A MANHû traz “IRMÔ e ‘SÃO’ – NÃO… ÃO",
        "ÂNGELO E A ÂNCORA, «Â», 5 Â",
        "âge, pâté, â, les mâts à 5 €",
        "GUÐRÚN OG BRAGÐ, „Ð“, «Ð»",
        "Kâğıt, KÂĞIT",
        "12 £ · 5 ± 1 ° § ©",
        "NESCAFÉ®, CAFɹ, DORÎ, RØ®, amanhã",
    ],
)
def test_text_that_was_read_well_stays(text: str):
    assert reason(filters(), "Some text that is long enough, too, not to be dropped for its length", text) == ""


def test_undecodable_bytes_go():
    assert reason(filters(), "Some text", b"Gr\xf6\xdfe".decode("utf-8", "replace")) == "encoding"
    assert reason(filters(encoding=False), "Some text", b"Gr\xf6\xdfe".decode("utf-8", "replace")) == ""


def test_the_score_is_asked_where_a_corpus_has_one():
    found, rows = filters(min_score=0.5), (["one", "two", "three"], ["eins", "zwei", "drei"])
    assert found.reasons_of(*rows, [0.5, 0.49, float("nan")]) == ["", "score", "score"]
    assert found.reasons_of(*rows, None) == ["", "", ""]


def test_the_token_ratio_allows_some_tokens_more():
    found = filters(max_token_ratio=2.0)
    assert [found.too_long_ratio(*each) for each in ((10, 25), (25, 10), (10, 26), (26, 10))] == [
        False,
        False,
        True,
        True,
    ]
    assert found.reasons[-1] == "token_ratio"
    assert not filters().too_long_ratio(1, 10_000)


def test_an_empty_side_and_a_long_one_go_first():
    found = filters(**{**STRICT, "min_mean_word": 0})
    assert found.reasons[:2] == ("empty", "ratio")
    assert [reason(found, *pair) for pair in (("", ""), ("a", ""), ("", "a"), ("four", "x " * 24))] == [
        "empty",
        "empty",
        "empty",
        "ratio",
    ]
    assert [reason(filters(), "four", "x" * length) for length in (45, 46)] == ["", "ratio"]  # 25 more than 5 times 4


# The filters together.


def sentences() -> tuple[list[str], list[str]]:
    folder = ROOT / "tests" / "data"
    english, german = ((folder / f"tatoeba.{tag}").read_text(encoding="utf-8").splitlines() for tag in ("en", "de"))
    return english, german


def test_the_filters_of_the_default_drop_no_good_pair():
    assert set(filters().reasons_of(*sentences())) == {""}


def test_all_filters_drop_few_good_pairs():
    found = filters(**{**STRICT, "min_language": 0.5}).reasons_of(*sentences())
    assert sum(map(bool, found)) <= 5  # of 500


def test_a_row_has_the_reason_that_it_has_alone():
    english, german = sentences()
    chance = random.Random(1)
    sources = [chance.choice([text, text.upper(), "", text * 9, german[0], "12 (", "ha " * 20]) for text in english]
    found = filters(**STRICT)
    together = found.reasons_of(sources, german, [0.7] * 500)
    assert together == [found.reasons_of([one], [other], [0.7])[0] for one, other in zip(sources, german, strict=True)]
    assert len(set(together)) > 4
    assert set(together) - {""} <= set(found.reasons)


def test_any_characters_can_be_filtered():
    chance = random.Random(2)
    blocks = [(0x20, 0x7F), (0xA0, 0x250), (0x300, 0x1000), (0xD7F0, 0xE010), (0xFF00, 0x10040), (0x1F600, 0x110000)]

    def text() -> str:
        return normalise("".join(chr(chance.randrange(*chance.choice(blocks))) for _ in range(chance.randrange(90))))

    sources, targets = ([text() for _ in range(500)] for _ in range(2))
    found = filters(**{**STRICT, "min_letters": 0.1, "min_script": 0.0, "min_language": 0.5, "max_word": None})
    assert len(set(found.reasons_of(sources, targets))) > 4
    for source in sources:
        assert folded(folded(source)) == folded(source)


def test_no_rows_have_no_reasons():
    assert filters(**STRICT).reasons_of([], [], []) == []
    assert filters(**STRICT).reasons_of(["", ""], ["", "a"], [1, 1]) == ["empty", "empty"]


def test_only_filters_that_are_on_have_a_reason():
    assert filters(encoding=False).reasons == ("empty", "ratio")
    assert filters().reasons == ("empty", "ratio", "encoding")
    assert len(filters(**STRICT).reasons) == 13


def test_filters_can_be_sent_to_another_process():
    found = filters(**STRICT, min_language=0.5)
    sent = pickle.dumps(found)
    assert len(sent) < 10_000
    assert pickle.loads(sent).reasons_of(*sentences()) == found.reasons_of(*sentences())  # noqa: S301


# Errors.


def test_a_language_without_known_script_is_refused_unless_it_names_one():
    with pytest.raises(SettingsError, match=r"unless its tag names one as in xyz-Latn, got 'xyz'"):
        filters("en", "xyz", min_script=0.5)
    assert reason(filters("en", "xyz-Grek", min_script=0.5), "Some text", "Το κείμενο") == ""


def test_a_language_that_no_identifier_knows_is_refused():
    with pytest.raises(SettingsError, match="a language that the extra 'detect' does not know, got 'xyz'"):
        filters("en", "xyz", min_language=0.5)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lingon.identifiers.identifier_is_installed", lambda: False)
    load_identifiers.cache_clear()
    try:
        with pytest.raises(LingonError, match=r"min_language needs what the extra 'detect' installs: .*\[detect\]"):
            filters(min_language=0.5)
        assert filters(**STRICT).reasons  # the others do not need it
    finally:
        load_identifiers.cache_clear()


# The page of the documentation.

PAGE = (ROOT / "docs" / "how-to" / "clean-a-corpus.md").read_text(encoding="utf-8")


def test_the_page_has_every_key_and_every_reason():
    table = [line for line in PAGE.splitlines() if line.startswith("|")]
    keys, reasons = (
        set(re.findall(r"`(\w+)`", "".join(line.split("|")[column] for line in table))) for column in (1, 2)
    )
    assert keys == set(FilterSettings.model_fields)
    assert reasons == set(filters(**STRICT, min_language=0.5).reasons) - {"empty", "ratio"}


def test_the_filters_of_the_page_keep_good_pairs_and_drop_copies():
    (block,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    found, (english, german) = filters(**tomllib.loads(block)["data"]["filters"]), sentences()
    assert sum(map(bool, found.reasons_of(english, german))) <= 2
    long = [text for text in english if len(text) >= 40]
    assert set(found.reasons_of(long, long)) <= {"copy", "language"}


# The key of near-duplicates.


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("Version 1.2.3, “the BIG one”!", "version0thebigone"),
        ("STRASSE – Straße", "strassestrasse"),
        ("ΣΊΣΥΦΟΣ, Σίσυφος;", "σίσυφοσσίσυφοσ"),
        ("Привет, мир: 12,5!", "приветмир0"),
        ("في عام ١٩٢٣، كتب.", "فيعام0كتب"),
        ("१२ मार्च को।", "0मार्चको"),
        ("他说：“你好！” １２个。", "他说你好0个"),
        ("ที่ ๑๒ มีนาคม", "ที่0มีนาคม"),
        ("𠮷野家 😀 𝟙", "𠮷野家0"),
        ("...!?", ""),
        ("\ud800x", "x"),
    ],
)
def test_the_key_of_a_text_is_its_letters_and_where_it_has_numbers(text: str, key: str):
    assert folded(text) == key


def test_texts_that_differ_in_a_vowel_sign_or_an_accent_have_other_keys():
    assert len({folded(text) for text in ("कि", "का", "क", "é", "e", "й", "и", "で", "て")}) == 9


# Time.

REPEATED = [
    *("a@", "a.a@", "www.", "http://", "a@a-", "@a.a", "a@a."),
    *("Ã", "Ð", "â€", "(", "（", "1", "1.", "٣", "x", "é1", "😀", "漢"),
]
"""Units of text that a filter might look at again and again."""
STRICT_FILTERS = filters(**STRICT)
WORK = {"key": folded, "filters": lambda text: STRICT_FILTERS.reasons_of([text], [text[::-1]], [1.0])}


@pytest.mark.parametrize("name", WORK)
def test_the_time_grows_linearly_with_the_text(name: str):
    def growth(pattern: TextPattern) -> Growth:
        return growth_of(lambda size: partial(WORK[name], normalise(pattern.text(size))), 6_000)

    patterns = [TextPattern("", (unit, "", ""), "") for unit in REPEATED]
    patterns += islice(text_patterns("plain", 1), scaled(12, 300))
    assert [f"{pattern}: {found}" for pattern in patterns if (found := growth(pattern)).ratio > LINEAR] == []
