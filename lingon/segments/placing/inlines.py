"""What is placed, by what, and the result."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

Span = tuple[int, int]  # code points; the end is exclusive
Weights = Sequence[Sequence[float]]


class Inline(NamedTuple):
    """An element over a part of the source text, or a point without text.

    begin, end: code points; equal for a point
    parent: the place of the element that it is in, in a list in which that one is earlier; -1 without
    """

    begin: int
    end: int
    parent: int = -1


class Kept(NamedTuple):
    """A string of the source that its translation has as well.

    source, target: where it is in both texts; one of them is empty if it is known in the other text only
    whole: the spans of the source in it that no tag may cut, such as a placeholder
    divides: whether what is before and after it was translated apart
    """

    source: Span
    target: Span
    whole: Sequence[Span] = ()
    divides: bool = False

    def moved(self, source: int, target: int) -> Kept:
        """Return the same with its spans moved by so many code points."""
        whole = [(begin + source, end + source) for begin, end in self.whole]
        return Kept(_moved(self.source, source), _moved(self.target, target), whole, self.divides)


class Aligned(NamedTuple):
    """A segment of the source and its translation.

    weights: (target words, source words), as `str.split` separates them: how much of a source word is in a target word;
        None if it is not known, then words are aligned in order
    kept: what both have, in order and without overlap in the source, and without overlap in the translation
    """

    source: Span
    target: Span
    weights: Weights | None = None
    kept: Sequence[Kept] = ()


class Insertion(NamedTuple):
    """A tag that comes before a place of the target text.

    inline: which; closing: whether it is the end tag; that of a point comes after its start
    """

    place: int
    inline: int
    closing: bool = False


def boundaries(inlines: Iterable[Inline]) -> list[int]:
    """Return the places at which an inline begins or ends, in order."""
    return sorted({place for begin, end, _ in inlines for place in (begin, end)})


def needs_weights(segments: Iterable[Span], inlines: Sequence[Inline]) -> list[bool]:
    """Return for each segment whether an inline begins or ends within it, so that its place needs an alignment."""
    places, at, needed = boundaries(inlines), 0, []
    for begin, end in segments:
        while at < len(places) and places[at] <= begin:
            at += 1
        needed.append(at < len(places) and places[at] < end)
    return needed


def around(inlines: Sequence[Inline], whole: Sequence[Span]) -> Sequence[Inline]:
    """Return inlines that begin and end outside of spans that no tag may cut.

    An element that begins or ends within such a span is around all of it. Where two elements beside each other would
    be, the first one is, and the other one is empty if nothing is left for it.

    inlines: a parent before what is in it, in the order of the source; whole: in order and without overlap
    """
    if not whole:
        return inlines
    begins = [begin for begin, _ in whole]
    found: list[Inline] = []
    reached: dict[int, int] = {}  # by parent: where the last one in it ends
    for begin, end, parent in inlines:
        cut_first, cut_last = _cut_at(begin, begins, whole), _cut_at(end, begins, whole)
        first = begin if cut_first is None else cut_first[0]
        last = first if begin == end else end if cut_last is None else cut_last[1]
        low, high = reached.get(parent, first), max(reached.get(parent, last), last)
        if parent >= 0:
            low, high = max(low, found[parent].begin), found[parent].end
        first = min(max(first, low), high)
        found.append(Inline(first, min(max(last, first), high), parent))
        reached[parent] = found[-1].end
    return found


def _cut_at(place: int, begins: Sequence[int], whole: Sequence[Span]) -> Span | None:
    """Return the span that a tag at a place would cut; begins: of the spans."""
    number = bisect_left(begins, place) - 1
    return whole[number] if number >= 0 and place < whole[number][1] else None


def _moved(span: Span, by: int) -> Span:
    return span[0] + by, span[1] + by
