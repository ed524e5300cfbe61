"""Text files and web pages: blocks of lines, byte order marks, and the language that a translated file says."""

from __future__ import annotations

import pytest

from lingon import Model
from lingon.documents import read_document
from lingon.documents.pages import (
    BLOCK_LINES,
    MOST_LINES,
    FileLanguages,
    book_in,
    open_styles_in,
    page_in,
    word_styles_in,
)
from tests.support.documents import OASIS, archive, docx, files_of, paragraph, run
from tests.support.repository import ROOT
from tests.support.timing import LINEAR, growth_of


def blocks(text: str) -> list[str]:
    document = read_document("a.txt", text.encode())
    assert document.write(document.texts).decode() == text
    return list(document.texts)


def test_a_block_of_a_file_does_not_end_within_a_message():
    lines = ["Tom.\n"] * (BLOCK_LINES - 1)
    message = ["{n, plural,\n", " one {# file}\n", " other {# files}}\n"]
    assert blocks("".join([*lines, *message, *lines])) == ["".join([*lines, *message]), "".join(lines)]
    open_brace = ["{\n", *["Tom.\n"] * 1000]
    found = blocks("".join(open_brace))
    assert max(block.count("\n") for block in found) == MOST_LINES


@pytest.mark.parametrize("name", ["a.txt", "a.html", "a.md", "a.srt", "a.po"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_byte_order_mark_is_not_translated_and_stays(name: str, mark: str):
    texts = {"a.srt": "1\n00:00:01,000 --> 00:00:02,000\nTom\n", "a.po": 'msgid "Tom"\nmsgstr "Tom"\n'}
    content = f"{mark}{texts.get(name, 'Tom')}".encode()
    document = read_document(name, content)
    assert not any("\ufeff" in text for text in document.texts)
    assert document.write(document.texts) == content


TO_GERMAN = FileLanguages("en", "de")


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<html lang='en'><p>x", "<html lang='de'><p>x"),
        (
            '<!DOCTYPE html>\n<HTML class=a LANG = "en-US" xml:lang="en">',
            '<!DOCTYPE html>\n<HTML class=a LANG = "de" xml:lang="de">',
        ),
        ("<html lang=en><body lang=en><p lang=en>x</p>", "<html lang=de><body lang=de><p lang=en>x</p>"),
        ("<html lang=en><body lang=la>", "<html lang=de><body lang=la>"),
        ("<html lang=fr><p>x", "<html lang=fr><p>x"),
        ("<html lang=''><p lang=en>x", "<html lang=''><p lang=en>x"),
        ("<!-- <html lang=en> --><html lang=en>", "<!-- <html lang=en> --><html lang=de>"),
        ("<script>'<html lang=en>'</script><p>lang", "<script>'<html lang=en>'</script><p>lang"),
        ("<html data-lang=en hreflang=en>", "<html data-lang=en hreflang=en>"),
        ("<p lang=en>x</p>", "<p lang=en>x</p>"),
    ],
)
def test_a_page_says_the_target_language_and_its_elements_in_others_stay(page: str, expected: str):
    assert page_in(page, TO_GERMAN) == expected
    assert page_in(page, FileLanguages("en", "")) == page
    assert read_document("a.html", page.encode(), "de", "en").write([page]) == expected.encode()
    assert read_document("a.html", page.encode()).write([page]) == page.encode()


def test_without_a_known_source_language_it_is_that_which_the_file_says():
    page = "<html lang=en><body lang=fr>"
    assert page_in(page, FileLanguages("", "de-AT")) == "<html lang=de-AT><body lang=de-AT>"


def test_a_book_says_the_target_language_in_its_package_its_contents_and_its_pages():
    package = '<package xmlns:dc="d" xml:lang="en"><dc:title>A</dc:title><dc:language> {} </dc:language>{}</package>'
    more = "<dc:language>la</dc:language>"
    page = '<html xml:lang="{0}" lang="{0}"><p>The sea</p><p lang="la">mare</p></html>'
    contents = '<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/" xml:lang="{}"><text>The sea</text></ncx>'
    files = {"mimetype": "application/epub+zip", "o/a.xhtml": page.format("en"), "o/toc.ncx": contents.format("en")}
    content = archive(files | {"o/p.opf": package.format("en-GB", more)})
    document = read_document("a.epub", content, "de")
    written = files_of(document.write(document.texts))
    assert written["o/a.xhtml"] == page.format("de")
    assert written["o/toc.ncx"] == contents.format("de")
    assert written["o/p.opf"] == package.format("de", more).replace('lang="en"', 'lang="de"')
    assert files_of(read_document("a.epub", content).write(document.texts)) == files_of(content)
    latin = read_document("a.epub", content, "de", "la")
    assert files_of(latin.write(document.texts)) == files_of(content)


@pytest.mark.parametrize(
    ("languages", "expected"),
    [
        (TO_GERMAN, 'w:val="de" w:eastAsia="zh-CN" w:bidi="ar-SA"'),
        (FileLanguages("", "ja"), 'w:val="ja" w:eastAsia="ja" w:bidi="ar-SA"'),
        (FileLanguages("", "he-IL"), 'w:val="he-IL" w:eastAsia="zh-CN" w:bidi="he-IL"'),
        (FileLanguages("fr", "de"), 'w:val="en-US" w:eastAsia="zh-CN" w:bidi="ar-SA"'),
    ],
)
def test_the_default_language_of_a_document_of_word_is_the_target_language(languages: FileLanguages, expected: str):
    lang = 'w:val="en-US" w:eastAsia="zh-CN" w:bidi="ar-SA"'
    style = f"<w:style><w:rPr><w:lang {lang}/></w:rPr></w:style>"
    defaults = "<w:docDefaults><w:rPrDefault><w:rPr><w:sz/><w:lang {}/></w:rPr></w:rPrDefault></w:docDefaults>"
    styles = f"<w:styles>{defaults}{style}</w:styles>"
    assert word_styles_in(styles.format(lang).encode(), languages).decode() == styles.format(expected)
    assert word_styles_in(style.encode(), languages).decode() == style


def test_the_default_language_of_an_open_document_is_the_target_language():
    properties = '<style:text-properties fo:language="{}" fo:country="{}"/>'
    styles = f'<style:default-style style:family="paragraph">{properties}</style:default-style>'
    own = '<style:style><style:text-properties fo:language="en" fo:country="US"/></style:style>'
    old = f"{styles.format('en', 'US')}{own}{styles.format('la', 'none')}"
    expected = f"{styles.format('de', 'none')}{own}{styles.format('la', 'none')}"
    assert open_styles_in(old.encode(), TO_GERMAN).decode() == expected
    assert open_styles_in(old.encode(), FileLanguages("en", "de-AT")).decode() == expected.replace('"none"', '"AT"', 1)
    spaces = f'xmlns:office="{OASIS}:office:1.0" xmlns:text="{OASIS}:text:1.0" xmlns:style="s" xmlns:fo="f"'
    root = f"<office:x {spaces}>{{}}</office:x>"
    content = archive({"content.xml": root.format("<text:p>Tom</text:p>"), "styles.xml": root.format(old)})
    written = files_of(read_document("a.odt", content, "de", "en").write(["Tom"]))
    assert written["styles.xml"] == root.format(expected)


def test_a_model_writes_the_target_language_that_it_is_asked_for():
    page = b"<html lang=en><body><p>Tom lives in Boston.</p></body></html>"
    with Model(ROOT / "models" / "en-de") as model:
        asked = model.translate_document("a.html", page, target="de", source="en").content
        assert asked == b"<html lang=de><body><p>Tom wohnt in Boston.</p></body></html>"
        assert model.translate_document("a.html", page).content == asked.replace(b"lang=de", b"lang=en")
        content = docx(paragraph(run("Tom")))
        assert (
            files_of(model.translate_document("a.docx", content, target="de").content)["word/styles.xml"] == "<styles/>"
        )


@pytest.mark.parametrize(
    "unit",
    ["<html lang=", "<w:docDefaults>", "<w:docDefaults><w:lang", "<dc:language>", "<style:default-style ", "<a:", "< "],
)
@pytest.mark.parametrize("change", [book_in, word_styles_in, open_styles_in], ids=lambda each: each.__name__)
def test_looking_for_languages_takes_a_time_linear_in_the_file(change, unit: str):
    def work(size: int):
        content = (unit * (size // len(unit))).encode()
        return lambda: change(content, TO_GERMAN)

    assert growth_of(work, 50_000).ratio <= LINEAR
