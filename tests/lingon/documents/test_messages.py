"""Texts of programs: ICU messages, signs that are kept, and which values are language."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.documents.messages import MOST_GROWTH, Message, Style, has_words, length, parsed, with_categories
from lingon.documents.plurals import categories, is_language, lacking, numbered
from tests.support.documents import texts_of, translated

SELECTORS = st.sampled_from(["one", "other", "=0", "few", "many"])
TEXTS = st.lists(
    st.sampled_from(["Tom ", "q", "#", "{name}", "{0, number, #.#}", "\n", "<b>", "</b>", "''", "'{'", "\u00e9", " "]),
    max_size=5,
).map("".join)
NAMES = st.sampled_from(["n", "count", "0"])


@st.composite
def messages(draw: st.DrawFn, depth: int = 2) -> str:
    """ICU messages inside each other, with texts around them."""
    found = draw(TEXTS)
    for _ in range(draw(st.integers(0, 2))):
        kind = draw(st.sampled_from(["plural", "select", "selectordinal"]))
        blanks = draw(st.sampled_from(["", " ", "\n  "]))
        offset = draw(st.sampled_from(["", " offset:1"])) if kind == "plural" else ""
        inner = messages(depth - 1) if depth > 0 else TEXTS
        arms = "".join(
            f"{blanks or ' '}{draw(SELECTORS)}{blanks}{{{draw(inner)}}}" for _ in range(draw(st.integers(1, 3)))
        )
        found += f"{{{draw(NAMES)},{blanks}{kind},{offset}{arms}{blanks}}}{draw(TEXTS)}"
    return found


@given(messages(), st.booleans())
def test_a_message_whose_texts_stay_is_as_it_was(value: str, doubles: bool):
    message = Message(value, Style(doubles=doubles))
    if message.text:
        assert message.translated(message.text) == value


HTML = st.lists(
    st.sampled_from(
        ["Tom q. ", "q", "<p>", "</p>", "<br/>", "<li class='a'>", "<code>", "</code>", "q q", "<b>", "</b>", "<i/>"]
    ),
    max_size=9,
).map("".join)


@given(HTML)
def test_html_in_a_text_is_as_it_was(value: str):
    message = Message(f"Tom {value}")
    assert message.translated(message.text) == f"Tom {value}"


def test_blocks_of_html_end_a_sentence_and_code_is_kept():
    value = "<p>One.</p><p class='a'>Two <code>a <b>b</b></code> <em>three</em>.</p><br>Four <kbd>x"
    assert Message(value).text == (
        'One.<b i="0"/><b i="1"/>Two <v i="2"/> <s i="0">three</s>.<b i="3"/><b i="4"/>Four <v i="5"/>x'
    )


@given(messages())
def test_a_translation_has_the_arms_and_numbers_of_the_message(value: str):
    message = Message(value)
    if message.text:
        found = message.translated(message.text.replace("q", "Tim {x}"))
        assert found.replace("Tim {x}", "q") == value


def test_each_arm_is_a_sentence_and_its_number_a_placeholder():
    value = "Hi {name}: {n, plural, =0 {nothing} one {# <b>file</b>} other {# <b>files</b>}}!"
    message = Message(value)
    assert message.text == (
        'Hi {name}: <b i="0"/>nothing<b i="1"/>{0} <s i="0">file</s><b i="2"/>{0} <s i="1">files</s><b i="3"/>!'
    )


@pytest.mark.parametrize(
    ("value", "target", "expected"),
    [
        (
            "{n, plural, one {# file} other {# files}}",
            "pl",
            "{n, plural, one {# file} few {# files} many {# files} other {# files}}",
        ),
        ("{n, plural, one {# file} other {# files}}", "de", "{n, plural, one {# file} other {# files}}"),
        ("{n, plural, one {# file} other {# files}}", "ja", "{n, plural, one {# file} other {# files}}"),
        ("{n,plural,=1{a} other{b #}}", "ru", "{n,plural,=1{a} few{b #} many{b #} other{b #}}"),
        ("{n,plural,other{b #}one{a}}", "pl", "{n,plural, few{b #} many{b #}other{b #}one{a}}"),
        ("{n,plural,\n  one{a}\n  other{b}\n}", "cs", "{n,plural,\n  one{a}\n  few{b}\n  many{b}\n  other{b}\n}"),
        ("{n,selectordinal,other{#th}}", "fr", "{n,selectordinal, one{#th}other{#th}}"),
        ("{n,select,a{b}other{c}}", "pl", "{n,select,a{b}other{c}}"),
        ("{n,plural,one{a}few{b}}", "pl", "{n,plural,one{a}few{b}}"),
    ],
)
def test_arms_that_the_language_has_are_added(value: str, target: str, expected: str):
    message = Message(f"Tom {value}", target=target)
    assert message.translated(message.text) == f"Tom {expected}"


def test_a_message_grows_by_a_bound():
    value = "a"
    for name in "bcdefg":
        value = f"{{{name},plural,one{{x}}other{{{value}}}}}"
    tree = parsed(value)
    assert tree is not None
    assert length(tree) == len(value)
    assert with_categories(tree, lambda kind: categories("ar", kind)) == tree
    assert MOST_GROWTH == 16
    assert parsed(f"{{h,plural,other{{{value}}}}}") is None


@pytest.mark.parametrize(
    "value",
    [
        "{n, plural, one {a",
        "{n, plural, one a}",
        "{n, plural}",
        "{n, plural,}",
        "}{n, plural, other {a}}",
        "{n, plural, other {a} x}",
        "{ {n, plural, other {a}}",
    ],
)
def test_what_is_no_message_is_text(value: str):
    assert parsed(value) is None
    message = Message(f"Tom {value}")
    assert message.translated(message.text) == f"Tom {value}"


@pytest.mark.parametrize("blanks", ["", " ", "\n\t"])
def test_no_apostrophe_comes_to_stand_before_an_argument(blanks: str):
    """ICU takes it as a quotation mark, so that the argument would be text."""
    message = Message(f"of {blanks}{{name}} and {{{{other}}}}")
    assert message.translated("l'{name} et l'{{other}}") == "l\u2019{name} et l'{{other}}"
    quoted = Message("It''s {name}")
    assert quoted.text == "It's {name}"
    assert quoted.translated("l'{name}") == "l''{name}"


@given(st.lists(st.sampled_from(["$a$", "$b$", " Tom ", "{0}", "{7}", "."]), max_size=8).map("".join))
def test_signs_have_places_that_the_text_has_not(value: str):
    message = Message(f"Tom {value}", Style(kept=re.compile(r"\$\w+\$"), is_icu=False))
    assert "$" not in message.text
    assert message.translated(message.text) == f"Tom {value}"
    assert message.translated(message.text.replace("Tom", "Tim")) == f"Tom {value}".replace("Tom", "Tim")


@pytest.mark.parametrize(
    "value",
    [
        "Open",
        "Yes/No",
        "OK",
        "Save as...",
        "100% sure",
        "e-mail",
        "{name} left",
        "ab cd",
        "Tom's",
        "\u4e2d",
        "d'accord",
        "%d days",
        "Hello_ world",
    ],
)
def test_words_are_language(value: str):
    assert has_words(value)


@pytest.mark.parametrize(
    "value",
    [
        *(
            "",
            " ",
            "12:30",
            "#fff",
            "#AABBCC80",
            "rgb(1, 2, 3)",
            "btn_ok",
            "btnOk",
            "BTN_OK",
            ":year",
            "X",
            "text/html",
        ),
        *(
            "https://example.com/a b".partition(" ")[0],
            "tom@example.com",
            "{name}",
            "{{count, number}}",
            "${x}",
            "%{x}",
        ),
        *(
            "%Y-%m-%d %H:%M",
            "%s: %d",
            "%1$@",
            "$t(a.b)",
            "$USER$",
            "<br/>",
            "&nbsp;",
            "Europe/Berlin",
            "./a/b",
            "app.title",
        ),
    ],
)
def test_codes_addresses_and_signs_are_none(value: str):
    assert not has_words(value)


def test_the_categories_are_those_of_unicode():
    assert categories("de") == ("one", "other")
    assert categories("pt-BR") == ("one", "many", "other")
    assert categories("ja") == ("other",)
    assert categories("fr", "selectordinal") == ("one", "other")
    assert (categories("xx"), categories("not a language"), numbered("xx")) == ((), (), (0, 0))
    assert lacking(["one", "other"], "pl") == ["few", "many"]
    assert [numbered(each) for each in ("de", "ja", "pl", "ar", "sl", "fr")] == [
        (2, 0),
        (1, 0),
        (3, 0),
        (6, 1),
        (4, 1),
        (2, 0),
    ]
    assert [is_language(each) for each in ("de", "pt_BR", "app", "x", "title")] == [True, True, False, False, False]


@pytest.mark.parametrize("name", ["a.json", "a.yml", "a.properties"])
def test_messages_of_all_formats_get_the_arms_of_the_language(name: str):
    text = {
        "a.json": '{"a": "{n, plural, one {# file} other {# files}}"}',
        "a.yml": 'a: "{n, plural, one {# file} other {# files}}"\n',
        "a.properties": "a={n, plural, one {# file} other {# files}}\n",
    }[name]
    written = translated(name, text, lambda each: each.replace("file", "Datei"), "pl").decode()
    added = "few {# Dateis} many {# Dateis} other {# Dateis}"
    assert written == text.replace("# file}", "# Datei}").replace("other {# files}", added)
    assert texts_of(name, text) == ['{0} file<b i="0"/>{0} files']
