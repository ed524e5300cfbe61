"""The text of a paragraph with its formats as XML for translation, and the paragraph of its translation.

The XML has five elements, each with the attribute i, a number: `f` is text of another format than most of the
paragraph, `s` what is around a part of it, such as a link, `l` the same around an item of a list, such as several links
with nothing but separators between them, `v` something inside a sentence that is no text, such as a footnote, and `b`
the same between sentences, such as a line break or a separator.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Generic, TypeVar
from xml.sax.saxutils import escape

from lingon.documents.document import UnreadableDocument
from lingon.documents.xml_tree import Element, XmlText, read_tree
from lingon.segments.kept_forms import Kind, replaced
from lingon.segments.markup_lists import NO_TEXT, Sibling, SiblingKind, Surroundings, divide, element_of, sibling_of
from lingon.segments.protection import find_protected
from lingon.translation.v1 import translation_pb2 as pb

Content = TypeVar("Content")
"""What a document has in a position that is not translated: bytes, or what still has to be written."""

MOST_AROUND = 1000  # nodes around another: those of a file inside each other, each with fields inside
_APART = re.compile(r'(?<![\w>])<v i="\d++"/>(?![\w<])')
_POINT = re.compile(r'<v i="\d++"/>')
_NOT_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # XML 1.0 has no way to write them


@dataclass(frozen=True, slots=True)
class FormattedText:
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
    """A part of a paragraph with something before and after it; link: whether it is a link."""

    before: Content
    nodes: Sequence[Node[Content]]
    after: Content
    link: bool = False


Node = FormattedText | Point[Content] | Around[Content]


def text_options() -> pb.TextOptions:
    """Return how the text of a paragraph is to be read."""
    return pb.TextOptions(format=pb.TEXT_FORMAT_XML, non_splitting_tags=["f", "s", "v"], splitting_tags=["b", "l"])


class InlineText(Generic[Content]):
    """A paragraph.

    text: its XML, empty if there is nothing to translate
    """

    def __init__(self, nodes: Sequence[Node[Content]]) -> None:
        """Raise UnreadableDocument for content that cannot be read."""
        self._nodes = _joined(nodes)
        begin, end = _without_ends(self._nodes)
        self._begin, self._middle, self._end = self._nodes[:begin], self._nodes[begin:end], self._nodes[end:]
        self._formats = _formats(self._middle)
        self._numbers = {format: number for number, format in enumerate(self._formats)}
        self._items, self._separators = _lists(self._middle)
        self._points: list[Point[Content] | FormattedText] = []  # those of the text, with what separates items
        self._arounds: list[Around[Content]] = []
        self.text = self._xml(self._middle) if has_words(self._middle) else ""

    def _xml(self, nodes: Sequence[Node[Content]]) -> str:
        return "".join(self._xml_of(node, nesting) for node, nesting in steps(nodes))

    def _xml_of(self, node: Node[Content], nesting: int) -> str:
        if isinstance(node, FormattedText) and id(node) in self._separators:
            self._points.append(node)
            return f'<b i="{len(self._points) - 1}"/>'
        if isinstance(node, FormattedText):
            number = self._numbers[node.format]
            text = escape(_NOT_XML.sub("", node.text))
            return text if number == 0 else f'<f i="{number}">{text}</f>'
        if isinstance(node, Point):
            self._points.append(node)
            return f'<{"b" if node.splits else "v"} i="{len(self._points) - 1}"/>'
        name = "l" if id(node) in self._items else "s"
        if nesting < 0:
            return f"</{name}>"
        self._arounds.append(node)
        return f'<{name} i="{len(self._arounds) - 1}">'

    def translated(self, translation: str) -> list[Node[Content]]:
        """Return the paragraph of a translation of its text, which has the same elements."""
        root = read_tree(f"<p>{_with_blanks(self.text, translation)}</p>".encode(), {}, ("i",), MOST_AROUND + 2)
        return _joined([*self._begin, *self._read(root), *self._end])

    @property
    def nodes(self) -> list[Node[Content]]:
        """The paragraph as it was."""
        return self._nodes

    def _read(self, root: Element) -> list[Node[Content]]:
        """Return the nodes of a translation."""
        levels: list[list[Node[Content]]] = [[]]
        waiting = [(root, iter(root.children), 0)]
        while waiting:
            element, children, format = waiting[-1]
            child = next(children, None)
            if child is None:
                waiting.pop()
                if element.name in ("l", "s"):
                    around, inside = self._arounds[_place(element)], levels.pop()
                    levels[-1].append(replace(around, nodes=inside))
            elif isinstance(child, XmlText):
                levels[-1].append(FormattedText(child.text, self._formats[format]))
            elif child.name in ("f", "l", "s"):
                waiting.append((child, iter(child.children), _place(child) if child.name == "f" else format))
                levels += [[]] if child.name != "f" else []
            else:
                levels[-1].append(self._points[_place(child)])
        return levels[0]


def _place(element: Element) -> int:
    return int(element.attributes["i"])


def _with_blanks(source: str, translation: str) -> str:
    """Return a translation in which a point that is beside no word in the source has blanks beside words."""
    apart = set(_APART.findall(source))

    def written(point: re.Match[str]) -> str:
        before, after = translation[point.start() - 1 : point.start()], translation[point.end() : point.end() + 1]
        blanks = [" " if beside.isalnum() and point[0] in apart else "" for beside in (before, after)]
        return f"{blanks[0]}{point[0]}{blanks[1]}"

    return _POINT.sub(written, translation) if apart else translation


def steps(nodes: Sequence[Node[Content]]) -> Iterator[tuple[Node[Content], int]]:
    """Yield nodes and those inside of them, in their order; one around others with 1 before and -1 after these."""
    around = list[Around[Content]]()
    waiting = [iter(nodes)]
    while waiting:
        for node in waiting[-1]:
            if isinstance(node, Around):
                yield node, 1
                around.append(node)
                waiting.append(iter(node.nodes))
                break
            yield node, 0
        else:
            waiting.pop()
            if around:
                yield around.pop(), -1


def depth_of(nodes: Sequence[Node[Content]]) -> int:
    """Return how many nodes are around one of the nodes at most."""
    return max(accumulate((nesting for _, nesting in steps(nodes)), initial=0))


def _check_depth(depth: int) -> None:
    if depth > MOST_AROUND:
        raise UnreadableDocument(
            f"a text in the file has {depth:,} links and marks around another; at most {MOST_AROUND:,}"
        )


def has_words(nodes: Sequence[Node[Content]]) -> bool:
    """Return whether there are letters in the text of nodes."""
    return any(any(map(str.isalpha, piece.text)) for piece in pieces(nodes))


def pieces(nodes: Sequence[Node[Content]]) -> Iterator[FormattedText]:
    """Yield the pieces among nodes and inside of them."""
    return (node for node, _ in steps(nodes) if isinstance(node, FormattedText))


def write(
    nodes: Sequence[Node[Content]], text: Callable[[FormattedText], bytes], content: Callable[[Content], bytes]
) -> bytes:
    """Return the bytes of nodes; text: writes pieces, content: everything else."""
    found = list[bytes]()
    for node, nesting in steps(nodes):
        if isinstance(node, FormattedText):
            found.append(text(node))
        elif isinstance(node, Point):
            found.append(content(node.content))
        else:
            found.append(content(node.before if nesting > 0 else node.after))
    return b"".join(found)


def _joined(nodes: Sequence[Node[Content]]) -> list[Node[Content]]:
    """Return nodes in which pieces of one format beside each other are one. White space has the format before it.

    Raises UnreadableDocument if there are too many around another.
    """
    levels: list[list[Node[Content]]] = [[]]
    for node, nesting in steps(nodes):
        if isinstance(node, FormattedText):
            levels[-1] += [node] if node.text else []
        elif isinstance(node, Point):
            levels[-1].append(node)
        elif nesting > 0:
            levels.append([])
            _check_depth(len(levels) - 1)
        else:
            inside = _joined_beside(levels.pop())
            levels[-1].append(replace(node, nodes=inside))
    return _joined_beside(levels[0])


def _joined_beside(nodes: Sequence[Node[Content]]) -> list[Node[Content]]:
    """Return the same of nodes with nothing to join inside of them."""
    if len(nodes) < 2:  # as most texts
        return list(nodes)
    found: list[Node[Content]] = []
    alike: list[FormattedText] = []
    for node in [*nodes, None]:
        if isinstance(node, FormattedText) and alike and (node.format == alike[0].format or node.text.isspace()):
            alike.append(node)
            continue
        if alike:
            found.append(FormattedText("".join(piece.text for piece in alike), alike[0].format))
        alike = [node] if isinstance(node, FormattedText) else []
        found += [] if node is None or isinstance(node, FormattedText) else [node]
    return found


def _without_ends(nodes: Sequence[Node[Content]]) -> tuple[int, int]:
    """Return the range of nodes without the points at both ends, which stay where they are."""
    texts = [position for position, node in enumerate(nodes) if not isinstance(node, Point)]
    return (texts[0], texts[-1] + 1) if texts else (0, 0)


def _formats(nodes: Sequence[Node[Content]]) -> list[bytes]:
    """Return the formats of a paragraph, that of most of its words first: it needs no tags.

    A string that is kept counts as one word: an address may be longer than the sentence around it.
    """
    sizes = dict.fromkeys((piece.format for piece in pieces(nodes)), 0)
    if len(sizes) < 2:  # as most texts
        return list(sizes)
    for piece in pieces(nodes):
        sizes[piece.format] += len(replaced(piece.text, find_protected(piece.text), lambda _: "x").split())
    return sorted(sizes, key=lambda format: -sizes[format])


@dataclass(slots=True)
class _Level:
    """Nodes beside each other; parts: of these, with how they look beside the others, between what splits sentences."""

    parts: list[list[tuple[Node[Any], Sibling]]] = field(default_factory=lambda: [[]])
    inside: dict[int, _Level] = field(default_factory=dict)  # of the nodes that are around others, by their identities


def _lists(nodes: Sequence[Node[Any]]) -> tuple[set[int], set[int]]:
    """Return the identities of the nodes that are items of lists, and of those that separate them."""
    items, separators = set[int](), set[int]()
    if sum(isinstance(node, Around) and node.link and nesting > 0 for node, nesting in steps(nodes)) < 2:
        return items, separators  # as almost all texts
    waiting = [(_level(nodes), True, True)]
    while waiting:
        level, before, after = waiting.pop()
        for number, part in enumerate(level.parts):
            first, last = number == 0, number == len(level.parts) - 1
            around = Surroundings(before or not first, after or not last)
            division = divide([sibling for _, sibling in part], around)
            items.update(id(part[position][0]) for position in division.items)
            separators.update(id(part[position][0]) for position in division.separators)
            for position, (node, _) in enumerate(part):
                if id(node) in level.inside:
                    waiting.append((level.inside[id(node)], division.borders[position], division.borders[position + 1]))
    return items, separators


def _level(nodes: Sequence[Node[Any]]) -> _Level:
    """Return nodes as a level, with the levels inside of it."""
    levels = [_Level()]
    for node, nesting in steps(nodes):
        if isinstance(node, FormattedText):
            levels[-1].parts[-1].append((node, sibling_of(node.text)))
        elif isinstance(node, Point):
            levels[-1].parts += [[]] if node.splits else []
        elif nesting > 0:
            levels.append(_Level())
        else:
            level = levels.pop()
            kind = SiblingKind.LINK if node.link else SiblingKind.MARK
            levels[-1].inside[id(node)] = level
            if len(level.parts) > 1:  # what splits a sentence in it splits the one around it
                levels[-1].parts += [[(node, NO_TEXT)], []]
            else:
                sibling = element_of(kind, [sibling for _, sibling in level.parts[0]])
                levels[-1].parts[-1].append((node, sibling))
    return levels[0]


# Texts with line breaks and marks, such as tags, as nodes.

Key = TypeVar("Key")
TAG = re.compile(r"</?[A-Za-z][^<>]*+>")
MOST_DEPTH = 16  # of marks inside each other
END_CHARACTERS = 8  # in which the end mark of a sentence is looked for
_BREAK = re.compile(r"(?P<line>(?<![ \t])[ \t]*+(?:\r?\n|\r)[ \t\r\n]*+)|[\x01-\x09\x0b\x0c\x0e-\x1f]+")
_WRAP = re.compile("(?<! ) *+\0([^\0]*+)\0 *+")
_OF_TAGS = frozenset([Kind.TAG, Kind.OPENING, Kind.CLOSING])
_ENDS = re.compile(r"[.!?:;\u2026\u3002\uff01\uff1f]\W*\Z")


def with_breaks(text: str, point: Callable[[str], Content]) -> Iterator[Node[Content]]:
    """Yield a text whose line breaks and control characters are points. See `without_marks` for those in a sentence.

    A sentence goes on if its line has no end mark, and the next line begins with a small letter.
    """
    at = 0
    for found in _BREAK.finditer(text):
        before, after = text[at : found.start()], text[found.end() : found.end() + 1]
        yield FormattedText(before)
        ended = not before.strip() or _ENDS.search(before[-END_CHARACTERS:])
        if found["line"] and not ended and after.islower():
            yield FormattedText(" ")
            yield Point(point(f"\0{found[0]}\0"))
        else:
            yield Point(point(found[0]), splits=True)
        at = found.end()
    yield FormattedText(text[at:])


def tags_of(text: str) -> Iterator[re.Match[str]]:
    """Yield the tags of HTML in a text, but those that are parts of what it keeps, such as that in `%<name>s`."""
    if "<" not in text:
        return
    kept = [span for span in find_protected(text) if span.kind not in _OF_TAGS or text[span.begin] != "<"]
    ends = [span.end for span in kept]
    for tag in TAG.finditer(text):
        position = bisect_right(ends, tag.start())
        if position == len(kept) or tag.end() <= kept[position].begin:
            yield tag


def marks_in(text: str) -> int:
    """Return how many tags and line breaks a text has, at most."""
    return text.count("<") + sum(1 for _ in _BREAK.finditer(text))


def without_marks(text: str) -> str:
    """Return a written text in which a line break inside a sentence has no blanks around it but its own."""
    return _WRAP.sub(r"\1", text)


def paired(
    nodes: Sequence[Node[Content]], mark: Callable[[Point[Content]], tuple[Key, bool] | None]
) -> list[Node[Content]]:
    """Return nodes in which what is between a start and its end is one node.

    mark: returns what a start and its end have in common, and whether a point is a start, or None for other points
    """
    levels: list[list[Node[Content]]] = [[]]
    starts: list[Key] = []
    for node in nodes:
        found = mark(node) if isinstance(node, Point) else None
        if found is not None and found[1] and len(starts) < MOST_DEPTH:
            starts.append(found[0])
            levels.append([node])
        elif found is not None and not found[1] and found[0] in starts:
            while starts.pop() != found[0]:
                crossed = levels.pop()
                levels[-1] += crossed
            start, *inside = levels.pop()
            assert isinstance(start, Point)
            assert isinstance(node, Point)
            levels[-1].append(Around(start.content, inside, node.content))
        else:
            levels[-1].append(node)
    return [node for level in levels for node in level]


def named_tag(tag: str) -> tuple[str, bool] | None:
    """Return the name of a tag of HTML and whether it is a start, or None for one without an end, and for other
    text.
    """
    found = re.match(r"<(/?)([A-Za-z]+)", tag)
    return (found[2].lower(), not found[1]) if found and not tag.endswith("/>") else None
