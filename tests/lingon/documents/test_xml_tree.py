"""XML files: what a parser reads in pieces is what is in the file, and what would take long is refused."""

from __future__ import annotations

import pytest

from lingon.documents import UnreadableDocument, read_document
from lingon.documents.xml_tree import FED_BYTES, MOST_TAG_BYTES, attributes_of, read_tree
from lingon.xml_parser import MOST_ADDRESS
from tests.support.documents import docx, odt, run

PARAGRAPH = "<text:p>Tom  and\n   <text:span>I</text:span> &amp; you.</text:p>\n"


def test_a_text_is_whole_wherever_the_piece_of_a_file_ends_in_it():
    (text,) = read_document("a.odt", odt(PARAGRAPH)).texts
    many = 3 * FED_BYTES // len(PARAGRAPH)
    assert set(read_document("a.odt", odt(PARAGRAPH * many)).texts) == {text}


def test_elements_have_their_places_in_a_file_of_many_pieces():
    content = b"<a>" + b"<b c='d'>text</b>" * 50_000 + b"</a>"
    elements = list(read_tree(content, {}, ()).elements)
    assert len(elements) == 50_000
    assert {content[each.begin : each.end] for each in elements} == {b"<b c='d'>text</b>"}
    assert {content[each.content : each.content_end] for each in elements} == {b"text"}


def test_a_tag_is_at_most_a_mebibyte():
    inside = "a>" * (MOST_TAG_BYTES // 2)
    read_document("a.docx", docx(f"<w:p a='{inside[:-100]}'/>" + run("Tom")))
    with pytest.raises(UnreadableDocument, match=r"a tag of more than 1,048,576 bytes, got 1,\d{3},\d{3}$"):
        read_document("a.docx", docx(f"<w:p a='{inside * 2}'/>" + run("Tom")))


@pytest.mark.parametrize(("begin", "end"), [("<!--", "-->"), ("<?a ", "?>")], ids=["comment", "instruction"])
@pytest.mark.parametrize("more", [*range(-12, 4), 100_001])
def test_elements_after_a_long_comment_have_their_places(begin: str, end: str, more: int):
    long = f"{begin}{'a' * (MOST_TAG_BYTES + FED_BYTES + more)}{end}"
    content = f"<a>{long}<b>c</b>{long}<b>c</b></a>".encode()
    elements = list(read_tree(content, {}, ()).elements)
    assert [content[each.begin : each.end] for each in elements] == [b"<b>c</b>"] * 2
    with pytest.raises(UnreadableDocument, match="is not well-formed"):
        read_tree(content[: len(long)], {}, ())


def test_the_address_of_a_namespace_which_each_name_repeats_is_bounded():
    read_document("a.docx", docx(f"<x xmlns='{'u' * MOST_ADDRESS}'/>"))
    with pytest.raises(UnreadableDocument, match=r"namespace .* 1,001 characters; at most 1,000"):
        read_document("a.docx", docx(f"<x xmlns='{'u' * (MOST_ADDRESS + 1)}'/>"))


@pytest.mark.parametrize("blanks", ["", " ", "\n\t "])
def test_the_attributes_of_a_tag_are_those_outside_of_values(blanks: str):
    tag = f"""<a  b='c="d" e' f{blanks}={blanks}"<'>"\n\tg:h='' {blanks}/>""".replace("<'", "&lt;'").encode()
    found = list(attributes_of(b"x" + tag + b" i='j'", 1, 1 + len(tag)))
    assert [(each.name, each.local, each.value) for each in found] == [
        (b"b", b"b", b'c="d" e'),
        (b"f", b"f", b"&lt;'>"),
        (b"g:h", b"h", b""),
    ]
    assert found[0].begin == 3
    assert found[-1].end == len(tag) + 1 - len(f" {blanks}/>")
