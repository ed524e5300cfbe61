"""Translation memories: units that lack the target get it, and pairs stay."""

from __future__ import annotations

from collections.abc import Callable
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.documents import Document, UnreadableDocument, read_document

LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"


def memory(units: str, source: str = "en") -> str:
    return (
        f'<?xml version="1.0"?>\n<tmx version="1.4">\n<header srclang="{source}"/>\n<body>\n{units}\n</body>\n</tmx>\n'
    )


def unit(*variants: tuple[str, str], indent: str = "    ") -> str:
    inside = "".join(f'{indent}<tuv xml:lang="{code}"><seg>{text}</seg></tuv>\n' for code, text in variants)
    return f"  <tu>\n{inside}  </tu>"


def read(text: str, target: str = "de") -> Document:
    return read_document("a.tmx", text.encode(), target)


def translated(text: str, translate: Callable[[str], str] = str.upper, target: str = "de") -> str:
    document = read(text, target)
    return document.write([translate(each) for each in document.texts]).decode()


def test_a_unit_without_the_target_gets_it_after_its_other_variants():
    text = memory(unit(("en", "Tom"), ("fr", "Thomas")))
    added = '\n    <tuv xml:lang="de" creationid="MT!"><seg>TOM</seg></tuv>\n  </tu>'
    assert translated(text) == text.replace("\n  </tu>", added)


@pytest.mark.parametrize("segment", ["<seg/>", "<seg></seg>", '<seg><ph x="1"/></seg>'])
def test_an_empty_segment_of_the_target_is_filled(segment: str):
    text = memory(unit(("en", "Tom"), ("de-DE", "Tim"))).replace("<seg>Tim</seg>", segment)
    assert translated(text) == text.replace(segment, "<seg>TOM</seg>")


CODES = st.sampled_from(["en", "en-US", "EN-GB", "de", "de-AT", "DE", "fr"])


@given(st.lists(st.tuples(CODES, st.sampled_from(["Tom", ""])), max_size=4), st.sampled_from(["en", "en-US", "*all*"]))
def test_after_translation_a_unit_with_a_source_has_one_text_in_the_target(units: list[tuple[str, str]], source: str):
    text = memory(unit(*units), source)
    document = read(text)
    written = document.write(document.texts)
    found = ElementTree.fromstring(written).findall(".//tuv")
    filled = [each for each in found if each.get(LANGUAGE, "").lower().startswith("de") and each.findtext("seg")]
    before = [code for code, words in units if code.lower().startswith("de") and words]
    assert len(filled) == (len(before) or len(document.texts))
    assert (written == text.encode()) == (not document.texts)


def test_a_variety_of_the_target_is_the_target_and_another_variety_is_not():
    text = memory(unit(("en", "Tom"), ("de-DE", "Tim")))
    assert list(read(text, "de").texts) == []
    assert list(read(text, "de-AT").texts) == ["Tom"]


def test_the_attribute_of_the_language_is_that_of_the_source():
    text = memory(unit(("en", "Tom"))).replace("xml:lang", "lang")
    assert '<tuv lang="de" creationid' in translated(text)


def test_codes_are_kept_and_a_text_in_a_code_is_translated():
    codes = 'A <bpt i="1">&lt;b></bpt>red<ept i="1">&lt;/b></ept> <hi>car</hi> <ph>a="<sub>Hello</sub>"</ph> now'
    text = memory(unit(("en", codes)))
    assert read(text).texts == ['A <s i="0">red</s> <s i="1">car</s> <v i="0"/> now', "Hello"]
    expected = codes.replace("Hello", "HELLO")
    assert f"<seg>{expected}</seg>" in translated(text, lambda each: each.replace("Hello", "HELLO"))


def test_units_without_a_source_are_said():
    document = read(memory(unit(("fr", "Tom"))))
    assert document.notes[0] == "1 unit has no text in the source language 'en' and nothing was added"


@pytest.mark.parametrize(
    ("text", "target", "message"),
    [
        (memory(unit(("en", "Tom"))), "", "give the target language"),
        ("<tmx>\n<body>", "de", "not well-formed at line 2, column "),
        ("<a/>", "de", "the file is no translation memory: its root is a"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_in_one_line(text: str, target: str, message: str):
    with pytest.raises(UnreadableDocument) as error:
        read(text, target)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
