"""Which string of a sentence that is kept is which of its translation; tags are placed by it. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence

from lingon.segments.boundaries import Span
from lingon.segments.placing.inlines import Kept
from lingon.segments.protection.requests import Restored
from lingon.segments.protection.sentence import kept_spans
from lingon.segments.protection.spans import DIVIDING, Kind, ProtectedSpan

_READ = frozenset(
    {
        Kind.URL,
        Kind.EMAIL,
        Kind.PATH,
        Kind.NUMBER,
        Kind.FIGURE,
        Kind.EMOJI,
        Kind.LINE,
        Kind.CODE,
        Kind.KEEP,
        Kind.UNKNOWN,
    }
)
"""What a reader sees as it is, so that a tag may be inside, as in 10<sup>1000</sup>; in all others no tag may be."""


def kept_pairs(text: str, spans: Sequence[ProtectedSpan], restored: Restored) -> list[Kept]:
    """Return what a sentence and its translation keep, in the order of the sentence; see `Aligned.kept`.

    Equal strings are in the same order. A string that is not found in the translation has an empty target, and a string
    of the translation that is none of the sentence an empty source, at its begin.

    spans: what is protected in the sentence, in order and without overlap
    """
    sources = kept_spans(text, spans)
    whole = [span for span in spans if span.kind not in _READ]
    dividing = [span for span in whole if span.kind in DIVIDING]
    copies: dict[str, deque[Span]] = {}
    for copy in restored.kept:
        copies.setdefault(restored.text[slice(*copy)], deque()).append(copy)
    found = dict[Span, Span]()
    for source in sources:
        if same := copies.get(text[slice(*source)]):
            found[source] = same.popleft()
    rest = sorted(copy for same in copies.values() for copy in same if copy[0] < copy[1])
    left = [source for source in sources if source not in found]
    if len(rest) == len(left):  # such as numbers whose separators are those of the target
        found.update(zip(left, rest, strict=True))
        rest = []
    pairs = [Kept((0, 0), copy) for copy in rest]
    for source in sources:
        divides = any(True for _ in _inside(dividing, source))
        pairs.append(Kept(source, found.get(source, (0, 0)), [*_inside(whole, source)], divides))
    return pairs


def _inside(spans: Sequence[ProtectedSpan], around: Span) -> Iterator[Span]:
    """Yield the spans within another one; spans: in order."""
    first = bisect_left(spans, around[0], key=lambda span: span.begin)
    for span in spans[first : bisect_right(spans, around[1], key=lambda span: span.end)]:
        yield span.begin, span.end
