"""A model gets no character that it cannot read: it reads a twin, or the word is kept, and all else is as it was."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lingon.segments.characters import Alphabet, Reading, is_unseen, read_characters
from lingon.segments.kept_forms import Kind, ProtectedSpan, without
from lingon.segments.protection import TooManySpans, find_protected
from lingon.text import normalise
from tests.support.timing import LINEAR, growth_of

PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,:;!?'\"()-/%$*+=’“”–—é")
"""What a model reads."""

SIGNS = "≤≥<>~±≈×÷|›•·&^§†°€£№©™"
WORDS = ["Tom", "is", "here.", "5", "1,299.99", "ﬁrst", "Nguyễn", "東京", "Москва", "e\u0301", "x\u0302", "²", "m²"]
PARTS = [*WORDS, *SIGNS, *"①‑−″…«»–`\u200e\ufe0fＨ１\t ()"]
TEXTS = st.lists(st.sampled_from(PARTS), max_size=12).map("".join) | st.lists(st.sampled_from(PARTS)).map(" ".join)


def alphabet(readable: frozenset[str] = PLAIN) -> Alphabet:
    """Return the alphabet of a model that reads these characters, whatever is beside them."""
    return Alphabet(readable.issuperset, readable)


def read(text: str, readable: frozenset[str] = PLAIN, **options: bool) -> Reading:
    """Return a text as a model of these characters reads it."""
    return read_characters(text, (), alphabet(readable), **{"keeps": True, **options}) or Reading(text)


def kept(text: str, readable: frozenset[str] = PLAIN) -> list[str]:
    """Return what is kept of a text."""
    found = read(text, readable)
    return [found.text[span.begin : span.end] for span in found.spans]


@given(TEXTS)
@example("e\u0301東")
@example("ễTom\ufe0f here")
@example("here.NguyễnTom\ufe0f")
def test_the_model_gets_only_what_it_reads(text: str):
    found = read(text)
    assert PLAIN.issuperset(normalise(without(found.text, found.spans)))


@given(TEXTS)
def test_what_is_kept_is_in_the_text_as_it_was_sent(text: str):
    found = read(text)
    for span in found.spans:
        begin, end = found.sent(span.begin, span.end)
        assert text[begin:end] == found.text[span.begin : span.end]


@given(TEXTS, st.booleans())
def test_each_part_of_the_reading_has_its_place_in_the_text(text: str, keeps: bool):
    found = read(text, keeps=keeps)
    assert found.sent(0, len(found.text))[1] <= len(text)
    changed = {place for change in found.changes for place in range(change.begin, change.end)}
    last = 0
    for place, character in enumerate(found.text):
        begin, end = found.sent(place, place + 1)
        assert last <= begin < end
        last = begin
        if place not in changed:
            assert text[begin:end] == character
    for begin in range(0, len(found.text), 3):
        part = found.part(begin, begin + 7)
        assert part.text == found.text[begin : begin + 7]
        first = found.sent(begin, begin + 7)[0]
        end = begin + len(part.text)
        if not any(each.begin < border < each.end for each in found.changes for border in (begin, end)):
            at, to = part.sent(0, len(part.text))
            assert (first + at, first + to) == found.sent(begin, begin + len(part.text))


@given(TEXTS)
def test_a_text_that_is_not_kept_has_the_same_twins_and_no_spans(text: str):
    found = read(text, keeps=False)
    assert not found.spans
    assert len(read(text).changes) <= len(found.changes)


@given(st.text(sorted(PLAIN)))
def test_a_text_that_the_model_reads_stays_as_it_is(text: str):
    assert read_characters(text, (), alphabet(), keeps=True) is None


@given(TEXTS, st.lists(st.sampled_from(["{name}", "https://a.example/ﬁ", "%s", "🍕"]), min_size=1, max_size=3))
def test_what_is_kept_anyway_has_no_twins_and_stays_kept(text: str, strings: list[str]):
    text = " ".join([text, *strings, text])
    spans = find_protected(text)
    found = read_characters(text, spans, alphabet(), keeps=True) or Reading(text, tuple(spans))
    for span in spans:
        string = text[span.begin : span.end]
        assert any(string in found.text[each.begin : each.end] for each in found.spans)


def compatible(first: int, last: int) -> list[str]:
    """Return the characters of a block that have a compatibility form of letters, figures and signs of ASCII."""
    found = map(chr, range(first, last + 1))
    return [each for each in found if PLAIN.issuperset(unicodedata.normalize("NFKC", each)) and each not in PLAIN]


@pytest.mark.parametrize(
    "character",
    [
        *compatible(0xFB00, 0xFB06),  # ligatures
        *compatible(0xFF01, 0xFF5E),  # full width
        *compatible(0x2080, 0x2089),  # subscripts
        *compatible(0x2160, 0x216F),  # Roman numerals
        *compatible(0x1D400, 0x1D433),  # mathematical letters
        *compatible(0x1D7CE, 0x1D7D7),  # mathematical figures
        *compatible(0x3380, 0x338F),  # units in one character
    ],
)
def test_a_character_is_read_as_its_compatibility_form(character: str):
    form = unicodedata.normalize("NFKC", character)
    assert read(f"The {character} is here.") == read(f"The {character} is here.", keeps=False)
    assert read(f"The {character} is here.").text == f"The {form} is here."


@pytest.mark.parametrize(
    ("sent", "twin"),
    [
        ("co\u2010operation", "co-operation"),
        ("co\u2011operation", "co-operation"),
        ("\u2212 4", "- 4"),
        ("x\u2032 and y\u2033", "x' and y\""),
        ("don`t and don\u00b4t", "don't and don’t"),
        ("„here“", "“here“"),
        ("«here» and ‹there›", "“here” and ’there’".replace("’t", "‘t")),
        ("and\u2044or", "and/or"),
        ("To\u200bm \u200eis", "To\u200bm is"),
        ("now\u2026 here", "now... here"),
        ("1\u02e2\u1d57", "1st"),
    ],
)
def test_a_character_is_read_as_its_plain_twin(sent: str, twin: str):
    readable = PLAIN | {"‘"}
    if "“" in twin:
        readable |= {"“"}
    assert read(sent, readable).text == twin
    assert not read(sent, readable).spans


@pytest.mark.parametrize("dash", ["\u2013", "\u2014", "\u2015"])
def test_a_dash_is_read_as_another_one_and_within_a_range_as_a_hyphen(dash: str):
    only_hyphen = PLAIN - {"\u2013", "\u2014"}
    assert read(f"go {dash} now", only_hyphen).text == "go - now"
    other = PLAIN - {dash}
    assert read(f"go {dash} now", other).text in ("go \u2014 now", "go \u2013 now")
    if dash == "\u2013":
        assert read("10\u201320 and 10:30 \u2013 11:00", other).text == "10-20 and 10:30 - 11:00"


@pytest.mark.parametrize("character", [*map(chr, range(0x2460, 0x24EA)), "⁴", "²", "³", "½", "⅓", "№", "™", "ⁿ"])
def test_a_form_that_says_less_is_no_twin(character: str):
    found = read(f"Tom saw {character} here.")
    assert found.text == f"Tom saw {character} here."
    assert character in "".join(found.text[span.begin : span.end] for span in found.spans)


@pytest.mark.parametrize(
    "number", ["20 m²", "5 km²", "25°C", "25 °C", "1½", "5€", "€ 1,299.99", "§ 5", "№ 5", "6′2″", "© 2024"]
)
def test_the_number_beside_a_sign_is_kept_with_it(number: str):
    assert kept(f"Tom has {number}, too.") == [number]


@pytest.mark.parametrize("sign", "<>~≤≥≈±×÷")
@pytest.mark.parametrize("form", ["{}5", "{} 5", "5 {} 5", "5{}5", "a {} b", "x {} 0.5"])
def test_what_a_mathematical_sign_relates_is_kept_with_it(sign: str, form: str):
    formula = form.format(sign)
    assert kept(f"Tom has {formula}, too.") == [formula]


@pytest.mark.parametrize("word", ["Nguyễn", "Москва", "żółw", "Αθήνα", "AT&T", "x^2", "#tag", "C#", "Lego™", "a\\b"])
def test_a_word_with_such_a_character_is_kept_as_a_whole(word: str):
    readable = PLAIN - {"#"}
    assert kept(f"It is {word}, as Tom says.", readable) == [word]
    assert kept(f"“{word}” is it.", readable) == [word]


def test_words_of_scripts_without_blanks_do_not_take_others_with_them():
    assert kept("Tom schrieb東京da.") == ["schrieb東京da"]
    assert read("東 a京b").spans[-1].end == len("東 a京b")


@pytest.mark.parametrize("sign", "|›‹•·→←●▶&\\`{}")
def test_a_sign_that_separates_is_kept_alone(sign: str):
    text = f"Home {sign} About us {sign} Contact"
    found = read(text)
    assert [found.text[span.begin : span.end] for span in found.spans] == [sign, sign]
    assert {span.kind for span in found.spans} == {Kind.BORDER}


@pytest.mark.parametrize("sign", "|›•→")
def test_a_sign_that_separates_does_not_keep_the_words_that_it_touches(sign: str):
    assert kept(f"Home{sign}About{sign}Contact") == [sign, sign]


@pytest.mark.parametrize("sign", "<>~≈")
def test_a_mathematical_sign_between_words_separates(sign: str):
    assert kept(f"Home {sign} Products {sign} Chairs") == [sign, sign]


def test_an_arrow_that_was_found_as_an_emoji_separates():
    text = "File → Save"
    found = read_characters(text, find_protected(text), alphabet(), keeps=True)
    assert found == Reading(text, (ProtectedSpan(5, 6, Kind.BORDER),))


def test_the_mark_of_a_note_does_not_keep_its_word():
    assert kept("The rule¹ says so.") == ["¹"]
    assert kept("It ends.² Tom goes.") == ["²"]
    assert kept("It has 5 mm².") == ["5 mm²"]


@pytest.mark.parametrize(
    "text", ["Привет, как дела?", "В 2019 году", "東京です。", "مرحبا بالعالم", "≤ 5", " • ", "Γειά! 5"]
)
def test_a_text_without_a_word_that_is_read_is_kept_as_a_whole(text: str):
    assert kept(text) == [text.strip()]


def test_an_ellipsis_at_an_end_is_not_seen_by_a_model_that_lacks_it():
    assert kept("He waited…") == ["…"]
    assert kept("…and left") == ["…"]
    assert read("He… left").text == "He... left"


@pytest.mark.parametrize("text", ["THIS IS TOM", "CAFÉ AND MORE"])
def test_capitals_that_are_read_in_lower_case_are_no_reason_to_keep_a_word(text: str):
    small = frozenset(each for each in PLAIN if each == each.lower())
    assert read_characters(text, (), alphabet(small), keeps=True, lowers=True) is None
    assert read(text, small).text == text.lower()
    assert not read(text, small).spans


def test_characters_that_are_read_in_some_words_only_are_judged_by_the_word():
    model = Alphabet(lambda text: text in ("œuvre", "a", "the") or set(text) <= set("theuvra "), ["œuvre"])
    assert read_characters("the œuvre", (), model, keeps=True) is None
    found = read_characters("the œa", (), model, keeps=True)
    assert found is not None
    assert found.spans == (ProtectedSpan(4, 6, Kind.UNKNOWN),)


@pytest.mark.parametrize("string", ["m²", "②", "½", "№", "⑵", "Lego™"])
def test_a_tokenizer_that_reads_a_form_that_says_less_does_not_get_it(string: str):
    model = Alphabet(lambda text: PLAIN.issuperset(unicodedata.normalize("NFKC", text).replace("\u2044", "/")), PLAIN)
    assert model.reads(string)
    found = read_characters(f"Tom has {string}, too.", (), model, keeps=True)
    assert found is not None
    assert [found.text[span.begin : span.end] for span in found.spans] == [string]


def test_a_word_may_not_be_read_though_its_characters_are():
    model = Alphabet(lambda text: "xz" not in text and text.isascii(), by_words=True)
    found = read_characters("Tom saw axzb, too.", (), model, keeps=True)
    assert found is not None
    assert [found.text[span.begin : span.end] for span in found.spans] == ["axzb"]
    assert read_characters("Tom saw ax zb, too.", (), model, keeps=True) is None
    assert read_characters("Tom saw axzb, too.", (), model, keeps=False) is None


def test_more_strings_than_allowed_are_refused():
    text = "Tom • " * 11
    assert read_characters(text, (), alphabet(), keeps=True, most=11) is not None
    with pytest.raises(TooManySpans):
        read_characters(text, (), alphabet(), keeps=True, most=10)


@pytest.mark.parametrize(
    "unit",
    [
        "東",
        "я ",
        "Москва home ",
        "aé̂",
        "a•",
        "~5",
        "\u0301",
        "«",
        "«a",
        "»",
        "ﬁ",
        "ﬁa",
        "a<",
        "a² 5",
        "5",
        "Ａ",
        "Ａ\u0301",
        "\u200e",
        "`a",
        "a–",
        "°",
        "5 °",
        "…",
        "#a",
        "(東)",
        "1² ",
        "aя東",
    ],
)
@pytest.mark.parametrize("keeps", [True, False])
def test_the_time_is_linear_in_the_text(unit: str, keeps: bool):
    reader = alphabet()

    def prepare(size: int):
        text = unit * size + "°"
        return lambda: read_characters(text, (), reader, keeps=keeps)

    assert growth_of(prepare, 1000, worth=0.005, most=2**17).ratio <= LINEAR


@pytest.mark.parametrize("character", ["\u200b", "\u200e", "\ufe0f", "\u034f", "\U000e0101"])
def test_what_is_not_seen_is_left_out_or_told_apart(character: str):
    assert is_unseen(character)
    assert read(f"To{character}m").text == "Tom" or character == "\u200b"
