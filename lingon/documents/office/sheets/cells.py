"""The texts of a spreadsheet of Office Open XML: of cells, comments, and what is printed above and below a page.

ISO/IEC 29500-1: rich text is in 18.4.8, the codes of headers and footers in 18.3.1.46.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from itertools import groupby
from xml.sax.saxutils import escape

from lingon.documents.bounds import MOST_FORMAT, check_marks, check_tags
from lingon.documents.document import Edit, edited
from lingon.documents.inline import Around, Inline, Node, Piece, Point
from lingon.documents.office.vocabularies import PREFIXES
from lingon.documents.xml_tree import Element, read_elements

CELLS = ("x:si", "x:is")
COMMENT, THREAD = "x:text", "tc:threadedComment"
HEADERS = tuple(f"x:{pages}{place}" for pages in ("odd", "even", "first") for place in ("Header", "Footer"))
WANTED = (*CELLS, COMMENT, THREAD, *HEADERS)
MOST_HEADER = 255  # characters; a program refuses a file with a longer one
MOST_CELL = 32_767  # characters
_CODE = re.compile(r"(?:_x000[Dd]_|\r)?\n|_x[0-9A-Fa-f]{4}_")
_CODED = re.compile(r"_x((?![Dd][89A-Fa-f])[0-9A-Fa-f]{4})_")  # half a character of UTF-16 stays a code
_HEADER_CODE = re.compile(r'&(?:&|"[^"]*+"|K(?:[0-9A-Fa-f]{6}|\d\d[+-]\d{3})|\d++|.)|\n')
_SIZE = re.compile(r"&\d++\Z")
_SECTIONS = ("&L", "&C", "&R", "\n")

Code = Piece
"""A code that is no text, with the format of the text around it."""


class Item:
    """One text of a file; begin, end: its place.

    plain: the text without its formats, as the names of columns have it
    """

    def __init__(self, element: Element, content: bytes) -> None:
        self._prefix = element.written[: element.written.rfind(b":") + 1]
        self._kind, self.begin, self.end = element.name, element.content, element.content_end
        self.inline = Inline(self._nodes(element, content))
        self.plain = plain_text(self.inline.nodes)

    def _nodes(self, element: Element, content: bytes) -> list[Node[Code]]:
        if self._kind in HEADERS:
            return list(_header_nodes(element.text))
        if self._kind == THREAD:
            text = element.child("tc:text")
            if text is None or element.child("tc:mentions"):  # which count the characters before a name
                return []
            self.begin, self.end = text.content, text.content_end
            return list(_nodes(text.text, b""))
        runs = list(_runs(element, content))
        if any(len(format) > MOST_FORMAT for _, format in runs):
            return []
        return [node for text, format in runs for node in _nodes(text, format)]

    def translated(self, translation: str) -> list[Node[Code]]:
        """Return the text of a translation; the text as it was if a program would not read a longer one."""
        nodes = self.inline.translated(translation)
        most = MOST_HEADER if self._kind in HEADERS else MOST_CELL
        return nodes if len(self._text(nodes)) <= most else self.inline.nodes

    def written(self, nodes: Sequence[Node[Code]]) -> bytes:
        """Return the content of its element."""
        if self._kind in HEADERS or self._kind == THREAD:
            return escape(self._text(nodes)).encode()
        pieces = _joined(_pieces(nodes))
        if not any(piece.format for piece in pieces):
            return self._element(b"t", pieces[0].text)
        return b"".join(
            b"<%sr>%s%s</%sr>" % (self._prefix, piece.format, self._element(b"t", piece.text), self._prefix)
            for piece in pieces
        )

    def _element(self, name: bytes, text: str) -> bytes:
        tag = self._prefix + name
        return b'<%s xml:space="preserve">%s</%s>' % (tag, escape(text).encode(), tag)

    def _text(self, nodes: Sequence[Node[Code]]) -> str:
        if self._kind not in HEADERS:
            return "".join(piece.text for piece in _pieces(nodes))
        found, size = list[str](), False
        for node, piece in zip(nodes, _pieces(nodes), strict=True):
            text = piece.text if isinstance(node, Point) else piece.text.replace("&", "&&")
            if size and text[:1].isdigit():  # which would be read as the size of the letters
                found.append(" ")
            found.append(text)
            size = bool(_SIZE.search(text))
        return "".join(found)


class Texts:
    """The texts of one file of a workbook; those in `kept`, in lower case, are not translated."""

    def __init__(self, content: bytes, kept: Container[str]) -> None:
        """Raises UnreadableDocument."""
        self._content = content
        elements = read_elements(content, PREFIXES, (), WANTED)
        check_marks(sum(sum(map(element.whole_text.count, ("\n", "_x", "&"))) for element in elements))
        items = [Item(element, content) for element in elements]
        check_tags(sum(len(item.inline.nodes) for item in items))
        self.items = [item for item in items if item.inline.text and item.plain.lower() not in kept]

    @property
    def texts(self) -> list[str]:
        """To translate."""
        return [item.inline.text for item in self.items]

    def written(self, translations: Sequence[Sequence[Node[Code]]]) -> bytes:
        """Return the file; translations: the nodes of each item."""
        every = zip(self.items, translations, strict=True)
        changed = ((item, nodes) for item, nodes in every if nodes is not item.inline.nodes)
        return edited(self._content, (Edit(item.begin, item.end, item.written(nodes)) for item, nodes in changed))


def plain_text(nodes: Sequence[Node[Code]]) -> str:
    """Return the text of nodes without formats."""
    return without_codes("".join(piece.text for piece in _pieces(nodes)))


def without_codes(text: str) -> str:
    """Return a text with the characters that its codes stand for; a line break is one character."""
    return _CODED.sub(lambda code: chr(int(code[1], 16)), text).replace("\r", "")


def _runs(element: Element, content: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the text of the runs of rich text, each with its format; readings of Japanese words are left out."""
    for child in element.elements:
        if child.name == "x:t":
            yield child.text, b""
        elif child.name == "x:r":
            properties, text = child.child("x:rPr"), child.child("x:t")
            if text is not None:
                yield text.text, b"" if properties is None else content[properties.begin : properties.end]


def _nodes(text: str, format: bytes) -> Iterator[Node[Code]]:
    """Yield the text of a run; line breaks and other codes are points."""
    at = 0
    for code in _CODE.finditer(text):
        yield Piece(text[at : code.start()], format)
        yield Point(Piece(code[0], format), splits=code[0].endswith("\n"))
        at = code.end()
    yield Piece(text[at:], format)


def _header_nodes(text: str) -> Iterator[Node[Code]]:
    at = 0
    for code in _HEADER_CODE.finditer(text):
        yield Piece(text[at : code.start()])
        yield Piece("&") if code[0] == "&&" else Point(Piece(code[0]), splits=code[0] in _SECTIONS)
        at = code.end()
    yield Piece(text[at:])


def _pieces(nodes: Sequence[Node[Code]]) -> Iterator[Piece]:
    for node in nodes:
        assert not isinstance(node, Around)
        yield node.content if isinstance(node, Point) else node


def _joined(pieces: Iterator[Piece]) -> list[Piece]:
    alike = groupby(pieces, key=lambda piece: piece.format)
    return [Piece("".join(piece.text for piece in each), format) for format, each in alike]
