"""Texts with line breaks and marks, such as tags, as nodes."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from lingon.documents.inline import Around, Content, Node, Piece, Point
from lingon.segments.protection.find import find_protected
from lingon.segments.protection.spans import Kind

Key = TypeVar("Key")
TAG = re.compile(r"</?[A-Za-z][^<>]*+>")
MOST_DEPTH = 16  # of marks inside each other
END_CHARACTERS = 8  # in which the end mark of a sentence is looked for
_BREAK = re.compile(r"(?P<line>(?<![ \t])[ \t]*+(?:\r?\n|\r)[ \t\r\n]*+)|[\x01-\x09\x0b\x0c\x0e-\x1f]+")
_WRAP = re.compile("(?<! ) *+\0([^\0]*+)\0 *+")
_OF_TAGS = frozenset([Kind.TAG, Kind.OPENING, Kind.CLOSING])
_ENDS = re.compile(r"[.!?:;\u2026\u3002\uff01\uff1f]\W*\Z")


def with_breaks(text: str, point: Callable[[str], Content]) -> Iterator[Node[Content]]:
    """Yield a text whose line breaks and control characters are points; see `without_marks` for those in a sentence.

    A sentence goes on if its line has no end mark, and the next line begins with a small letter.
    """
    at = 0
    for found in _BREAK.finditer(text):
        before, after = text[at : found.start()], text[found.end() : found.end() + 1]
        yield Piece(before)
        ended = not before.strip() or _ENDS.search(before[-END_CHARACTERS:])
        if found["line"] and not ended and after.islower():
            yield Piece(" ")
            yield Point(point(f"\0{found[0]}\0"))
        else:
            yield Point(point(found[0]), splits=True)
        at = found.end()
    yield Piece(text[at:])


def tags_of(text: str) -> Iterator[re.Match[str]]:
    """Yield the tags of HTML in a text, but those that are parts of what it keeps, such as that in `%<name>s`."""
    if "<" not in text:
        return
    kept = [span for span in find_protected(text) if span.kind not in _OF_TAGS or text[span.begin] != "<"]
    ends = [span.end for span in kept]
    for tag in TAG.finditer(text):
        place = bisect_right(ends, tag.start())
        if place == len(kept) or tag.end() <= kept[place].begin:
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

    mark: returns what a start and its end have in common, and whether a point is a start; None for other points
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
    """Return the name of a tag of HTML and whether it is a start; None for one without an end, and for other text."""
    found = re.match(r"<(/?)([A-Za-z]+)", tag)
    return (found[2].lower(), not found[1]) if found and not tag.endswith("/>") else None
