"""Resources of .NET: which data is text, and that all else stays."""

from __future__ import annotations

from collections.abc import Callable
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.documents import Document, UnreadableDocument, read_document

HEAD = (
    '<?xml version="1.0" encoding="utf-8"?>\n<root>\n  <!-- a note -->\n  <resheader name="version"><value>2.0</value>'
)


def resources(data: str) -> str:
    return f"{HEAD}</resheader>\n{data}\n</root>"


def data(value: str, name: str = "a", attributes: str = "") -> str:
    return (
        f'  <data name="{name}"{attributes} xml:space="preserve">\n    <value>{value}</value>\n'
        "    <comment>A comment</comment>\n  </data>"
    )


def read(text: str, name: str = "a.resx") -> Document:
    return read_document(name, text.encode(), "de")


def translated(text: str, translate: Callable[[str], str] = str.upper, name: str = "a.resx") -> str:
    document = read(text, name)
    return document.write([translate(each) for each in document.texts]).decode()


@pytest.mark.parametrize("name", ["a.resx", "a.resw", "a.xml"])
def test_the_values_of_strings_are_translated_in_their_places(name: str):
    text = resources(data("Tom") + "\n" + data("Two", "b", ' type="System.String, mscorlib"'))
    assert translated(text, name=name) == text.replace(">Tom<", ">TOM<").replace(">Two<", ">TWO<")


@pytest.mark.parametrize(
    "other",
    [
        data("1, 2", attributes=' type="System.Drawing.Point, System.Drawing"'),
        data("abcd", attributes=' mimetype="application/x-microsoft.net.object.binary.base64"'),
        data("icons/a.ico;System.Drawing.Icon", attributes=' type="System.Resources.ResXFileRef"'),
        data("button", "&gt;&gt;button.Name"),
        data("42"),
        '  <metadata name="a"><value>Tom</value></metadata>',
        '  <assembly alias="mscorlib" name="mscorlib"/>',
        '  <data name="a"><value/></data>',
    ],
)
def test_what_is_no_text_stays(other: str):
    text = resources(other)
    assert translated(text) == text


def test_the_key_of_a_menu_is_kept_in_forms_and_is_text_elsewhere():
    assert read(resources(data("&amp;Save", "menu.Text"))).texts == ["Save"]
    assert ">Die &amp;Sache<" in translated(resources(data("&amp;Save", "menu.Text")), lambda _: "Die Sache")
    assert read(resources(data("Black &amp;white"))).texts == ["Black &amp;white"]


PARTS = st.sampled_from(["Tom ", "&amp;", "&lt;b&gt;us&lt;/b&gt;", "\n", "{0}", ".", "<!-- a -->", "<?a b?>", "\u00e9"])


@given(st.lists(PARTS, max_size=8).map("".join), st.sampled_from(["\n", "\r\n"]))
def test_a_translation_that_is_the_text_gives_the_file_as_it_was(value: str, line_end: str):
    text = resources(data(value)).replace("\n", line_end)
    assert translated(text, str) == text


@given(st.text("ab<>&]\"' \u00e9", max_size=12))
def test_any_translation_is_read_as_it_was_written(translation: str):
    translation = f"x{translation}x"
    escaped = translation.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for value in ("Tom", "<![CDATA[Tom]]>"):
        written = translated(resources(data(value)), lambda _: escaped)
        assert ElementTree.fromstring(written).findtext("data/value") == translation


def test_text_in_cdata_stays_in_cdata():
    text = resources(data("<![CDATA[<p>Hello</p> & more]]>"))
    assert translated(text, str) == text


def test_another_file_is_refused_in_one_line():
    with pytest.raises(UnreadableDocument, match=r"^the file has no resources of \.NET: its root is svg$"):
        read("<svg/>")
