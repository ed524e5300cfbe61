"""Paragraphs as XML, and back: tags of HTML in their texts, and links beside each other as items of a list."""

from __future__ import annotations

import html

import pytest

from lingon import Model
from lingon.documents import UnreadableDocument, read_document
from lingon.documents.inline import (
    MOST_AROUND,
    Around,
    FormattedText,
    InlineText,
    Node,
    Point,
    depth_of,
    tags_of,
    write,
)
from lingon.segments.markup import read_xml
from lingon.segments.markup_tokens import MarkupRules
from tests.support.documents import archive, docx, field, files_of, odt, paragraph, pptx, run
from tests.support.repository import ROOT
from tests.support.timing import LINEAR, growth_of


def nested(depth: int) -> list[Node[bytes]]:
    nodes: list[Node[bytes]] = [FormattedText("Tom ", b"b"), Point(b"."), FormattedText("and I")]
    for _ in range(depth):
        nodes = [FormattedText("a "), Around(b"<", nodes, b">"), Point(b"!"), FormattedText(" b")]
    return nodes


@pytest.mark.parametrize("depth", [0, 1, 30, MOST_AROUND])
def test_a_paragraph_is_what_it_was_when_its_text_is_however_deep_it_is(depth: int):
    inline = InlineText(nested(depth))
    assert depth_of(inline.nodes) == depth
    written = write(inline.nodes, lambda piece: piece.text.encode(), bytes)
    again = write(inline.translated(inline.text), lambda piece: piece.text.encode(), bytes)
    assert again == written == b"a <" * depth + b"Tom .and I" + b">! b" * depth


def test_more_links_and_marks_inside_each_other_are_refused():
    with pytest.raises(UnreadableDocument, match="has 1,001 links and marks around another; at most 1,000"):
        InlineText(nested(MOST_AROUND + 1))


@pytest.mark.parametrize("kept", [f"https://example.org/{'a' * 80}", "{ name, one two three four }"])
def test_the_format_of_most_words_has_no_tags_and_a_string_that_is_kept_is_one_word(kept: str):
    inline = InlineText([FormattedText("Read "), FormattedText(kept, b"bold"), FormattedText(" first.")])
    assert inline.text == f'Read <f i="1">{kept}</f> first.'


KEPT = [
    "%<name>s",
    "%<count>.2f",
    "<<name>>",
    "`<b>`",
    "`the guide <guide>`_",
    ":ref:`the guide <guide>`",
    "<%= name %>",
]


@pytest.mark.parametrize("kept", KEPT)
def test_a_kept_string_has_no_tags(kept: str):
    text = f"<b>Open</b> {kept} <i>now</i><br>{kept}."
    assert [tag[0] for tag in tags_of(text)] == ["<b>", "</b>", "<i>", "</i>", "<br>"]
    assert [tag[0] for tag in tags_of(kept)] == []


@pytest.mark.parametrize("kept", KEPT)
def test_a_kept_string_is_whole_in_the_texts_of_files(kept: str):
    written = html.escape(kept, quote=False)
    plain = kept.replace('"', '\\"')
    unit = f"<trans-unit><source>Open {written} now.</source></trans-unit>"
    files = {
        "a.xlf": f'<xliff version="1.2"><file>{unit}</file></xliff>',
        "strings.xml": f'<resources><string name="a">Open {written} now.</string></resources>',
        "a.json": f'{{"a": "Open {plain} now."}}',
        "a.po": f'msgid "Open {plain} now."\nmsgstr ""\n',
    }
    for name, content in files.items():
        (text,) = read_document(name, content.encode(), "de").texts
        assert written in text or kept in text, name


@pytest.mark.parametrize("kept", ["%NAME%", "50%", "%<name>s", "%s%"])
@pytest.mark.parametrize("name", ["a.po", "a.json"])
def test_a_tag_right_around_a_kept_string_is_around_it(kept: str, name: str):
    text = f"Open <b>{kept}</b> now."
    content = {"a.po": f'msgid "{text}"\nmsgstr ""\n', "a.json": f'{{"a": "{text}"}}'}[name]
    assert read_document(name, content.encode(), "de").texts == [
        f'Open <s i="0">{kept.replace("<", "&lt;").replace(">", "&gt;")}</s> now.'
    ]


def test_tags_of_any_text_are_found_in_a_time_that_grows_with_it():
    assert len(list(tags_of("<b>%<a>s</b> `<i>` " * 1_000))) == 2_000


ITEMS = ["Home", "About us", "Contact"]
BLUE = '<w:color w:val="0000FF"/>'


def link(text: str, number: int = 4) -> str:
    return f'<w:hyperlink r:id="rId{number}" xmlns:r="r">{run(text, BLUE)}</w:hyperlink>'


def slide_link(text: str, number: int, name: str = "a:hlinkClick") -> str:
    properties = f'<a:rPr b="1"><{name} xmlns:r="r" r:id="rId{number}"/></a:rPr>'
    return f"<a:r>{properties}<a:t>{text}</a:t></a:r>"


def slide_run(text: str) -> str:
    return f"<a:r><a:t>{text}</a:t></a:r>" if text else ""


def odt_link(text: str) -> str:
    return f'<text:a text:style-name="L">{text}</text:a>'


GAPS = ["", " ", " | ", " · ", " / "]
MENUS = [
    *(("a.docx", docx(paragraph((run(gap) if gap else "").join(map(link, ITEMS))))) for gap in GAPS),
    ("a.docx", docx(paragraph(*(field(' HYPERLINK "x" ', run(item)) for item in ITEMS)))),
    *(("a.odt", odt(f"<text:p>{gap.join(map(odt_link, ITEMS))}</text:p>")) for gap in GAPS),
    *(("a.pptx", pptx(slide_run(gap).join(map(slide_link, ITEMS, range(9))))) for gap in GAPS),
    *(("a.md", f"{gap.join(f'[{item}](/{place})' for place, item in enumerate(ITEMS))}\n".encode()) for gap in GAPS),
]


def blocks_of(name: str, content: bytes) -> list[str]:
    document = read_document(name, content)
    options = document.options
    rules = MarkupRules.of((), options.splitting_tags, options.non_splitting_tags)
    return [block.text for text in document.texts for block in read_xml(text, rules).blocks]


@pytest.mark.parametrize(("name", "content"), MENUS)
def test_links_with_nothing_or_separators_between_them_are_translated_alone(name: str, content: bytes):
    assert blocks_of(name, content) == ITEMS
    document = read_document(name, content)
    again = document.write(document.texts)
    if name != "a.md":
        assert files_of(again) == files_of(content)
    else:
        assert again == content


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.docx", docx(paragraph(run("Read "), link("Our page"), run(" or "), link("The book", 5), run(".")))),
        ("a.docx", docx(paragraph(run("A "), link("German"), run(" "), link("composer", 5), run(" of songs")))),
        (
            "a.pptx",
            pptx(slide_run("Read ") + slide_link("This", 1) + slide_run(" or ") + slide_link("That", 2)),
        ),
        ("a.pptx", pptx(slide_link("Our ", 1) + slide_link("page", 1))),
        ("a.odt", odt(f"<text:p>Read {odt_link('Our page')} or {odt_link('The book')}</text:p>")),
        ("a.md", b"Read [Our page](/a) or [The book](/b).\n"),
    ],
)
def test_links_in_a_sentence_belong_to_it(name: str, content: bytes):
    assert len(blocks_of(name, content)) == 1


def test_the_runs_of_one_link_of_a_slide_are_one_item():
    content = pptx(slide_link("About ", 1) + slide_link("us", 1) + slide_run(" | ") + slide_link("Contact", 2))
    assert blocks_of("a.pptx", content) == ["About us", "Contact"]
    document = read_document("a.pptx", content)
    written = files_of(document.write([text.replace("About us", "Über uns") for text in document.texts]))
    runs = slide_link("Über uns", 1) + slide_run(" | ") + slide_link("Contact", 2)
    assert runs in written["ppt/slides/slide1.xml"]


@pytest.mark.parametrize("pair", ["en-de", "en-fr"])
def test_each_link_of_a_document_has_the_translation_of_its_own_text(pair: str):
    with Model(ROOT / "models" / pair) as model:
        alone = [result.text for result in model.translate(ITEMS, beam_size=1)]
        for name, content in MENUS:
            found = model.translate_document(name, content, beam_size=1).content
            assert blocks_of(name, found) == alone


def test_lists_inside_other_nodes_and_between_breaks_are_read():
    def linked(text: str) -> Around[bytes]:
        return Around(b"<", [FormattedText(text)], b">", link=True)

    nodes: list[Node[bytes]] = [
        Around(b"[", [linked("Home"), FormattedText(" "), linked("Help")], b"]"),
        Point(b"!", splits=True),
        FormattedText("See "),
        linked("This"),
        FormattedText(" or "),
        linked("That"),
    ]
    inline = InlineText(nodes)
    expected = '<s i="0"><l i="1">Home</l> <l i="2">Help</l></s><b i="0"/>See <s i="3">This</s> or <s i="4">That</s>'
    assert inline.text == expected
    written = write(inline.translated(expected), lambda piece: piece.text.encode(), bytes)
    assert written == b"[<Home> <Help>]!See <This> or <That>"


@pytest.mark.parametrize("unit", [1, 2, 3])
def test_reading_links_takes_a_time_linear_in_their_number(unit: int):
    def work(size: int):
        nodes: list[Node[bytes]] = []
        for number in range(size):
            if unit == 2 and len(nodes) == 8:
                nodes = [Around(b"", nodes, b"")] if number < 500 else nodes
            nodes += [
                Around(b"<", [FormattedText("Home")], b">", link=True),
                FormattedText(" | " if unit == 1 else " "),
            ]
        return lambda: InlineText(nodes).text

    assert growth_of(work, 2_000).ratio <= LINEAR


def custom(inside: str) -> str:
    properties = '<w:customXmlPr><w:attr w:name="a" w:val="b"/></w:customXmlPr>'
    return f'<w:customXml w:uri="u" w:element="e">{properties}{inside}</w:customXml>'


CELL = f"<w:tc>{paragraph(run('A'))}</w:tc>"


@pytest.mark.parametrize(
    ("body", "texts"),
    [
        (custom(paragraph(run("The car."))), ["The car."]),
        (paragraph(custom(run("The car."))), ["The car."]),
        (paragraph(run("I saw "), custom(run("the car")), run(".")), ["I saw the car."]),
        (f"<w:tbl>{custom(f'<w:tr>{CELL}</w:tr>')}</w:tbl>", ["A"]),
        (f"<w:tbl><w:tr>{custom(CELL)}</w:tr></w:tbl>", ["A"]),
        (custom(custom(paragraph(custom(run("The car."))))), ["The car."]),
    ],
)
def test_the_text_in_custom_xml_is_translated_wherever_it_is(body: str, texts: list[str]):
    content = docx(body)
    assert blocks_of("a.docx", content) == texts
    document = read_document("a.docx", content)
    written = files_of(document.write([text.replace("car", "Wagen") for text in document.texts]))
    assert written["word/document.xml"] == files_of(content)["word/document.xml"].replace("car", "Wagen")


def test_the_readings_of_a_book_stay_after_the_translations_of_their_words():
    page = "<html><body><p>The <ruby>house<rp>(</rp><rt>haus</rt><rp>)</rp></ruby> is old.</p></body></html>"
    content = archive({"mimetype": "application/epub+zip", "a.xhtml": page})
    with Model(ROOT / "models" / "en-de") as model:
        found = files_of(model.translate_document("a.epub", content).content)["a.xhtml"]
    assert "<p>Das <ruby>Haus<rp>(</rp><rt>haus</rt><rp>)</rp></ruby> ist alt.</p>" in found
