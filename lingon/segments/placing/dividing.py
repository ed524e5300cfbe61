"""The parts of a segment that kept strings divide, such as the arms of a message, each of which is aligned alone."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

from lingon.segments.placing.inlines import Aligned, Kept, Span, Weights

_SEPARATED = re.compile(r"\S+")


def divided(source: str, target: str, segment: Aligned) -> Iterator[Aligned]:
    """Yield a segment in parts: what divides it, and what is between; as it is if nothing does.

    It is not divided if what divides it comes in another order in its translation.
    """
    dividers = [each for each in segment.kept if each.divides and _is_pair(each)]
    in_order = all(first.target[1] <= second.target[0] for first, second in pairwise(dividers))
    if not dividers or not in_order:
        yield segment
        return
    cutter = _Cutter(source, target, segment)
    at = segment.source[0], segment.target[0]
    for each in dividers:
        yield cutter.part((at[0], each.source[0]), (at[1], each.target[0]))
        yield cutter.part(each.source, each.target)
        at = each.source[1], each.target[1]
    yield cutter.part((at[0], segment.source[1]), (at[1], segment.target[1]))


def _is_pair(kept: Kept) -> bool:
    return kept.source[0] < kept.source[1] and kept.target[0] < kept.target[1]


class _Cutter:
    """Cuts parts out of a segment."""

    def __init__(self, source: str, target: str, segment: Aligned) -> None:
        self._segment = segment
        self._sources = [word.span() for word in _SEPARATED.finditer(source, *segment.source)]
        self._targets = [word.span() for word in _SEPARATED.finditer(target, *segment.target)]
        self._known = [each for each in segment.kept if each.source[0] < each.source[1]]
        self._unknown = sorted((each for each in segment.kept if each.source[0] == each.source[1]), key=_target)

    def part(self, source: Span, target: Span) -> Aligned:
        """Return a part of the segment; a word of which only a part is in it has the weights of the whole."""
        first = bisect_left(self._known, source[0], key=lambda each: each.source[0])
        last = bisect_left(self._known, source[1], key=lambda each: each.source[0])
        inside = (each for each in self._known[first:last] if _is_within(each.target, target))
        first = bisect_left(self._unknown, target[0], key=lambda each: each.target[0])
        last = bisect_left(self._unknown, target[1], key=lambda each: each.target[0])
        weights: Weights | None = None
        if self._segment.weights is not None:
            columns, rows = _within(self._sources, source), _within(self._targets, target)
            weights = [row[columns.start : columns.stop] for row in self._segment.weights[rows.start : rows.stop]]
        return Aligned(source, target, weights, [*self._unknown[first:last], *inside])


def _target(kept: Kept) -> Span:
    return kept.target


def _is_within(span: Span, around: Span) -> bool:
    return around[0] <= span[0] and span[1] <= around[1]


def _within(words: Sequence[Span], span: Span) -> range:
    """Return the numbers of the words that have a part in a span."""
    if span[0] >= span[1]:
        return range(0)
    first = bisect_right(words, span[0], key=lambda word: word[1])
    return range(first, max(bisect_left(words, span[1], key=lambda word: word[0]), first))
