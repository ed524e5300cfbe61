"""Translation sources of Qt: which messages are translated, the forms of numbers, and keys of menus."""

from __future__ import annotations

import re
from collections.abc import Callable
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.documents import Document, UnreadableDocument, read_document
from lingon.documents.qt_and_resx import forms_of, with_key, without_key

HEAD = '<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE TS>\n'


def source(messages: str, attributes: str = ' language="de_DE"') -> str:
    return f'{HEAD}<TS version="2.1"{attributes}>\n<context>\n    <name>Main</name>\n{messages}\n</context>\n</TS>\n'


def message(text: str, translation: str, attributes: str = "") -> str:
    return f"    <message{attributes}>\n        <source>{text}</source>\n        {translation}\n    </message>"


def read(text: str, target: str = "de") -> Document:
    return read_document("app.ts", text.encode(), target)


def translated(text: str, translate: Callable[[str], str] = str.upper, target: str = "de") -> str:
    document = read(text, target)
    return document.write([translate(each) for each in document.texts]).decode()


@pytest.mark.parametrize(
    "translation",
    [
        '<translation type="unfinished"></translation>',
        '<translation type="unfinished"/>',
        "<translation></translation>",
    ],
)
def test_a_message_without_a_translation_gets_one_that_is_unfinished(translation: str):
    text = source(message("Open &lt;b>it&lt;/b>", translation))
    assert read(text).texts == ['Open <s i="0">it</s>']
    expected = '<translation type="unfinished">Open &lt;b>it&lt;/b></translation>'
    assert translated(text, str) == text.replace(translation, expected)


def test_a_message_without_the_element_gets_it_after_its_source():
    text = source(message("Tom", "<comment>a</comment>"))
    expected = '</source>\n        <translation type="unfinished">TOM</translation>'
    assert translated(text) == text.replace("</source>", expected)


@pytest.mark.parametrize(
    "translation",
    [
        "<translation>Tim</translation>",
        '<translation type="unfinished">Tim</translation>',
        '<translation type="vanished"></translation>',
        '<translation type="obsolete"/>',
        '<translation><byte value="x1b"/></translation>',
        "<translation><numerusform>Tim</numerusform><numerusform>Tims</numerusform></translation>",
    ],
)
def test_a_message_with_a_translation_or_that_is_gone_stays(translation: str):
    text = source(message("Tom", translation))
    assert translated(text) == text


@pytest.mark.parametrize("language", ["de", "fr", "pl_PL", "ar", "ja", "sl", "cy", "pt_BR", "nl-BE"])
@pytest.mark.parametrize("forms", [0, 2, 3])
def test_a_message_with_numbers_has_the_forms_of_the_language(language: str, forms: int):
    inside = "\n            <numerusform></numerusform>" * forms
    translation = f'<translation type="unfinished">{inside}\n        </translation>' if forms else "<translation/>"
    written = translated(source(message("%n file(s)", translation, ' numerus="yes"'), f' language="{language}"'))
    found = ElementTree.fromstring(written).findall(".//numerusform")
    assert [each.text for each in found] == ["%N FILE(S)"] * forms_of(language)
    assert written.count("\n            <numerusform>") == len(found)
    assert "\n        </translation>" in written


@given(st.lists(st.booleans(), min_size=1, max_size=6))
def test_each_form_without_text_is_filled_and_each_other_one_stays(there: list[bool]):
    forms = [f"<numerusform>{'Tim' if each else ''}</numerusform>" for each in there]
    translation = f"<translation>{' '.join(forms)}</translation>"
    text = source(message("Tom", translation, ' numerus="yes"'))
    found = [each.text for each in ElementTree.fromstring(translated(text)).findall(".//numerusform")]
    assert found == (["Tim" if each else "TOM" for each in there] if any(there) else ["TOM", "TOM"])
    assert ('type="unfinished"' in translated(text)) == (not all(there))


def test_the_language_is_set_where_it_is_missing():
    text = source(message("Tom", "<translation/>"), "")
    assert '<TS language="pt_BR" version' in translated(text, target="pt-BR")
    assert "language" not in translated(text, target="")
    assert 'language="de_DE"' in translated(text.replace("<TS", '<TS language="de_DE"'), target="fr")


@pytest.mark.parametrize(
    ("language", "said"), [("fr_FR", True), ("de", False), ("de_AT", False), ("", False), ("?", False)]
)
def test_a_file_that_says_another_language_keeps_it_and_that_is_said(language: str, said: bool):
    document = read(source(message("Tom", "<translation/>"), f' language="{language}"'), "de")
    document.write(["Tim"])
    assert [f"its target language is {language}," in note for note in document.notes] == [True] * said


def test_quotation_marks_are_references_as_the_programs_of_qt_write_them():
    text = source(message("Don&apos;t &quot;go&quot;", '<translation type="unfinished"></translation>'))
    assert ">Don&apos;t &quot;go&quot;</translation>" in translated(text, str)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"export const a: number = 1;\n", "has no messages of Qt; files of TypeScript are not translated"),
        (b"const a = <T>(x) => x;\n", "has no messages of Qt; files of TypeScript are not translated"),
        (b"<TS>\n<context></TS>", "not well-formed at line 2, column "),
        (b"<a><TS/></a>", "has no messages of Qt: its root is a"),
    ],
)
def test_what_is_no_source_of_qt_is_refused_in_one_line(content: bytes, message: str):
    with pytest.raises(UnreadableDocument) as error:
        read_document("a.ts", content)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "plain", "key"),
    [
        ("&Open", "Open", "O"),
        ("E&xit", "Exit", "x"),
        ("Save &As...", "Save As...", "A"),
        ("R&D", "R&D", ""),
        ("Tom & me", "Tom & me", ""),
        ("Tom && me", "Tom && me", ""),
        ("&One or &two", "&One or &two", ""),
        ("a&nbsp;b", "a&nbsp;b", ""),
        ('<a href="?a=1&b=2">&Help</a>', '<a href="?a=1&b=2">Help</a>', "H"),
        ("&1 file", "1 file", "1"),
    ],
)
def test_a_key_is_told_from_other_uses_of_its_sign(text: str, plain: str, key: str):
    assert without_key(text) == (plain, key)


@pytest.mark.parametrize(
    ("text", "translation", "expected"),
    [
        ("&Open file", "Datei öffnen", "&Datei öffnen"),
        ("&File", "Datei", "&Datei"),
        ("&Save", "Das sichern", "Das &sichern"),
        ("E&xit", "Exit", "E&xit"),
        ("&Open", "{0} öffnen", "{0} &öffnen"),
        ("&Delete %1", "%1 löschen", "%1 &löschen"),
        ("&File", "ファイル", "ファイル(&F)"),
        ("&File...", "文件...", "文件(&F)..."),
        ("&Файл", "File", "&File"),
    ],
)
def test_a_translation_has_the_key_of_its_text_once(text: str, translation: str, expected: str):
    escaped = text.replace("&", "&amp;")
    written = translated(source(message(escaped, '<translation type="unfinished"/>')), lambda _: translation)
    assert ElementTree.fromstring(written).findtext(".//translation") == expected


@given(st.text("abc ÄÖ&%1{}漢<>.", max_size=12), st.text("abc ÄÖ%1{}漢.", min_size=1, max_size=12))
def test_a_key_is_in_a_translation_as_often_as_in_its_text(text: str, translation: str):
    from lingon.documents.inline import FormattedText

    plain, key = without_key(text)
    assert len(text) - len(plain) == len(key)
    (written,) = with_key([FormattedText(translation)], key)
    assert isinstance(written, FormattedText)
    assert written.text.count("&") == len(key)
    assert re.sub(r"\(&.\)|&", "", written.text) == translation


PARTS = st.sampled_from(
    ["Tom ", "&apos;", "&amp;", "&lt;b&gt;x&lt;/b&gt;", "\n", "%1", '<byte value="x9"/>', ".", "&quot;"]
)


@given(st.lists(PARTS, max_size=8).map("".join))
def test_a_translation_that_is_the_text_is_the_source(text: str):
    file = source(message(text, '<translation type="unfinished"></translation>'))
    if read(file).texts:
        assert f'<translation type="unfinished">{text}</translation>' in translated(file, str)
