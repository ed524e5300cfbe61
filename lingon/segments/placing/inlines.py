"""What is placed, by what, and the result."""

from __future__ import annotations

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


class Aligned(NamedTuple):
    """A segment of the source and its translation.

    weights: (target words, source words), as `str.split` separates them: how much of a source word is in a target word;
        None if it is not known, then words are aligned in order
    """

    source: Span
    target: Span
    weights: Weights | None = None


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
