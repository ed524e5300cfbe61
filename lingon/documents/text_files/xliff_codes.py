"""What is inside the text of an XLIFF file and no text: codes and marks, which are kept byte for byte.

XLIFF 1.2, section 2.4, and XLIFF 2.0, section 4.2.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape

from lingon.documents.inline import Around, Node, Point, write
from lingon.documents.marks import paired, with_breaks, without_marks
from lingon.documents.xml_tree import Element, Text

ATTRIBUTES = ("id", "rid", "startRef", "ctype", "subType", "mtype", "translate")
_WITH_TEXT = frozenset(["g", "mrk", "pc"])
_STARTS = {"bx": "x", "bpt": "pt", "sc": "c"}  # to what a start and its end have in common
_ENDS = {"ex": "x", "ept": "pt", "ec": "c"}
_BREAKS = frozenset(["lb", "x-newline", "xlf:lb"])


def local(element: Element) -> str:
    """Return the name of an element of XLIFF without its namespace; empty for an element of another one."""
    prefix, _, name = element.name.rpartition(":")
    return "" if prefix == "?" else name


def nodes_of(element: Element, content: bytes) -> list[Node[bytes]]:
    """Return the text of an element, such as a source; content: of the file."""
    marks: dict[bytes, tuple[str, bool]] = {}
    return paired(list(_nodes(element, content, marks)), lambda point: marks.get(point.content))


def text_of(nodes: list[Node[bytes]]) -> bytes:
    """Return the content of an element with this text."""
    return without_marks(write(nodes, lambda piece: escape(piece.text).encode(), bytes).decode()).encode()


def _nodes(element: Element, content: bytes, marks: dict[bytes, tuple[str, bool]]) -> Iterator[Node[bytes]]:
    for child in element.children:
        if isinstance(child, Text):
            yield from with_breaks(child.text, str.encode)
            continue
        name, attributes, code = local(child), child.attributes, content[child.begin : child.end]
        if name in _WITH_TEXT and attributes.get("translate") != "no" and attributes.get("mtype") != "protected":
            before, after = content[child.begin : child.content], content[child.content_end : child.end]
            yield Around(before, nodes_of(child, content), after) if after else Point(code)
            continue
        if name in _STARTS:
            marks[code] = (f"{_STARTS[name]} {attributes.get('rid', attributes.get('id', ''))}", True)
        elif name in _ENDS:
            number = attributes.get("startRef", attributes.get("rid", attributes.get("id", "")))
            marks[code] = (f"{_ENDS[name]} {number}", False)
        yield Point(code, splits=attributes.get("ctype", attributes.get("subType")) in _BREAKS)


def has_content(element: Element) -> bool:
    """Whether an element has text or other elements inside of it."""
    return any(isinstance(child, Element) or not child.text.isspace() for child in element.children)
