"""Paragraphs as XML, and back."""

from __future__ import annotations

import pytest

from lingon.documents import UnreadableDocument
from lingon.documents.inline import MOST_AROUND, Around, Inline, Node, Piece, Point, depth_of, write


def nested(depth: int) -> list[Node[bytes]]:
    nodes: list[Node[bytes]] = [Piece("Tom ", b"b"), Point(b"."), Piece("and I")]
    for _ in range(depth):
        nodes = [Piece("a "), Around(b"<", nodes, b">"), Point(b"!"), Piece(" b")]
    return nodes


@pytest.mark.parametrize("depth", [0, 1, 30, MOST_AROUND])
def test_a_paragraph_is_what_it_was_when_its_text_is_however_deep_it_is(depth: int):
    inline = Inline(nested(depth))
    assert depth_of(inline.nodes) == depth
    written = write(inline.nodes, lambda piece: piece.text.encode(), bytes)
    again = write(inline.translated(inline.text), lambda piece: piece.text.encode(), bytes)
    assert again == written == b"a <" * depth + b"Tom .and I" + b">! b" * depth


def test_more_links_and_marks_inside_each_other_are_refused():
    with pytest.raises(UnreadableDocument, match="has 1,001 links and marks around another; at most 1,000"):
        Inline(nested(MOST_AROUND + 1))


@pytest.mark.parametrize("kept", [f"https://example.org/{'a' * 80}", "{ name, one two three four }"])
def test_the_format_of_most_words_has_no_tags_and_a_string_that_is_kept_is_one_word(kept: str):
    inline = Inline([Piece("Read "), Piece(kept, b"bold"), Piece(" first.")])
    assert inline.text == f'Read <f i="1">{kept}</f> first.'
