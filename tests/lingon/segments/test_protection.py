"""What is protected in a text, by each form of the table and in messages, and in what time it is found."""

from __future__ import annotations

import random
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.segments.kept_forms import FORMS, WORD, KeptForm, Kind, ProtectedSpan, merge
from lingon.segments.kept_messages import MESSAGES
from lingon.segments.protection import KeptStrings, find_protected, spans_of, with_figures
from lingon.segments.sentence import kept_strings
from tests.support.timing import LINEAR, growth_of

HOSTILE = "{}<>%$#:_/\\.@,() \n1a=é🍕"


def found(text: str, *keep: str) -> list[str]:
    return [text[span.begin : span.end] for span in find_protected(text, KeptStrings(keep))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("See https://example.org/a_(b)?q=1&r=%20#top.", ["https://example.org/a_(b)?q=1&r=%20#top"]),
        ("(ftp://example.org, www.example.org)", ["ftp://example.org", "www.example.org"]),
        ("Write to first.last+tag@mail.example.org.", ["first.last+tag@mail.example.org"]),
        ("Open /etc/hosts, ~/notes.txt or src/main/app.py.", ["/etc/hosts", "~/notes.txt", "src/main/app.py"]),
        (r"In C:\Users\me\file.txt it is.", [r"C:\Users\me\file.txt"]),
        ("{} {0} {x} {{x}} ${x} #{x} {0, date}", ["{}", "{0}", "{x}", "{{x}}", "${x}", "#{x}", "{0, date}"]),
        ("%s %(x)s %1$s %-5.2f %d%% %USER%", ["%s", "%(x)s", "%1$s", "%-5.2f", "%d", "%%", "%USER%"]),
        ('Press <x id="1"/> or <b>here</b>.', ['<x id="1"/>', "<b>", "</b>"]),
        ("__1__ and :name, :smile:", ["__1__", ":name", ":smile:"]),
        ("Order 47110815 of 2026-11-23", ["47110815", "2026-11-23"]),
        ("Name: ________ or ----------", ["________", "----------"]),
        ("Chapter 1 ............. 5", ["............."]),
        ("Get da39a3ee5e6b4b0d3255bfef95601890afd80709.", ["da39a3ee5e6b4b0d3255bfef95601890afd80709"]),
        (
            "data iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4//8=",
            ["iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4//8="],
        ),
        ("ℹ️ Ⓜ️ ⤴️ ⤵️ ▶️", ["ℹ️", "Ⓜ️", "⤴️", "⤵️", "▶️"]),
        ("I like 👩‍👩‍👧‍👦 and 🇩🇪, ❤️ 1️⃣", ["👩‍👩‍👧‍👦", "🇩🇪", "❤️", "1️⃣"]),
    ],
)
def test_each_kind_is_found_without_the_punctuation_of_the_sentence(text: str, expected: list[str]):
    assert found(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "It is 10% done, at 50 % of 12 or 9.",
        "He said: this and/or that, in his 20s, on the 20th of May or the 100th day.",
        "An MP3 of a B-52 in 3D; a 5-year-old boy. Mambo No. 5",
        "Wait... what? (Yes!) a < b and c > d",
        "Note: it ends at 10; see 3. * 4 * 5, a_b c~d",
        "No!!!!!!!! So... Donaudampfschifffahrtsgesellschaftskapitaenswitwe -- well-known.",
    ],
)
def test_a_plain_text_has_nothing_to_protect(text: str):
    assert found(text) == []


@pytest.mark.parametrize("after", ["\u200b", "\ufeff\n", "\u00ad "])
def test_no_span_has_invisible_characters_at_its_ends(after: str):
    """A segment has none either, and a span must be within one."""
    assert found(f"See https://example.org/a{after}") == ["https://example.org/a"]
    assert found(rf"See C:\Users\me{after}") == [r"C:\Users\me"]
    assert found("The blue house \nNow", "blue house ", " The", "\u200b") == ["blue house"]


def test_kept_strings_are_whole_words_with_case():
    assert found("Acme, acme, Acmes and C++ in C++20", "Acme", "C++") == ["Acme", "C++", "C++"]


def test_of_a_message_only_the_skeleton_and_the_number_sign_are_protected():
    text = "{n, plural, =0 {No files} one {# file of {user}} other {{kind, select, a {old #} other {new}} files}}"
    spans = find_protected(text)
    rest, at = [], 0
    for span in spans:
        rest.append(text[at : span.begin])
        at = span.end
    assert [part.strip() for part in rest if part.strip()] == ["No files", "file of", "old", "new", "files"]
    assert {text[span.begin : span.end] for span in spans if span.kind is Kind.PLACEHOLDER} == {"#", "{user}"}


def test_a_message_whose_braces_do_not_match_has_no_skeleton():
    assert not any(span.kind is Kind.SKELETON for span in find_protected("{n, plural, one {file other {files}"))


@given(st.text(alphabet=HOSTILE, max_size=80), st.lists(st.text(alphabet=HOSTILE, max_size=3), max_size=3))
def test_spans_are_in_order_not_empty_and_apart(text: str, keep: list[str]):
    at = 0
    for begin, end, _ in find_protected(text, KeptStrings(keep)):
        assert at <= begin < end <= len(text)
        at = end


@pytest.mark.parametrize(
    "unit",
    ["a", "1", ".", "{", "}", "<a", "%", ":a", "_", "/", "a/", "@", "a@", "\\\\a", "{a,plural,", "http://", "a ", "http://a)",
     "{a,plural,one{", "{{", "${", "%(", "__a", "C:\\", "🍕", "1.", "=0{", "a@a.", "{a, ",
     "-", "=-", "-------", "aA1", "aaaaaaaaaa "],
)  # fmt: skip
def test_a_hostile_text_takes_a_time_that_is_linear_in_its_length(unit: str):
    """A megabyte of each took at most 1.2 s; these would take minutes with a quadratic expression."""
    text = (unit * 150_000)[:150_000]
    began = time.process_time()
    find_protected(text)
    assert time.process_time() - began < 2


def test_many_hits_of_a_kept_string_take_a_time_that_is_linear_in_their_number():
    """500,000 took 0.9 s."""
    began = time.process_time()
    assert len(find_protected("a " * 100_000, KeptStrings(["a"]))) == 100_000
    assert time.process_time() - began < 2


@given(
    st.text(alphabet="aß-_ 1", max_size=40), st.lists(st.text(alphabet="aß-_ 1", min_size=1, max_size=5), max_size=6)
)
def test_kept_strings_are_found_where_each_of_them_alone_would_be(text: str, keep: list[str]):
    """An expression for each string is the reference: here it finds a string again where it overlaps itself."""
    places = set[int]()
    for string in keep:
        edges = r"(?<!\w)" * bool(re.match(r"\w", string)), r"(?!\w)" * bool(re.search(r"\w\Z", string))
        for found in re.finditer(f"{edges[0]}(?={re.escape(string)}{edges[1]})", text):
            places.update(range(found.start(), found.start() + len(string)))
    assert {place for span in KeptStrings(keep).find(text) for place in range(*span)} == places


@given(st.text(alphabet='a1234é "()\u0301', max_size=60), st.lists(st.sampled_from(['"', "\u0301", "a"]), max_size=2))
def test_a_kept_string_has_the_whole_of_each_word_that_it_touches(text: str, keep: list[str]):
    spans = find_protected(text, KeptStrings(keep))
    whole = " ".join(kept_strings(text, spans))
    words = [
        found for found in re.finditer(r"\w++", text) if any(b < found.end() and found.start() < e for b, e, _ in spans)
    ]
    assert all(word[0] in whole for word in words)


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(0, 2, Kind.SIGN), (0, 9, Kind.PATH)], (0, 9, Kind.PATH)),
        ([(0, 9, Kind.PATH), (0, 2, Kind.SIGN)], (0, 9, Kind.PATH)),
        ([(0, 5, Kind.URL), (3, 9, Kind.PATH)], (0, 9, Kind.URL)),
        ([(0, 2, Kind.SIGN), (0, 5, Kind.URL), (4, 9, Kind.PATH)], (0, 9, Kind.URL)),
    ],
)
def test_spans_that_overlap_have_the_kind_of_the_longest_of_the_first(
    spans: list[tuple[int, int, Kind]], expected: tuple[int, int, Kind]
):
    assert merge(ProtectedSpan(*span) for span in spans) == [ProtectedSpan(*expected)]


EXAMPLES = [(form, example) for form in FORMS for example in form.examples]
ARRANGEMENTS = [
    "{}",
    "Open {} now.",
    "{} is here.",
    "See {}",
    "See {}.",
    "We know {}, don't we?",
    "Is it {}?",
    "It is ({}) today.",
    'They say "{}" here.',
    "Between {} and {} is the house.",
    "Die Häuser: {}; schöne Gärten.",
    "Eins.\n{}\nZwei.",
]


def sibling(example: str, chance: random.Random) -> str:
    """Return a string with other figures."""
    return re.sub("[1-9]", lambda _: chance.choice("123456789"), example)


@pytest.mark.parametrize(("form", "example"), EXAMPLES, ids=[f"{form.name}: {example}" for form, example in EXAMPLES])
def test_each_example_is_found_whole_in_every_arrangement(form: KeptForm, example: str):
    for arrangement in ARRANGEMENTS:
        text = arrangement.replace("{}", example)
        found = [text[begin:end] for begin, end, _ in find_protected(text)]
        assert found == [example] * arrangement.count("{}"), text


@pytest.mark.parametrize("form", FORMS, ids=[form.name for form in FORMS])
def test_each_form_has_two_examples_or_more_and_finds_them_itself(form: KeptForm):
    assert len(set(form.examples)) > 1 or form.kind is Kind.PLACEHOLDER
    for example in form.examples:
        assert form.may_be_in(example)
        assert (0, len(example)) in [(begin, end) for begin, end, _ in spans_of(form, example)]


@pytest.mark.parametrize("seed", range(20))
def test_strings_with_other_figures_are_found_as_well(seed: int):
    chance = random.Random(seed)
    for form, example in EXAMPLES:
        if form.kind in (Kind.NUMBER, Kind.PLACEHOLDER) and "XXX" not in example:
            text = f"We see {(other := sibling(example, chance))} there."
            assert [text[begin:end] for begin, end, _ in find_protected(text)] == [other], text


@pytest.mark.parametrize(("form", "example"), EXAMPLES, ids=[f"{form.name}: {example}" for form, example in EXAMPLES])
def test_words_that_touch_a_string_are_kept_with_it_if_the_table_says_so(form: KeptForm, example: str):
    text = f"Go {example} on"
    assert kept_strings(text, find_protected(text)) == [example]
    if not (example[0].isalnum() or example[-1].isalnum() or form.kind is Kind.CODE or example == 2 * "\\"):
        text = f"Go {example}é on"
        kept = kept_strings(text, find_protected(text))
        if kept and kept[0].startswith(example):
            assert kept == [example + "é" * (form.around == WORD)]


@pytest.mark.parametrize(
    ("text", "figures"),
    [
        ("He has 5 cars and 12 boats.", ["5", "12"]),
        ("A 5-year-old boy, no. 7: 3", ["5", "7", "3"]),
        ("The 5th of May, 3D, MP3, 1.5 and 100 and 2019", []),
        ("{0} of 5 and %2$s of 7", ["5", "7"]),
    ],
)
def test_small_numbers_beside_what_is_protected_are_figures(text: str, figures: list[str]):
    spans = with_figures(text, find_protected(text))
    assert [text[begin:end] for begin, end, kind in spans if kind is Kind.FIGURE] == figures
    assert spans == sorted(spans)


@given(st.text(alphabet="0123456789 ,.:-–$€§<~kmghoursé²½\n", max_size=60), st.sampled_from([1, 2, 400]))
def test_numbers_are_found_near_digits_as_in_the_whole_text(part: str, times: int):
    text = part * times
    for form in FORMS:
        if form.kind is Kind.NUMBER and not form.trims:
            found = [each.span() for each in form.pattern.finditer(text) if form.accepts(text, *each.span())]
            assert [span[:2] for span in spans_of(form, text)] == found


PARTS = sorted({part for _, example in EXAMPLES for part in (example, example[:-1], example[: len(example) // 2])})


@pytest.mark.parametrize("part", [each for each in PARTS if each])
def test_many_strings_and_begins_of_strings_take_a_time_that_is_linear_in_their_number(part: str):
    growth = growth_of(lambda size: lambda: find_protected((part * size)[:size]), 4_000, worth=0.002, most=32_000)
    assert growth.ratio <= LINEAR


MESSAGE_EXAMPLES = [example for form in MESSAGES for example in form.examples]


def texts(message: str) -> list[str]:
    """Return what is translated."""
    found, at = [], 0
    for begin, end, _ in find_protected(message):
        found.append(message[at:begin].strip())
        at = end
    return [text for text in [*found, message[at:].strip()] if text]


@pytest.mark.parametrize("example", MESSAGE_EXAMPLES)
def test_the_texts_of_each_example_are_translated_and_nothing_else(example: str):
    assert set(texts(example)) <= {"red car", "red cars", "blue car"}
    assert len(texts(example)) == example.count(" car") - example.count("} cars")


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("You have { $n ->\n  [0] no mail\n  *[other] { $n } mails\n}.", ["You have", "no mail", "mails", "."]),
        ('{ NUMBER($n, type: "ordinal") -> [one] first *[other] next }', ["first", "next"]),
        (
            "{ -brand.gender ->\n [masculine] he { $m -> [one] a *[other] b }\n *[feminine] she\n}",
            ["he", "a", "b", "she"],
        ),
        (".match $a $b\none * {{one {$a} here}}\n*   * {{many}}", ["one", "here", "many"]),
        (".input {$n :number}\n.local $m = {$n :integer}\n{{the {$m} cars}}", ["the", "cars"]),
        ("Say .match $n one {{hello}} * {{bye}} to dear {name}!", ["Say", "hello", "bye", "to dear", "!"]),
        (".match $x * {{a \\{ b {#b}bold{/b} c}}", ["a", "b", "bold", "c"]),
    ],
)
def test_messages_have_texts_inside_of_which_placeholders_are_kept(message: str, expected: list[str]):
    assert texts(message) == expected


@pytest.mark.parametrize(
    "text",
    [
        "{ $n -> [one] a *[other] b",
        "go -> [one] *[other] b",
        ".match {{name}} and {{b",
        ".match $n one {{a}} * {{b}",
        "Hello {{name}} .input",
        ".inputs {{name}}",
    ],
)
def test_a_text_that_is_no_whole_message_has_no_skeleton(text: str):
    assert not any(kind is Kind.SKELETON for _, _, kind in find_protected(text))


@given(
    st.lists(
        st.sampled_from([*MESSAGE_EXAMPLES, "{", "}", "{{", "}}", "->", "[one]", "*[other]", ".match", "a", "\n"])
    ).map(" ".join)
)
def test_spans_of_any_pieces_of_messages_are_in_order_and_apart(text: str):
    at = 0
    for begin, end, _ in find_protected(text):
        assert at <= begin < end <= len(text)
        at = end


@pytest.mark.parametrize(
    "unit",
    ["{ $n -> [one] a *[other] ", "{ $n -> [one] a *[other] b } ", "*[a] ", "-> [one] ", "{ $n ->", "{{", "{{a}}",
     "{{{", "}} ", "\\{"],
)  # fmt: skip
@pytest.mark.parametrize("begin", ["", ".match ", "{ $n -> "])
def test_many_braces_and_variants_take_a_time_that_is_linear_in_their_number(begin: str, unit: str):
    def work(size: int) -> object:
        return lambda: find_protected(begin + (unit * size)[:size])

    assert growth_of(work, 8_000, worth=0.002, most=64_000).ratio <= LINEAR
