"""Files of XML of any kind, and in any encoding."""

from __future__ import annotations

import codecs
from xml.etree import ElementTree

import pytest

from lingon import Model
from lingon.documents import UnreadableDocument, read_document, suffix_of
from lingon.documents.xml_tree import FED_BYTES, MOST_TAG_BYTES
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.repository import ROOT

XLIFF = '<xliff version="1.2"><file><body><trans-unit><source>Tom</source></trans-unit></body></file></xliff>'
KINDS = {
    ".xlf": XLIFF,
    ".tmx": '<tmx><body><tu><tuv xml:lang="en"><seg>Tom</seg></tuv></tu></body></tmx>',
    ".ts": '<TS version="2.1"><context><message><source>Tom</source></message></context></TS>',
    ".resx": "<root><resheader/><data><value>Tom</value></data></root>",
    ".strings": "<resources><string>Tom</string></resources>",
}
PROLOGS = ["", '<?xml version="1.0"?>\n', "<!-- a > b -->", "\ufeff", f"<!--{'a' * 3 * FED_BYTES}-->", "<!DOCTYPE a>\n"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prolog", PROLOGS, ids=range(len(PROLOGS)))
def test_a_file_of_xml_is_what_its_root_says(kind: str, prolog: str):
    document = read_document("a.xml", f"{prolog}{KINDS[kind]}".encode(), "de")
    assert list(document.texts) == ["Tom"]
    written = document.write(["Anna"]).decode()
    assert written.startswith(prolog)
    assert "Anna" in written


@pytest.mark.parametrize("kind", [".xlf", ".tmx", ".ts"])
def test_a_file_without_a_name_is_known_by_its_root(kind: str):
    content = f'<?xml version="1.0"?>\n{KINDS[kind]}'.encode()
    assert suffix_of(content) == kind
    assert suffix_of(b'<?xml version="1.0"?><resources/>') == suffix_of(b'<?xml version="1.0"?><any/>') == ".xml"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "utf-16-le", "iso-8859-1", "windows-1252"])
def test_a_file_is_written_in_its_encoding(kind: str, encoding: str):
    declared = "" if encoding.startswith("utf") else f'<?xml version="1.0" encoding="{encoding}"?>\n'
    text = f"{declared}{KINDS[kind]}".replace("Tom", "Caf\u00e9")
    content = text.encode(encoding)
    document = read_document("a.xml", content, "de")
    assert list(document.texts) == ["Caf\u00e9"]
    translation = "Stra\u00dfe \u4e1c \U0001f600"
    written = document.write([translation])
    assert written[:4] == content[:4]
    decoded = written.decode(encoding)
    if declared:
        assert "&#19996;" in decoded
    assert translation in ElementTree.tostring(ElementTree.fromstring(written), encoding="unicode")


@pytest.mark.parametrize("encoding", ["utf-16", "iso-8859-1", "utf-8"])
def test_a_translation_that_is_the_text_gives_the_bytes_as_they_were(encoding: str):
    content = f'<?xml version="1.0" encoding="{encoding}"?>\r\n<resources><string>Caf\u00e9</string></resources>\r\n'
    document = read_document("a.xml", content.encode(encoding), "de")
    assert document.write(document.texts) == content.encode(encoding)


def test_a_character_that_an_encoding_lacks_is_a_reference_beside_cdata():
    text = '<?xml version="1.0" encoding="iso-8859-1"?><resources><string><![CDATA[Tom]]></string></resources>'
    written = read_document("a.xml", text.encode(), "de").write(["a\u4e1cb"])
    assert b"<![CDATA[a]]>&#19996;<![CDATA[b]]>" in written
    assert ElementTree.fromstring(written).findtext("string") == "a\u4e1cb"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (codecs.BOM_UTF32_LE + "<a/>".encode("utf-32-le"), "is UTF-32; it must be UTF-8 or UTF-16"),
        (b'<?xml version="1.0" encoding="utf-7"?><a/>', "declares the encoding utf-7; it must be"),
        (b'<?xml version="1.0" encoding="none"?><a/>', "declares the encoding none; it must be"),
        (codecs.BOM_UTF16_LE + b"<\x00a", "is not UTF-16-LE: truncated data at byte 2"),
        (b"<a>\n<b></a>", "not well-formed at line 2, column"),
        (b"no XML", "not well-formed at line 1, column 1"),
        (b"", "not well-formed at line 1, column"),
        (b"<a>\xff</a>", "is not UTF-8"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_in_one_line(content: bytes, message: str):
    with pytest.raises(UnreadableDocument) as error:
        read_document("a.xml", content, "de")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "text", "ignored"),
    [
        (
            "a.xml",
            '<book xmlns="http://docbook.org/ns/docbook"><para>Use <command>ls</command>.</para></book>',
            "command",
        ),
        ("a.xml", '<!DOCTYPE article PUBLIC "-//OASIS//DTD DocBook XML V4.5//EN" "d"><article>a</article>', "screen"),
        ("a.xml", '<!DOCTYPE topic PUBLIC "-//OASIS//DTD DITA Topic//EN" "t"><topic><p>ls</p></topic>', "codeph"),
        ("a.dita", "<topic><p>Use <codeph>ls</codeph>.</p></topic>", "codeph"),
        ("a.xml", '<svg xmlns="http://www.w3.org/2000/svg"><style>a</style><text>Tom</text></svg>', "style"),
        ("a.svg", "<svg><style>a</style><text>Tom</text></svg>", "style"),
    ],
)
def test_what_holds_code_in_a_known_kind_is_ignored_without_a_note(name: str, text: str, ignored: str):
    document = read_document(name, text.encode(), "de")
    assert document.texts == [text]
    assert document.options.format == pb.TEXT_FORMAT_XML
    assert ignored in document.options.ignore_tags
    assert document.notes == []


@pytest.mark.parametrize("root", ["book", "set", "topic", "map", "svg", "shop"])
def test_a_root_alone_makes_no_known_kind(root: str):
    text = f"<!-- auditable, by docbook and svg --><{root} xmlns:s='http://www.w3.org/2000/svg#'>Tom</{root}>"
    document = read_document("a.xml", text.encode(), "de")
    assert list(document.options.ignore_tags) == []
    assert len(document.notes) == 1


def test_another_root_is_read_as_xml_and_said():
    document = read_document("a.xml", b'<?xml version="1.0"?>\n<shop xml:lang="en">Tom</shop>', "de")
    assert "its root is shop" in document.notes[0]
    assert document.write(document.texts) == b'<?xml version="1.0"?>\n<shop xml:lang="de">Tom</shop>'


def test_a_long_comment_in_a_text_is_refused():
    text = f"<resources><string>Tom<!--{'a' * (2 * MOST_TAG_BYTES)}--> and me</string></resources>"
    with pytest.raises(UnreadableDocument, match="a comment of more than 1,048,576 bytes in a text"):
        read_document("a.xml", text.encode(), "de")


@pytest.mark.parametrize("name", ["a.xml", "a.dita", "a.svg"])
def test_a_model_leaves_code_and_translates_text(name: str):
    text = "<topic><title>The house</title><p>The house is small. <codeblock>The house</codeblock></p></topic>"
    with Model(ROOT / "models" / "en-de") as model:
        written = model.translate_document(name, text.encode(), beam_size=1).content.decode()
        assert "<title>Das Haus</title>" in written
        assert ("<codeblock>The house</codeblock>" in written) == (name == "a.dita")


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_with_nothing_to_translate_is_said(kind: str):
    document = read_document("a.xml", KINDS[kind].replace("Tom", "42").encode(), "de")
    assert document.write([]).decode() == KINDS[kind].replace("Tom", "42")
    assert document.notes == ["nothing in the file is to be translated, and it is written as it is"]
