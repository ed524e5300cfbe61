"""Documents of office programs: what is translated of them, and what stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from xml.sax.saxutils import escape, quoteattr

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.documents import UnreadableDocument, read_document
from lingon.documents.document import MOST_FORMAT
from lingon.documents.office_text import MOST_TABS
from tests.support.documents import DRAWING, archive, docx, field, files_of, odt, paragraph, pptx, run, text_of

BOLD, ITALIC = "<w:b/>", "<w:i/>"
NOTE = '<w:r><w:rPr><w:vertAlign w:val="superscript"/></w:rPr><w:footnoteReference w:id="2"/></w:r>'


def translated(name: str, content: bytes, translate: Callable[[str], str]) -> dict[str, str]:
    document = read_document(name, content)
    return files_of(document.write(list(map(translate, document.texts))))


def texts_of(content: bytes, name: str = "a.docx") -> list[str]:
    return list(read_document(name, content).texts)


def body_of(files: dict[str, str]) -> str:
    return files["word/document.xml"].partition(">")[2].partition(">")[2].removesuffix("</w:root>")


def test_a_paragraph_of_one_format_is_text_without_tags_whatever_its_runs_are():
    spelling = '<w:proofErr w:type="spellStart"/>'
    english, other = '<w:lang w:val="en-US"/>', '<w:lang w:val="de-DE"/><w:noProof/>'
    content = docx(paragraph(run("The ol", english), spelling, run("d ma"), run("n & the sea.", other)))
    assert texts_of(content) == ["The old man &amp; the sea."]
    files = translated("a.docx", content, lambda text: "Der alte Mann &amp; das Meer.")
    assert body_of(files) == paragraph(run("Der alte Mann & das Meer."))


def test_white_space_of_another_format_has_no_tags():
    content = docx(paragraph(run("The old"), run(" ", BOLD), run("man.")))
    assert texts_of(content) == ["The old man."]


def test_formats_follow_the_words_that_have_them():
    content = docx(paragraph(run("She bought a "), run("red car", BOLD), run(" in "), run("Boston", ITALIC), run(".")))
    assert texts_of(content) == ['She bought a <f i="1">red car</f> in <f i="2">Boston</f>.']
    files = translated("a.docx", content, lambda _: 'In <f i="2">Boston</f> kaufte sie ein <f i="1">rotes Auto</f>.')
    runs = [run("In "), run("Boston", ITALIC), run(" kaufte sie ein "), run("rotes Auto", BOLD), run(".")]
    assert body_of(files) == paragraph(*runs)


def test_what_is_inside_a_sentence_and_no_text_keeps_its_place():
    content = docx(paragraph(run("The car"), NOTE, run(" is fast.")))
    assert texts_of(content) == ['The car<v i="0"/> is fast.']
    files = translated("a.docx", content, lambda _: 'Schnell ist der Wagen<v i="0"/>.')
    assert body_of(files) == paragraph(run("Schnell ist der Wagen"), NOTE, run("."))


def test_a_point_between_blanks_stays_between_blanks():
    content = docx(paragraph(run("Page "), field(" PAGE ", run("7")), run(" of the book")))
    (text,) = texts_of(content)
    assert text == 'Page <v i="0"/> of the book'
    for translation in ('Seite <v i="0"/>des Buches', 'Seite<v i="0"/> des Buches', 'Seite<v i="0"/>des Buches'):
        files = translated("a.docx", content, lambda _, found=translation: found)
        assert text_of(body_of(files)) == "Seite  PAGE 7 des Buches"


def test_links_and_fields_keep_what_is_around_their_text():
    link = f'<w:hyperlink r:id="rId4" xmlns:r="r">{run("our page", BOLD)}</w:hyperlink>'
    content = docx(paragraph(run("Read "), link, run(" or "), field(' HYPERLINK "x" ', run("the book")), run(".")))
    text = 'Read <s i="0"><f i="1">our page</f></s> or <s i="1">the book</s>.'
    assert texts_of(content) == [text]
    assert body_of(translated("a.docx", content, str)) == body_of(files_of(content))
    swapped = 'Lies <s i="1">das Buch</s> oder <s i="0"><f i="1">die Seite</f></s>.'
    link = link.replace("our page", "die Seite")
    field_, words = field(' HYPERLINK "x" ', run("das Buch")), (run("Lies "), run(" oder "), run("."))
    files = translated("a.docx", content, lambda _: swapped)
    assert body_of(files) == paragraph(words[0], field_, words[1], link, words[2])


@pytest.mark.parametrize("mark", ["begin", "separate", "end"])
def test_a_field_that_goes_over_several_paragraphs_stays_as_it_is(mark: str):
    one = f'<w:r><w:fldChar w:fldCharType="{mark}"/></w:r>'
    content = docx(paragraph(one, run("Contents")) + paragraph(run("The sea"), one))
    assert texts_of(content) == ["Contents", "The sea"]
    assert body_of(translated("a.docx", content, str)) == body_of(files_of(content))


STAYING = [
    *["MERGEFIELD First_Name", "AUTHOR", "FILENAME \\p", 'DATE \\@ "d MMMM yyyy"', "TIME", "PAGE", "NUMPAGES"],
    "CITATION Smi19 \\l 1033",
    "SEQ Table \\* ARABIC",
    "ADDIN EN.CITE",
    "docproperty Company",
    "PAGEREF _Toc1",
    "= 1 + 2",
]
TEXT = ["REF _Ref1 \\h", 'TOC \\o "1-3"', 'HYPERLINK "x"', "hyperlink x", "STYLEREF 1", "IF 1 = 1 a b", "  "]


def simple(code: str, *runs: str) -> str:
    """A field in one element."""
    return f"<w:fldSimple w:instr={quoteattr(code)}><w:fldData>AA==</w:fldData>{''.join(runs)}</w:fldSimple>"


@pytest.mark.parametrize("make", [field, simple])
@pytest.mark.parametrize("code", STAYING)
def test_the_result_of_a_field_that_is_no_text_stays_as_one_unit(make: Callable[..., str], code: str):
    result = run("\u00abFirst_", BOLD) + run("Name\u00bb two words")
    content = docx(paragraph(run("Dear "), make(escape(code), result), run(", your order is here.")))
    assert texts_of(content) == ['Dear <v i="0"/>, your order is here.']
    files = translated("a.docx", content, lambda _: 'Ihre Bestellung ist da, <v i="0"/>.')
    assert body_of(files) == paragraph(run("Ihre Bestellung ist da, "), make(escape(code), result), run("."))


@pytest.mark.parametrize("make", [field, simple])
@pytest.mark.parametrize("code", TEXT)
def test_the_result_of_a_field_that_is_text_is_translated(make: Callable[..., str], code: str):
    content = docx(paragraph(run("See "), make(escape(code), run("the sea")), run(".")))
    assert texts_of(content) == ['See <s i="0">the sea</s>.']
    files = translated("a.docx", content, lambda text: text.replace("the sea", "das Meer"))
    assert body_of(files) == paragraph(run("See "), make(escape(code), run("das Meer")), run("."))


def test_a_field_inside_the_result_or_the_code_of_another_keeps_its_kind():
    name = field("MERGEFIELD Name", run("Tom Baker"))
    content = docx(paragraph(run("See "), field("REF a", run("the page of "), name), run(".")))
    assert texts_of(content) == ['See <s i="0">the page of <v i="0"/></s>.']
    conditional = field("</w:instrText></w:r>" + name + "<w:r><w:instrText>", run("Tom is here"))
    content = docx(paragraph(run("Yes: "), conditional.replace("<w:instrText>", "<w:instrText>IF", 1)))
    assert texts_of(content) == ['Yes: <s i="0">Tom is here</s>']
    content = docx(paragraph(run("Yes: "), field("CITATION a", field("HYPERLINK b", run("Smith"))), run(" said so.")))
    assert texts_of(content) == ['Yes: <v i="0"/> said so.']


@pytest.mark.parametrize(("code", "texts"), [("BIBLIOGRAPHY", []), ("TOC", ["The cat", "The sea", "The dog"])])
def test_a_field_over_several_paragraphs_has_its_kind_in_each(code: str, texts: list[str]):
    begin, end = field(code, run("The cat"), "|", run("The dog")).split("|")
    body = paragraph(begin) + paragraph(run("The sea")) + paragraph(end)
    content = docx(body + paragraph(run("After it.")))
    assert texts_of(content) == [*texts, "After it."]
    assert body_of(translated("a.docx", content, str)) == body_of(files_of(content))


def test_text_in_custom_xml_is_translated_and_its_properties_stay_first():
    for name in ("customXml", "smartTag"):
        start, end = f'<w:{name} w:element="a"><w:{name}Pr><w:attr/></w:{name}Pr>', f"</w:{name}>"
        content = docx(start + paragraph(run("The cat."), start, run(" The sea."), end) + end)
        assert texts_of(content) == ['The cat.<s i="0"> The sea.</s>']
        files = translated("a.docx", content, lambda _: '<s i="0">Das Meer.</s> Die Katze.')
        assert body_of(files) == start + paragraph(start, run("Das Meer."), end, run(" Die Katze.")) + end


def test_breaks_and_tabs_end_sentences():
    content = docx(paragraph("<w:r><w:t>Name:</w:t><w:tab/><w:t>Tom</w:t><w:br/><w:t>Hi.</w:t></w:r>"))
    document = read_document("a.docx", content)
    assert document.texts == ['Name:<b i="0"/>Tom<b i="1"/>Hi.']
    assert list(document.options.splitting_tags) == ["b", "l"]


def test_text_boxes_headers_and_notes_are_translated_and_deleted_text_is_not():
    box = f"<w:r><w:pict><w:txbxContent>{paragraph(run('The cat.'))}</w:txbxContent></w:pict></w:r>"
    deleted = "<w:del><w:r><w:delText>Old</w:delText></w:r></w:del>"
    moved = f"<w:moveFrom>{run('Away')}</w:moveFrom>"
    body = paragraph(run("A box: "), box, deleted, moved, run("and more")) + paragraph(box) + paragraph(run("42"))
    content = docx(body, header1=paragraph(run("Top")), footnotes=paragraph(run("Note")), styles2=paragraph(run("No")))
    found = texts_of(content)
    assert found == ['A box: <v i="0"/><v i="1"/><v i="2"/>and more', "The cat.", "The cat.", "Top", "Note"]
    files = translated("a.docx", content, lambda text: text.replace("The cat.", "Die Katze."))
    assert body_of(files) == body.replace("The cat.", "Die Katze.")


def test_slides_are_translated():
    properties = '<a:rPr lang="en-US" dirty="0" b="1"/>'
    content = pptx(f"<a:r>{properties}<a:t>Our plan</a:t></a:r><a:endParaRPr/>", "<a:r><a:t>1</a:t></a:r>")
    files = translated("a.pptx", content, lambda text: text.replace("Our plan", "Unser Plan"))
    assert '<a:p><a:r><a:rPr b="1"/><a:t>Unser Plan</a:t></a:r><a:endParaRPr/></a:p>' in files["ppt/slides/slide1.xml"]


def test_open_documents_are_translated():
    note = "<text:note><text:note-body><text:p>The car was new.</text:p></text:note-body></text:note>"
    spans = 'She bought a <text:span text:style-name="B">red<text:s text:c="2"/>car</text:span>'
    content = odt(
        f"<text:p>{spans}{note} in\n  Boston.</text:p><text:tracked-changes><text:p>Old</text:p></text:tracked-changes>"
    )
    assert texts_of(content, "a.odt") == ['She bought a <f i="1">red  car</f><v i="0"/> in Boston.', "The car was new."]
    files = translated("a.odt", content, lambda text: text.replace("red  car", "rotes  Auto").replace("new", "neu"))
    expected = spans.replace("red", "rotes ").replace('text:c="2"', 'text:c="1"').replace("car<", "Auto<")
    assert f"<text:p>{expected}{note.replace('new', 'neu')} in Boston.</text:p>" in files["content.xml"]
    assert list(files) == ["mimetype", "content.xml"]


PIECES = st.lists(
    st.tuples(st.text("ab &<>\u00e9\u4e00 ", max_size=6), st.sampled_from(["", BOLD, ITALIC])).map(
        lambda each: run(*each)
    )
    | st.sampled_from([NOTE, "<w:r><w:br/></w:r>", field(" PAGE ", run("3")), '<w:bookmarkStart w:id="1"/>']),
    max_size=8,
)


@given(st.lists(PIECES.map(lambda pieces: paragraph(*pieces)), max_size=4).map("<w:tbl/>".join))
def test_a_document_whose_translations_are_its_texts_has_the_same_texts_in_the_same_order(body: str):
    content = docx(body)
    files = translated("a.docx", content, str)
    assert text_of(body_of(files)) == text_of(body)
    again = docx(body_of(files))
    assert texts_of(again) == texts_of(content)
    assert body_of(translated("a.docx", again, str)) == body_of(files)
    assert {name: text for name, text in files.items() if "document" not in name} == {
        name: text for name, text in files_of(content).items() if "document" not in name
    }


def mark(name: str, place: str, number: int = 1) -> str:
    return f'<w:{name}{place} w:id="{number}"/>'


@pytest.mark.parametrize("name", ["bookmark", "commentRange", "perm", "moveToRange"])
def test_what_two_marks_are_around_stays_between_them(name: str):
    begin, end = mark(name, "Start"), mark(name, "End")
    content = docx(paragraph(run("He reads "), begin, run("the book"), end, run(" of Tom.")))
    assert texts_of(content) == ['He reads <s i="0">the book</s> of Tom.']
    files = translated("a.docx", content, lambda _: 'Toms <s i="0">Buch</s> liest er.')
    assert body_of(files) == paragraph(run("Toms "), begin, run("Buch"), end, run(" liest er."))


def test_marks_around_all_words_or_none_and_marks_of_different_ranges_are_points():
    begin, end = mark("bookmark", "Start"), mark("bookmark", "End")
    for content, text in (
        ((begin, run("The sea."), end), "The sea."),
        ((begin, end, run("The sea.")), "The sea."),
        ((run("The "), begin, end, run("sea.")), 'The <v i="0"/><v i="1"/>sea.'),
        ((run("The "), end, run("old "), begin, run("sea.")), 'The <v i="0"/>old <v i="1"/>sea.'),
        (
            (run("The "), begin, run("old "), mark("bookmark", "End", 2), run("sea.")),
            'The <v i="0"/>old <v i="1"/>sea.',
        ),
        ((run("The "), begin, run("old "), mark("perm", "End"), run("sea.")), 'The <v i="0"/>old <v i="1"/>sea.'),
    ):
        assert texts_of(docx(paragraph(*content))) == [text]
        assert body_of(translated("a.docx", docx(paragraph(*content)), str)) == paragraph(*content)


def test_marks_that_cross_and_marks_in_the_result_of_a_field_are_kept():
    marks = [mark("bookmark", place, number) for number in (1, 2) for place in ("Start", "End")]
    crossed = (
        run("He "),
        marks[0],
        run("reads "),
        marks[2],
        run("the "),
        marks[1],
        run("old "),
        marks[3],
        run("book."),
    )
    inside = field(" REF a ", run("the "), marks[0], run("book"), marks[1])
    for content, text in (
        (crossed, 'He <s i="0">reads <v i="0"/>the </s>old <v i="1"/>book.'),
        ((run("He reads "), inside, run(".")), 'He reads <s i="0">the <s i="1">book</s></s>.'),
    ):
        assert texts_of(docx(paragraph(*content))) == [text]
        assert body_of(translated("a.docx", docx(paragraph(*content)), str)) == paragraph(*content)


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ('<text:bookmark-start text:name="a"/>', '<text:bookmark-end text:name="a"/>'),
        ('<text:change-start text:change-id="a"/>', '<text:change-end text:change-id="a"/>'),
        (
            '<office:annotation office:name="a"><text:p>1</text:p></office:annotation>',
            '<office:annotation-end office:name="a"/>',
        ),
    ],
)
def test_marks_of_open_document_keep_their_words_also_if_one_is_in_a_span(begin: str, end: str):
    content = odt(f'<text:p>He reads <text:span text:style-name="b">{begin}the book</text:span>{end} of Tom.</text:p>')
    assert texts_of(content, "a.odt") == ['He reads <s i="0"><f i="1">the book</f></s> of Tom.']
    written = translated("a.odt", content, str)["content.xml"]
    assert written.index(begin) < written.index("the book") < written.index(end)


def test_hyphens_of_word_are_text():
    inside = "<w:t>A rail</w:t><w:noBreakHyphen/><w:t>way sta</w:t><w:softHyphen/><w:t>tion.</w:t>"
    assert texts_of(docx(paragraph(f"<w:r>{inside}</w:r>"))) == ["A rail-way station."]


def test_a_tab_that_is_a_character_ends_a_sentence():
    content = pptx("<a:r><a:rPr b='1'/><a:t>The city\tthe price</a:t></a:r>")
    assert texts_of(content, "a.pptx") == ['The city<b i="0"/>the price']
    slide = translated("a.pptx", content, lambda _: 'Die Stadt<b i="0"/>der Preis')["ppt/slides/slide1.xml"]
    bold = "<a:r><a:rPr b='1'/><a:t>{}</a:t></a:r>"
    assert "".join(map(bold.format, ["Die Stadt", "\t", "der Preis"])) in slide


def test_tabs_that_are_characters_make_few_texts_of_one():
    (text,) = texts_of(pptx(f"<a:r><a:t>{'a' + chr(9)}{('a' + chr(9)) * 1000}</a:t></a:r>"), "a.pptx")
    assert text.count("<b ") == MOST_TABS


def test_diagrams_and_titles_of_charts_of_word_are_texts():
    text = f'<a:x xmlns:a="{DRAWING}"><a:p><a:r><a:t>The sea</a:t></a:r></a:p></a:x>'
    files = files_of(docx(paragraph(run("Tom")))) | {"word/charts/chart1.xml": text, "word/diagrams/data1.xml": text}
    assert texts_of(archive(files)) == ["Tom", "The sea", "The sea"]
    written = translated("a.docx", archive(files), str.upper)
    assert written["word/charts/chart1.xml"] == written["word/diagrams/data1.xml"] == text.replace("The sea", "THE SEA")


def test_what_a_spelling_checker_has_noted_makes_no_other_format():
    noted = '<w:lang w:val="en"/><w:b/><w:noProof/>', "<w:b/>", '<w:b/><w:lang w:val="de"></w:lang>'
    assert texts_of(docx(paragraph(*(run("Tom ", each) for each in noted)))) == ["Tom Tom Tom "]
    runs = "".join(
        f"<a:r><a:rPr{each}/><a:t>Tom </a:t></a:r>" for each in (' lang="en" b="1"', " b=\"1\"\ndirty='0'", ' b="1"')
    )
    assert texts_of(pptx(runs), "a.pptx") == ["Tom Tom Tom "]


def test_what_looks_like_a_note_of_a_spelling_checker_in_a_comment_or_a_value_stays():
    comment = paragraph(run("Tom "), run("and I.", '<!--<x:lang /> lang="a"--><w:b/>'))
    assert '<!--<x:lang /> lang="a"--><w:b/>' in translated("a.docx", docx(comment), str)["word/document.xml"]
    value = '<a:r><a:rPr a=\' lang="a"\' lang="b"/><a:t>Tom</a:t></a:r>'
    assert "<a:rPr a=' lang=\"a\"'/>" in translated("a.pptx", pptx(value), str)["ppt/slides/slide1.xml"]


def test_text_with_a_long_format_stays_as_it_is():
    long = f"<w:b w:val='{'a' * MOST_FORMAT}'/>"
    body = paragraph(run("Tom "), run("and ", long), run("I."))
    assert texts_of(docx(body)) == ['Tom <v i="0"/>I.']
    assert run("and ", long) in body_of(translated("a.docx", docx(body), str))
    span = f"<text:span a='{'a' * MOST_FORMAT}'>and</text:span>"
    assert texts_of(odt(f"<text:p>Tom {span} I.</text:p>"), "a.odt") == ['Tom <v i="0"/> I.']


@pytest.mark.parametrize("name", ["a.docx", "a.odt"])
def test_the_formats_that_parts_of_texts_repeat_are_counted(name: str, monkeypatch: pytest.MonkeyPatch):
    body = {
        "a.docx": docx(paragraph(f"<w:r><w:rPr><w:b/></w:rPr>{'<w:br/><w:t>Tom</w:t>' * 50}</w:r>")),
        "a.odt": odt(f"<text:p><text:span a='b'>{'<text:tab/>Tom' * 50}</text:span></text:p>"),
    }[name]
    assert len(texts_of(body, name)) == 1
    monkeypatch.setattr("lingon.documents.office_text.MOST_TEXT_BYTES", 1000)
    with pytest.raises(UnreadableDocument, match=r"formats of 1,\d{3} bytes; at most 1,000$"):
        texts_of(body, name)


def test_a_number_of_spaces_may_have_any_number_of_digits():
    spaces = f"<text:p>Tom<text:s text:c='{'0' * 5000}3'/>and<text:s text:c='{'9' * 5000}'/>I</text:p>"
    assert texts_of(odt(spaces), "a.odt") == [f"Tom   and{' ' * 1000}I"]
