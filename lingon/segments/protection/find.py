"""Finds what a translation keeps as it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

from lingon.segments.boundaries import Span, next_visible, trimmed_end
from lingon.segments.protection.icu import skeletons
from lingon.segments.protection.patterns import matches
from lingon.segments.protection.spans import Kind, ProtectedSpan, merge, replaced
from lingon.segments.protection.strings import NO_STRINGS, KeptStrings


class TooManySpans(Exception):
    """A text has more strings to protect than the caller takes."""


def find_protected(
    text: str, keep: KeptStrings = NO_STRINGS, *, patterns: bool = True, most: int | None = None
) -> list[ProtectedSpan]:
    """Return the protected spans of a text in order, without overlap.

    keep: further strings to protect, with case
    patterns: whether anything but `keep` is protected
    most: matches, of which several may make one span; raises TooManySpans if there are more
    Takes time linear in the text and in the strings of `keep`.
    """
    messages = merge(skeletons(text)) if patterns else []
    rest = replaced(text, messages, lambda found: " " * len(found))  # what they hold is not found again
    kept = (ProtectedSpan(*span, Kind.KEEP) for span in keep.find(rest)) if keep else ()
    every = chain(messages, kept, matches(rest) if patterns else ())
    found = list(every if most is None else islice(every, most + 1))
    if most is not None and len(found) > most:
        raise TooManySpans
    return [span for span in (_visible(text, each) for each in merge(found)) if span.begin < span.end]


def _visible(text: str, span: ProtectedSpan) -> ProtectedSpan:
    """Return a span without the blanks and the invisible characters around it, which belong to no segment."""
    begin = next_visible(text, span.begin, span.end)
    return span._replace(begin=begin, end=trimmed_end(text, begin, span.end))


def uncut(segments: Iterable[Span], spans: Sequence[ProtectedSpan]) -> Iterator[tuple[Span, tuple[ProtectedSpan, ...]]]:
    """Yield segments, some of them empty, with the spans within each, counted from its begin.

    Segments that a span crosses the border of are one, and a segment grows over the span that it begins in.
    spans: in order and without overlap
    """
    place, begin, last, own = 0, -1, -1, list[ProtectedSpan]()
    for first, last in segments:
        begin = first if begin < 0 else begin
        while place < len(spans) and spans[place].begin < last:
            own.append(spans[place])
            if own[-1].begin < begin < own[-1].end:
                begin = own[-1].begin
            place += 1
        if own and own[-1].end > last:
            continue
        yield (begin, last), _moved(own, begin)
        begin, own = -1, []
    if begin >= 0:
        yield (begin, last), _moved([span for span in own if span.end <= last], begin)


def _moved(spans: Sequence[ProtectedSpan], begin: int) -> tuple[ProtectedSpan, ...]:
    return tuple(
        ProtectedSpan(span.begin - begin, span.end - begin, span.kind) for span in spans if span.begin >= begin
    )
