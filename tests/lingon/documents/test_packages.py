"""Archives: books, what is refused, and what a file without a name is."""

from __future__ import annotations

import io
import zipfile
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.documents import SUFFIXES, UnreadableDocument, read_document, suffix_of
from tests.support.documents import archive, docx, field, files_of, ods, odt, paragraph, pptx, run, word, xlsx

PAGE = (
    '<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><head><title/><script src="x.js"/></head>'
    '<body><h1>One</h1><p>It was a <b>dark</b> night. <a id="p1"/>The sea<br/>was calm.</p></body></html>'
)
CONTENTS = (
    '<?xml version="1.0"?><ncx xmlns="http://www.daisy.org/z3986/2005/ncx/">'
    "<navLabel><text>Tom &amp; I</text></navLabel><navLabel><text>1</text></navLabel></ncx>"
)
BOOK = archive({"mimetype": "application/epub+zip", "a.opf": "<opf/>", "one.xhtml": PAGE, "toc.ncx": CONTENTS})


def test_a_book_keeps_its_files_and_the_tags_of_its_pages():
    document = read_document("a.epub", BOOK)
    page, entry = document.texts
    assert entry == "Tom &amp; I"
    files = files_of(document.write([page.replace("One", "Eins").replace("night", "Nacht"), "Tom &amp; ich"]))
    closed = PAGE.replace("<title/>", "<title></title>").replace('"x.js"/>', '"x.js"></script>')
    closed = closed.replace('<a id="p1"/>', '<a id="p1"></a>')
    assert files["one.xhtml"] == closed.replace("One", "Eins").replace("night", "Nacht")
    assert files["toc.ncx"] == CONTENTS.replace("Tom &amp; I<", "Tom &amp; ich<")
    assert list(files) == ["mimetype", "a.opf", "one.xhtml", "toc.ncx"]


def test_a_table_of_contents_may_name_its_document_type():
    name = '<!DOCTYPE ncx PUBLIC "-//NISO//DTD ncx 2005-1//EN" "http://www.daisy.org/z3986/2005/ncx-2005-1.dtd">'
    contents = CONTENTS.replace("<ncx", f"{name}<ncx")
    document = read_document("a.epub", archive({"mimetype": "application/epub+zip", "toc.ncx": contents}))
    assert document.texts == ["Tom &amp; I"]
    assert files_of(document.write(["Tim"]))["toc.ncx"] == contents.replace("Tom &amp; I<", "Tim<")


def test_files_keep_their_order_their_times_and_how_they_are_packed():
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as written:
        for name, kind in (
            ("b", zipfile.ZIP_STORED),
            ("word/document.xml", zipfile.ZIP_DEFLATED),
            ("a", zipfile.ZIP_STORED),
        ):
            info = zipfile.ZipInfo(name, (2001, 2, 3, 4, 6, 8))
            info.compress_type = kind
            written.writestr(info, word(paragraph(run("Tom"))) if "word" in name else "x" * 100)
    document = read_document("a.docx", packed.getvalue())
    with zipfile.ZipFile(packed) as before, zipfile.ZipFile(io.BytesIO(document.write(["Tim"]))) as after:
        kept = [
            [(info.filename, info.date_time, info.compress_type) for info in each.infolist()]
            for each in (before, after)
        ]
        assert after.read("a") == before.read("a")
    assert kept[0] == kept[1]


@pytest.mark.filterwarnings("error")
def test_of_two_files_of_one_name_the_one_that_is_read_is_kept():
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as written:
        written.writestr("word/document.xml", word(paragraph(run("Tim"))))
        written.writestr("a", "b")
        with pytest.warns(UserWarning, match="Duplicate name"):
            written.writestr("word/document.xml", word(paragraph(run("Tom"))))
    document = read_document("a.docx", packed.getvalue())
    assert document.texts == ["Tom"]
    with zipfile.ZipFile(io.BytesIO(document.write(["Kim"]))) as after:
        assert after.namelist() == ["word/document.xml", "a"]
        assert after.read("word/document.xml").decode() == word(paragraph(run("Kim")))


def encrypted() -> bytes:
    content = bytearray(docx(paragraph(run("Tom"))))
    for begin in (content.find(b"PK\x03\x04") + 6, content.find(b"PK\x01\x02") + 8):
        content[begin] |= 1
    return bytes(content)


def with_a_name_that_is_not_utf8() -> bytes:
    content = archive({"word/document.xml": word(paragraph(run("Tom"))), "\u00e9": ""})
    return content.replace("\u00e9".encode(), b"\xe9\xe9")


def compressed(method: int) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as written:
        written.writestr("word/document.xml", word(paragraph(run("Tom"))))
    return packed.getvalue()


def nested(depth: int) -> str:
    return "<w:sdt>" * depth + paragraph(run("Tom")) + "</w:sdt>" * depth


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK", "the file is no archive of its kind: File is not a zip file"),
        (b"\xd0\xcf\x11\xe0" + bytes(600), "the file is encrypted, or of an older format"),
        (encrypted(), "the file is encrypted"),
        (docx("")[:-30], "the file is no archive of its kind"),
        (with_a_name_that_is_not_utf8(), "the file is no archive of its kind: 'utf-8' codec can't decode"),
        (compressed(zipfile.ZIP_BZIP2), "compressed by another method than Deflate"),
        (compressed(zipfile.ZIP_LZMA), "compressed by another method than Deflate"),
        (archive({"a.xml": "<a/>"}), "the file has no text of its kind"),
        (archive({"word/document.xml": "<a><b></a>"}), "the XML in the file is not well-formed at line 1"),
        (archive({"word/document.xml": "<a/>".encode("utf-16")}), "the XML in the file is not UTF-8"),
        (
            archive({"word/document.xml": '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'}),
            "has a document type with declarations",
        ),
        (
            archive({"word/document.xml": '<!DOCTYPE a SYSTEM "b.dtd"><a>&b;</a>'}),
            "has the entity b, which is not declared",
        ),
        (docx(nested(70)), "has elements in more than 64 others"),
    ],
)
def test_a_broken_or_hostile_document_is_refused_with_one_line(content: bytes, message: str):
    with pytest.raises(UnreadableDocument) as error:
        read_document("a.docx", content)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_an_encrypted_document_of_open_document_is_named_as_such():
    manifest = "<manifest:manifest><manifest:file-entry><manifest:encryption-data/></manifest:file-entry></manifest>"
    content = archive({"content.xml": b"\x8f\xa2" * 50, "META-INF/manifest.xml": manifest})
    with pytest.raises(UnreadableDocument, match=r"^the file is encrypted$"):
        read_document("a.odt", content)


def test_what_would_take_too_much_memory_is_refused(monkeypatch: pytest.MonkeyPatch):
    content = docx(paragraph(run("Tom")), header1=" " * 10_000)
    for name, most, message in (
        ("lingon.documents.office.MOST_BYTES", 10_000, "unpacked the file has 5 files of 10,"),
        ("lingon.documents.office.MOST_FILES", 4, "unpacked the file has 5 files of"),
        ("lingon.documents.document.MOST_TEXT_BYTES", 10_000, "the text files in it have 10,"),
        ("lingon.documents.document.MOST_TAGS", 4, "the text files in it have 15 tags; at most 4"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(name, most)
            with pytest.raises(UnreadableDocument, match=message):
                read_document("a.docx", content)
    assert read_document("a.docx", content).texts == ["Tom"]


def test_paragraphs_inside_each_other_are_read_once():
    inside = run("Tom")
    for _ in range(25):
        inside = run("a box ") + f"<w:r>{paragraph(inside)}</w:r>"
    assert len(read_document("a.docx", docx(paragraph(inside))).texts) == 26
    empty = "".join("<w:p><w:r>" for _ in range(30)) + "".join("</w:r></w:p>" for _ in range(30))
    assert read_document("a.docx", docx(empty)).texts == []


WHOLE = word(paragraph(run("Tom & I"), field(" PAGE ", run("7"))) + paragraph(run("The sea.", "<w:b/>")))
SIGNS = st.sampled_from(["", "<", ">", "</", '"', "&", "\0"])


@given(st.lists(st.tuples(st.integers(0, len(WHOLE)), st.integers(0, 9), SIGNS)))
def test_altered_files_are_read_or_refused(changes: list[tuple[int, int, str]]):
    altered = WHOLE
    for place, count, text in changes:
        altered = altered[:place] + text + altered[place + count :]
    with suppress(UnreadableDocument):
        document = read_document("a.docx", archive({"word/document.xml": altered}))
        document.write(document.texts)


def test_what_is_around_text_may_be_as_deep_as_elements_are():
    inside = run("Tom")
    for _ in range(58):
        inside = f"<w:ins>{field(' REF A ', field(' REF B ', field(' REF C ', inside)))}</w:ins>"
    document = read_document("a.docx", docx(paragraph(inside)))
    assert document.texts[0].count("<s ") == 4 * 58
    assert files_of(document.write(document.texts))["word/document.xml"] == word(paragraph(inside))


@pytest.mark.parametrize(
    ("content", "suffix"),
    [
        (docx(""), ".docx"),
        (pptx(), ".pptx"),
        (xlsx(""), ".xlsx"),
        (odt(""), ".odt"),
        (ods(""), ".ods"),
        (BOOK, ".epub"),
        (b"PK", ".txt"),
        (b"\xef\xbb\xbf<!DOCTYPE html><p>", ".html"),
        (b"WEBVTT\n", ".vtt"),
        (b"\xef\xbb\xbf[Script Info]\nTitle: a\n", ".ass"),
        (b"\n1\r\n00:00:01,000 --> 00:00:02,000\r\nTom\r\n", ".srt"),
        (b'# a\n#, fuzzy\nmsgid ""\nmsgstr ""\n"Language: de\\n"\n', ".po"),
        (b'#: a.c\nmsgid "Tom"\nmsgid_plural "Toms"\n', ".po"),
        (b"1\n2\nmsgid is a word", ".txt"),
        (b"Tom", ".txt"),
    ],
)
def test_the_kind_of_a_file_without_a_name_is_found(content: bytes, suffix: str):
    assert suffix_of(content) == suffix


def test_an_archive_of_another_kind_without_a_name_is_refused():
    with pytest.raises(UnreadableDocument, match=r"no suffix.* archive"):
        suffix_of(archive({"a": "b"}))


def test_a_kind_that_is_not_known_is_named():
    with pytest.raises(UnreadableDocument, match=f"a file must end in {', '.join(SUFFIXES)}, got .pdf"):
        read_document("a.pdf", b"%PDF")
