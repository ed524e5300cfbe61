"""Finds what a translation keeps as it is."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from lingon.segments.boundaries import Span, next_visible, trimmed_end
from lingon.segments.protection.amounts import FIGURE
from lingon.segments.protection.marks import bbcodes, codes, links, pairs
from lingon.segments.protection.messages import skeletons
from lingon.segments.protection.patterns import matches
from lingon.segments.protection.spans import Kind, ProtectedSpan, merge, replaced
from lingon.segments.protection.strings import NO_STRINGS, KeptStrings

Item = TypeVar("Item")


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
    messages = merge(_bounded(skeletons(text), most)) if patterns else []
    rest = _blanked(text, messages)  # what they hold is not found again
    kept = _bounded((ProtectedSpan(*span, Kind.KEEP) for span in keep.find(rest)), most) if keep else []
    counted = [span for span in messages if span.kind is Kind.PLACEHOLDER]
    found = _bounded([*messages, *kept, *(_with_marks(rest, kept, counted, most) if patterns else ())], most)
    return [span for span in (_visible(text, each) for each in merge(found)) if span.begin < span.end]


def _with_marks(
    text: str, kept: Sequence[ProtectedSpan], counted: Sequence[ProtectedSpan], most: int | None
) -> list[ProtectedSpan]:
    """Return all that the tables have, and the pairs of marks around words of the text.

    kept: what a caller wants kept, which cuts no mark
    counted: signs of messages that stand for numbers, which a mark may be around
    most: see `find_protected`; it is looked at in each step, so that a text with too many costs little
    Code is found first, so that no mark is in it, then links, then all else but in these, and last what pairs of marks
    are left.
    """
    found = _apart(_bounded(links(text, "`"), most), kept) if "`" in text else []
    if "`" in text or "|" in text or "]_" in text:
        found += _bounded(codes(_blanked(text, found)), most)
    found += _apart(_bounded(bbcodes(_filled(text, found, "x")), most), kept)
    if "](" in text or "][" in text:
        for _ in range(2):  # a picture may be in a link
            found += _apart(_bounded(links(_filled(text, found, "·"), "["), most), kept)
    others = _bounded(matches(_blanked(text, found)), most)
    inside = [*counted, *found, *(span for span in others if span.kind not in (Kind.TAG, Kind.SIGN))]
    marked = _apart(_bounded(pairs(_filled(text, inside, "x")), most), kept)
    places = sorted(marked)
    return [*found, *marked, *(span for span in others if not _is_within(span, places))]


def _bounded(spans: Iterable[Item], most: int | None) -> list[Item]:
    """Return what there is; raises TooManySpans for more than `most`."""
    if most is None:
        return [*spans]
    found = list(islice(spans, most + 1))
    if len(found) > most:
        raise TooManySpans
    return found


def _apart(marks: Iterable[tuple[ProtectedSpan, ProtectedSpan]], kept: Sequence[ProtectedSpan]) -> list[ProtectedSpan]:
    """Return the marks of pairs of which none is cut by what a caller wants kept."""
    places = merge(kept)
    return [mark for pair in marks if not any(_is_cut(mark, places) for mark in pair) for mark in pair]


def _is_cut(mark: ProtectedSpan, places: Sequence[ProtectedSpan]) -> bool:
    """Whether a span overlaps a mark and is not within it; places: in order and without overlap."""
    first = bisect_right(places, mark.begin, key=_end)
    last = bisect_left(places, mark.end, key=_begin)
    if first >= last:
        return False
    return places[first].begin < mark.begin or places[last - 1].end > mark.end


def _is_within(span: ProtectedSpan, places: Sequence[ProtectedSpan]) -> bool:
    """Whether one of other spans, in order and without overlap, has a span in it."""
    number = bisect_right(places, span.begin, key=_begin) - 1
    return number >= 0 and span.end <= places[number].end


def _begin(span: ProtectedSpan) -> int:
    return span.begin


def _end(span: ProtectedSpan) -> int:
    return span.end


def _blanked(text: str, spans: Iterable[ProtectedSpan]) -> str:
    """Return a text with blanks in place of spans."""
    return replaced(text, merge(spans), lambda found: " " * len(found))


def _filled(text: str, spans: Iterable[ProtectedSpan], by: str) -> str:
    """Return a text with a character in place of each of those of spans."""
    return replaced(text, merge(spans), lambda found: by * len(found))


def with_figures(text: str, spans: Sequence[ProtectedSpan]) -> list[ProtectedSpan]:
    """Return the spans of a text and those of the small numbers beside them; spans: in order and without overlap."""
    found, last = [*spans], 0
    free = [*spans, ProtectedSpan(len(text), len(text), Kind.KEEP)]
    for begin, end, _ in free:
        if begin > last:
            found += [ProtectedSpan(*each.span(), Kind.FIGURE) for each in FIGURE.finditer(text, last, begin)]
        last = max(last, end)
    return sorted(found)


def _visible(text: str, span: ProtectedSpan) -> ProtectedSpan:
    """Return a span without the blanks and the invisible characters around it, which belong to no segment."""
    if span.kind is Kind.CLOSING:
        return span  # the blank before an address of reStructuredText belongs to it
    begin = next_visible(text, span.begin, span.end)
    return span._replace(begin=begin, end=trimmed_end(text, begin, span.end))


def uncut(segments: Iterable[Span], spans: Sequence[ProtectedSpan]) -> Iterator[tuple[Span, tuple[ProtectedSpan, ...]]]:
    """Yield segments, some of them empty, with the spans within each, counted from its begin.

    Segments that a span crosses the border of are one, and a segment grows over the span that it begins in; an empty
    one is what it is.
    spans: in order and without overlap
    """
    place, begin, last, own = 0, -1, -1, list[ProtectedSpan]()
    for first, last in segments:
        if first == last and begin < 0:
            yield (first, last), ()
            continue
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
