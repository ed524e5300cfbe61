"""What is protected in a text, and in what time it is found."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.segments.protection.find import find_protected
from lingon.segments.protection.sentence import kept_strings
from lingon.segments.protection.spans import Kind, ProtectedSpan, merge
from lingon.segments.protection.strings import KeptStrings

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
