"""Of a message with several texts, the skeleton is kept and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.segments.protection.find import find_protected
from lingon.segments.protection.messages import MESSAGES
from lingon.segments.protection.spans import Kind
from tests.support.growth import LINEAR, growth_of

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
