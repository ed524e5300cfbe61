"""A line or a paragraph as the texts in it that belong together, without the marks before them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice

from lingon.segments.boundaries import LINE_BREAKS, Span, next_visible, trimmed_end
from lingon.segments.layout.crumbs import SEPARATORS, crumbs
from lingon.segments.layout.gaps import borders
from lingon.segments.layout.marks import BLANKS, SIGNS, after_marks, mark_at

_LINE_BREAK = re.compile(f"[{LINE_BREAKS}]")


_PLAIN = re.compile(  # begins with a word that is no mark, and has no border: most texts are such
    rf"[^\W\d_]{{2,}}+(?![.)）、．])(?:[^{SEPARATORS}{BLANKS}{LINE_BREAKS}\\]++|[{BLANKS}](?<!\t)(?![{BLANKS}]))*+"
)
LINES_AT_ONCE = 256  # of wrapped text that are read before the caller can give way to others


def cells_of(text: str, paragraph: Span, *, collapses: bool = False) -> Iterator[Span]:
    """Yield the texts of a paragraph in order; an empty span stands for a part in which there is nothing to translate.

    Each text begins and ends with a visible character. What is between them, such as a tab, a bullet or the sign
    between two names of a menu, is kept as it is.
    collapses: whether spaces and tabs are white space of any width, as in HTML
    """
    at, end = paragraph
    if _PLAIN.fullmatch(text, at, end):
        yield paragraph
        return
    for first, last in chain(borders(text, at, end, collapses=collapses), ((end, end),)):
        for item in _items(text, at, first):
            yield from _without_marks(text, *item)
        at = last


def _without_marks(text: str, begin: int, end: int) -> Iterator[Span]:
    """Yield the texts of an item."""
    begin = next_visible(text, begin, end)
    end = trimmed_end(text, begin, end)
    begin = after_marks(text, begin, end)
    yield from crumbs(text, begin, end) if begin < end else ((begin, begin),)


def _items(text: str, begin: int, end: int) -> Iterator[Span]:
    """Yield the items of a list in wrapped text: two of its lines or more begin with a mark of the same kind."""
    if not _LINE_BREAK.search(text, begin, end):
        yield begin, end
        return
    places = chain((begin,), (found.end() for found in _LINE_BREAK.finditer(text, begin, end)))
    kinds, at = set[str](), begin
    while starts := list(islice(places, LINES_AT_ONCE)):
        marked = [(first, kind) for first in starts if (kind := _kind(text, first, end))]
        count = Counter(kind for _, kind in marked)
        kinds.update(kind for kind in count if count[kind] > 1)
        for first, kind in marked:
            if kind in kinds and at < first:
                yield at, first
                at = first
        if len(starts) == LINES_AT_ONCE:
            yield at, at
    yield at, end


def _kind(text: str, line: int, end: int) -> str:
    """Return of which kind the mark is that a line begins with; empty without one."""
    first = next_visible(text, line, end)
    found = mark_at(text, first, end)
    if found is None:
        return ""
    return text[first] if found[1] in SIGNS else found[1]
