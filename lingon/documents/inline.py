"""The text of a paragraph with its formats as XML for translation, and the paragraph of its translation.

The XML has four elements, each with the attribute i, a number: `f` is text of another format than most of the
paragraph, `s` what is around a part of it, such as a link, `v` something inside a sentence that is no text, such as a
footnote, and `b` the same between sentences, such as a line break.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar
from xml.sax.saxutils import escape

from lingon.documents.xml_tree import Element, Text, read_tree
from lingon.translation.v1 import translation_pb2 as pb

Content = TypeVar("Content")
"""What a document has in a place that is not translated: bytes, or what still has to be written."""

MOST_DEPTH = 1000  # of elements in a translation: those of a file inside each other, each with fields inside
_APART = re.compile(r'(?<![\w>])<v i="\d+"/>(?![\w<])')
_POINT = re.compile(r'<v i="\d+"/>')
_NOT_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # XML 1.0 has no way to write them


@dataclass(frozen=True, slots=True)
class Piece:
    """Text of one format; format: any name of it."""

    text: str
    format: bytes = b""


@dataclass(frozen=True, slots=True)
class Point(Generic[Content]):
    """Something that is no text; splits: whether a sentence ends there."""

    content: Content
    splits: bool = False


@dataclass(frozen=True, slots=True)
class Around(Generic[Content]):
    """A part of a paragraph with something before and after it."""

    before: Content
    nodes: Sequence[Node[Content]]
    after: Content


Node = Piece | Point[Content] | Around[Content]


def text_options() -> pb.TextOptions:
    """Return how the text of a paragraph is to be read."""
    return pb.TextOptions(format=pb.TEXT_FORMAT_XML, non_splitting_tags=["f", "s", "v"], splitting_tags=["b"])


class Inline(Generic[Content]):
    """A paragraph.

    text: its XML; empty if there is nothing to translate
    """

    def __init__(self, nodes: Sequence[Node[Content]]) -> None:
        self._nodes = _joined(nodes)
        begin, end = _without_ends(self._nodes)
        self._begin, self._middle, self._end = self._nodes[:begin], self._nodes[begin:end], self._nodes[end:]
        self._formats = _formats(self._middle)
        self._numbers = {format: number for number, format in enumerate(self._formats)}
        self._points: list[Point[Content]] = []
        self._arounds: list[Around[Content]] = []
        self.text = self._xml(self._middle) if has_words(self._middle) else ""

    def _xml(self, nodes: Sequence[Node[Content]]) -> str:
        return "".join(map(self._xml_of, nodes))

    def _xml_of(self, node: Node[Content]) -> str:
        if isinstance(node, Piece):
            number = self._numbers[node.format]
            text = escape(_NOT_XML.sub("", node.text))
            return text if number == 0 else f'<f i="{number}">{text}</f>'
        if isinstance(node, Point):
            self._points.append(node)
            return f'<{"b" if node.splits else "v"} i="{len(self._points) - 1}"/>'
        self._arounds.append(node)
        number = len(self._arounds) - 1
        return f'<s i="{number}">{self._xml(node.nodes)}</s>'

    def translated(self, translation: str) -> list[Node[Content]]:
        """Return the paragraph of a translation of its text, which has the same elements."""
        root = read_tree(f"<p>{_with_blanks(self.text, translation)}</p>".encode(), {}, ("i",), MOST_DEPTH)
        return _joined([*self._begin, *self._read(root, 0), *self._end])

    @property
    def nodes(self) -> list[Node[Content]]:
        """The paragraph as it was."""
        return self._nodes

    def _read(self, element: Element, number: int) -> list[Node[Content]]:
        """Return the nodes of an element; number: of the format of its text."""
        found: list[Node[Content]] = []
        for child in element.children:
            if isinstance(child, Text):
                found.append(Piece(child.text, self._formats[number]))
                continue
            place = int(child.attributes["i"])
            if child.name == "f":
                found += self._read(child, place)
            elif child.name == "s":
                around = self._arounds[place]
                found.append(Around(around.before, self._read(child, number), around.after))
            else:
                found.append(self._points[place])
        return found


def _with_blanks(source: str, translation: str) -> str:
    """Return a translation in which a point that is beside no word in the source has blanks beside words."""
    apart = set(_APART.findall(source))

    def written(point: re.Match[str]) -> str:
        before, after = translation[point.start() - 1 : point.start()], translation[point.end() : point.end() + 1]
        blanks = [" " if beside.isalnum() and point[0] in apart else "" for beside in (before, after)]
        return f"{blanks[0]}{point[0]}{blanks[1]}"

    return _POINT.sub(written, translation) if apart else translation


def has_words(nodes: Sequence[Node[Content]]) -> bool:
    """Whether there are letters in the text of nodes."""
    return any(character.isalpha() for piece in _pieces(nodes) for character in piece.text)


def write(nodes: Sequence[Node[Content]], text: Callable[[Piece], bytes], content: Callable[[Content], bytes]) -> bytes:
    """Return the bytes of nodes; text: writes pieces, content: everything else."""
    found = bytearray()
    for node in nodes:
        if isinstance(node, Piece):
            found += text(node)
        elif isinstance(node, Point):
            found += content(node.content)
        else:
            found += content(node.before) + write(node.nodes, text, content) + content(node.after)
    return bytes(found)


def _joined(nodes: Sequence[Node[Content]]) -> list[Node[Content]]:
    """Return nodes in which pieces of one format beside each other are one; white space has the format before it."""
    found: list[Node[Content]] = []
    alike: list[Piece] = []
    for node in nodes:
        goes_on = isinstance(node, Piece) and bool(alike) and (node.format == alike[0].format or node.text.isspace())
        if alike and not goes_on:
            found.append(Piece("".join(piece.text for piece in alike), alike[0].format))
            alike = []
        if isinstance(node, Piece):
            alike += [node] if node.text else []
        else:
            found.append(Around(node.before, _joined(node.nodes), node.after) if isinstance(node, Around) else node)
    return [*found, Piece("".join(piece.text for piece in alike), alike[0].format)] if alike else found


def _without_ends(nodes: Sequence[Node[Content]]) -> tuple[int, int]:
    """Return the range of nodes without the points at both ends, which stay where they are."""
    texts = [place for place, node in enumerate(nodes) if not isinstance(node, Point)]
    return (texts[0], texts[-1] + 1) if texts else (0, 0)


def _pieces(nodes: Sequence[Node[Content]]) -> list[Piece]:
    found: list[Piece] = []
    for node in nodes:
        if isinstance(node, Piece):
            found.append(node)
        elif isinstance(node, Around):
            found += _pieces(node.nodes)
    return found


def _formats(nodes: Sequence[Node[Content]]) -> list[bytes]:
    """Return the formats of a paragraph, that of most of its text first: it needs no tags."""
    sizes = Counter[bytes]()
    for piece in _pieces(nodes):
        sizes[piece.format] += len(piece.text)
    return [format for format, _ in sizes.most_common()]
