"""Resources of Android: what is text in them, how it is escaped, and the quantities of plurals."""

from __future__ import annotations

import re
from collections.abc import Callable
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon import Model
from lingon.documents import Document, UnreadableDocument, read_document
from lingon.documents.plurals import CATEGORIES, categories
from tests.support.repository import ROOT

SPACES = 'xmlns:xliff="urn:oasis:names:tc:xliff:document:1.2" xmlns:tools="http://schemas.android.com/tools"'


def resources(body: str, attributes: str = "") -> str:
    return f'<?xml version="1.0" encoding="utf-8"?>\n<resources {SPACES}{attributes}>\n{body}\n</resources>\n'


def read(text: str, target: str = "de") -> Document:
    return read_document("strings.xml", text.encode(), target)


def translated(text: str, translate: Callable[[str], str] = str.upper, target: str = "de") -> str:
    document = read(text, target)
    return document.write([translate(each) for each in document.texts]).decode()


def string(value: str) -> str:
    return resources(f'    <string name="a">{value}</string>')


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (r"Don\'t go", "Don't go"),
        (r"Say \"yes\" now", 'Say "yes" now'),
        (r"A\\B here", "A\\B here"),
        (r"Wait\u2026", "Wait\u2026"),
        (r"Caf\u00e9 A&amp;B", "Caf\u00e9 A&amp;B"),
        (r"\@home", "@home"),
        (r"\?really", "?really"),
        (r"One\nTwo", 'One<b i="0"/>Two'),
        (r"One\tTwo", 'One<b i="0"/>Two'),
        (r"\u0020One\u0020", "One"),
        ('"  One\'s two  "', "  One's two  "),
        ("One\n        Two", 'One <v i="0"/>Two'),
        ("\n        One two\n    ", "One two"),
        ("Hello <b>dear</b> friend", 'Hello <s i="0">dear</s> friend'),
        ('Hello <xliff:g id="n" example="Tom">%1$s</xliff:g>!', 'Hello <v i="0"/>!'),
        ("Hello &lt;b>dear&lt;/b> friend", 'Hello <s i="0">dear</s> friend'),
        ("<![CDATA[Hello <b>dear</b> friend]]>", 'Hello <s i="0">dear</s> friend'),
        ("One<!-- a note -->two", 'One<v i="0"/>two'),
    ],
)
def test_a_text_is_read_without_its_escapes_and_written_with_them(value: str, text: str):
    assert read(string(value)).texts == [text]
    assert translated(string(value), str) == string(value)


PARTS = st.sampled_from(
    [
        "Tom ",
        "and me",
        r"\'",
        r"\"",
        r"\n",
        r"\u0020",
        "%1$s",
        "<b>us</b>",
        "&lt;i&gt;it&lt;/i&gt;",
        "&amp;",
        "\n    ",
        ".",
    ]
)


@given(st.lists(PARTS, min_size=1, max_size=8).map("".join))
def test_a_translation_that_is_the_text_gives_the_file_as_it_was(value: str):
    assert translated(string(value), str) == string(value)


@given(st.lists(st.sampled_from([*"ab @?'\"\\<&>]\u00e9", "\n", "]]>"]), max_size=12).map("".join), st.booleans())
def test_any_translation_is_read_as_it_was_written(text: str, cdata: bool):
    text = f"x{text}x"
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    written = translated(string("<![CDATA[Tom]]>" if cdata else "Tom"), lambda _: escaped)
    value = ElementTree.fromstring(written).findtext("string") or ""
    unescaped = re.sub(r"\\(.)", r"\1", value)
    assert re.sub(r"\s+", " ", unescaped) == re.sub(r"\s+", " ", text)
    assert not re.search(r"(?<!\\)(?:\\\\)*['\"]", value)


@pytest.mark.parametrize("first", ["@", "?"])
def test_a_translation_that_would_be_a_reference_is_escaped(first: str):
    assert f">\\{first}Tom<" in translated(string("Tom"), lambda _: f"{first}Tom")


@pytest.mark.parametrize(
    "body",
    [
        '<string name="a" translatable="false">Tom</string>',
        '<string name="a">@string/app_name</string>',
        '<string name="a">?attr/title</string>',
        '<string name="a">12:30</string>',
        '<string-array name="a" translatable="false"><item>Tom</item></string-array>',
        '<color name="a">red</color><integer-array name="b"><item>1</item></integer-array>',
        '<item name="a" type="id">Tom</item>',
        '<plurals name="a" translatable="false"><item quantity="other">Toms</item></plurals>',
    ],
)
def test_what_is_no_text_stays(body: str):
    text = resources(body)
    assert list(read(text, "ar").texts) == []
    assert translated(text, target="ar") == text


def test_strings_arrays_and_items_are_translated_in_their_places():
    body = '<!-- a --><string name="a">One</string>\n<string-array name="b"><item>Two</item> <item>Three</item>'
    text = resources(body + "</string-array>" + '<item name="c" type="string">Four</item>')
    assert translated(text) == re.sub("One|Two|Three|Four", lambda each: each[0].upper(), text)


@pytest.mark.parametrize("target", ["de", "fr", "ar", "ru", "pl", "ja", "zh-Hant", "lv", "cy", "eng_Latn"])
def test_a_plural_has_the_quantities_of_the_target(target: str):
    items = '\n    <item quantity="one">one file</item>\n    <item quantity="other">%d files</item>\n'
    written = translated(resources(f'<plurals name="p">{items}</plurals>'), target=target)
    found = {each.get("quantity"): each.text for each in ElementTree.fromstring(written).iter("item")}
    assert tuple(found) == categories(target)
    assert {found.pop("one", "ONE FILE")} == {"ONE FILE"}
    assert set(found.values()) == {"%D FILES"}
    assert len(set(re.findall(r"\n *(?=<item)", written))) == 1


@given(st.lists(st.sampled_from(CATEGORIES), min_size=1, unique=True), st.sampled_from(["de", "ar", "ja", "ru", "lt"]))
def test_whatever_quantities_a_file_has_those_of_the_target_are_there_once(names: list[str], target: str):
    items = " ".join(f'<item quantity="{name}">files {name}</item>' for name in names)
    written = translated(resources(f'<plurals name="p">{items}</plurals>'), str, target)
    found = [each.get("quantity") for each in ElementTree.fromstring(written).iter("item")]
    assert set(categories(target)) <= set(found)
    assert len(found) == len(set(found))


def test_without_a_known_target_plurals_keep_their_quantities_and_a_note_says_so():
    text = resources('<plurals name="p"><item quantity="one">a file</item><item quantity="few">files</item></plurals>')
    document = read(text, "xx-unknown")
    assert document.write(document.texts).decode() == text
    assert "'xx-unknown' are not known" in document.notes[0]


def test_a_declared_entity_stays_a_reference():
    text = (
        '<!DOCTYPE resources [\n<!ENTITY app "My App">\n]>\n' + "<resources><string>Open &app; now</string></resources>"
    )
    assert read(text).texts == ['Open <v i="0"/> now']
    assert translated(text, str) == text


def test_a_reference_in_a_value_or_to_an_entity_of_another_file_stays():
    text = (
        '<!DOCTYPE a SYSTEM "a.dtd" [<!ENTITY app "App">]>\n<resources><string name="&app;">Open &other; now</string>'
    )
    assert read(f"{text}</resources>").texts == ['Open <v i="0"/> now']
    assert translated(f"{text}</resources>", str) == f"{text}</resources>"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<resources><string>Tom</resources>", "not well-formed at line 1, column 25"),
        ("<resources>\n <string>&x;</string></resources>", "not well-formed at line 2, column "),
        ('<!DOCTYPE a [<!ATTLIST string b CDATA "c">]><resources/>', "declares attributes of the element string; only"),
        ('<!DOCTYPE a [<!ENTITY b "&c;">]><resources/>', "declares the entity b, which is no text of at most 1,000"),
        ('<!DOCTYPE a [<!ENTITY % b "c">]><resources/>', "declares the entity b, which is no text of at most 1,000"),
        ('<!DOCTYPE a [<!ENTITY b SYSTEM "c">]><resources/>', "declares the entity b, which is no text of at most"),
        (
            f'<!DOCTYPE a [<!ENTITY b "{"c" * 1001}">]><resources/>',
            "declares the entity b, which is no text of at most",
        ),
        (
            "<!DOCTYPE a [" + "".join(f"<!ENTITY b{each} 'c'>" for each in range(1001)) + "]><resources/>",
            "declares more than 1,000 entities",
        ),
    ],
)
def test_a_broken_or_hostile_file_is_refused_in_one_line(text: str, message: str):
    with pytest.raises(UnreadableDocument) as error:
        read(text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_the_language_that_a_file_says_becomes_the_target():
    text = resources('<string name="a">Tom</string>', ' tools:locale="en"')
    assert 'tools:locale="de">' in translated(text)
    assert 'tools:locale="en">' in translated(text, target="")


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_line_ends_stay(line_end: str):
    text = string('"One\n    Two" three').replace("\n", line_end)
    assert translated(text, str) == text


def test_a_model_translates_each_string_as_it_translates_its_text():
    with Model(ROOT / "models" / "en-de") as model:
        text = resources('<string name="a">The house is small.</string>\n<string name="b">He doesn\\\'t go.</string>')
        found = ElementTree.fromstring(model.translate_document("strings.xml", text.encode(), beam_size=1).content)
        for value, source in zip(found.iter("string"), ["The house is small.", "He doesn't go."], strict=True):
            expected = model.translate(source, beam_size=1).text
            assert (value.text or "").replace("\\'", "'") == expected
