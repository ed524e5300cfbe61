"""Translates a sentence with pairs of marks, as of emphasis: without them, and puts each back where it belongs.

The words that a pair is around are found again in the translation by the attention of the model, as for the tags of
HTML. Written quotation marks are read as plain ones, which the model translates. If a pair would be empty, if there is
no attention, or in a message with arms, what is before, between and after the marks is translated apart.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from lingon.segments.boundaries import Span
from lingon.segments.placing.inlines import Aligned, Inline, Kept
from lingon.segments.placing.place import place
from lingon.segments.protection.ladder import ladder
from lingon.segments.protection.requests import Align, Answer, Link, Request, Restored, Rung, Steps, links
from lingon.segments.protection.separators import Custom
from lingon.segments.protection.spans import DIVIDING, Kind, ProtectedSpan, replaced, without
from lingon.segments.protection.stand_ins import counts_hold
from lingon.text import normalise

Placing: TypeAlias = Generator[Request, Answer, Restored | None]
_QUOTES = {'\\"', "&quot;", "&#34;"}
_QUOTE = re.compile('«[ \u00a0\u202f]?|[ \u00a0\u202f]?»|["„“”‟]')
MOST_WEIGHTS = 200_000  # words of the sentence times words of its translation; placing by them takes most of a second


class _Bare(NamedTuple):
    """A sentence without its pairs of marks.

    spans: what else is kept of it
    inlines: the pairs, each after the one that it is in
    marks: of each the two strings
    """

    text: str
    spans: list[ProtectedSpan]
    inlines: list[Inline]
    marks: list[tuple[str, str]]


def translate_marked(
    text: str, spans: Sequence[ProtectedSpan], words: Sequence[str], custom: Custom | None = None
) -> Steps:
    """Translate a sentence; see `ladder`."""
    pairs = _pairs(spans)
    if not pairs:
        return (yield from ladder(text, spans, words, custom))
    strings = [text[begin:end] for begin, end, _ in spans]
    if not any(span.kind in DIVIDING for span in spans):
        for translate in (_quoted, _placed):
            restored = yield from translate(text, spans, pairs, words, custom)
            if restored is not None and counts_hold(text, restored.text, strings):
                return restored
    paired = {number for pair in pairs for number in pair}
    apart = [span._replace(kind=Kind.BORDER) if number in paired else span for number, span in enumerate(spans)]
    restored = yield from ladder(text, apart, words, custom)
    return replace(restored, rung=Rung.SPLIT)


def _quoted(
    text: str,
    spans: Sequence[ProtectedSpan],
    pairs: Sequence[tuple[int, int]],
    words: Sequence[str],
    custom: Custom | None,
) -> Placing:
    """Return the translation with written quotation marks in place of those that the model writes.

    None if there are other pairs, other quotation marks, or not as many in the translation.
    """
    marks = [spans[number] for pair in pairs for number in pair]
    written = {text[begin:end] for begin, end, _ in marks}
    if len(written) != 1 or not written <= _QUOTES or _QUOTE.search(without(text, sorted(marks))):
        return None
    (mark,) = written
    bare = _bare(text, spans, pairs, by='"')
    restored = yield from ladder(bare.text, bare.spans, words, custom)
    found = [each.span() for each in _QUOTE.finditer(restored.text)]
    kept = sorted([*restored.kept, (len(restored.text), len(restored.text))])
    if len(found) != len(marks) or any(begin < last and first < end for begin, end in found for first, last in kept):
        return None
    places = [(begin, end, mark) for begin, end in found]
    return _inserted(restored, places)


def _inserted(restored: Restored, places: Sequence[tuple[int, int, str]]) -> Restored:
    """Return a translation with other strings in place of parts of it, which are in order and in no kept string."""
    text, at, kept, ends, moved = "", 0, list[Span](), list[int](), list[int]()
    for begin, end, string in places:
        text += restored.text[at:begin] + string
        kept.append((len(text) - len(string), len(text)))
        at = end
        ends.append(end)
        moved.append(len(text) - end)
    for begin, end in restored.kept:
        number = bisect_right(ends, begin)
        by = moved[number - 1] if number else 0
        kept.append((begin + by, end + by))
    return replace(restored, text=text + restored.text[at:], kept=tuple(sorted(kept)))


def _pairs(spans: Sequence[ProtectedSpan]) -> list[tuple[int, int]]:
    """Return the numbers of the marks of each pair, in the order of the first ones; a mark may have no other."""
    open_, found = list[int](), list[tuple[int, int]]()
    for number, span in enumerate(spans):
        if span.kind is Kind.OPENING:
            open_.append(number)
        elif span.kind is Kind.CLOSING and open_:
            found.append((open_.pop(), number))
    return sorted(found)


def _bare(text: str, spans: Sequence[ProtectedSpan], pairs: Sequence[tuple[int, int]], by: str = "") -> _Bare:
    """Return a sentence with something else in place of its marks."""
    paired = {number for pair in pairs for number in pair}
    cuts = [span for number, span in enumerate(spans) if number in paired]
    moved, shift = list[int](), 0  # moved: where each span begins then
    for number, span in enumerate(spans):
        moved.append(span.begin + shift)
        shift += len(by) - (span.end - span.begin) if number in paired else 0
    rest = [
        ProtectedSpan(moved[number], moved[number] + span.end - span.begin, span.kind)
        for number, span in enumerate(spans)
        if number not in paired
    ]
    inlines, open_ = list[Inline](), list[tuple[int, int]]()  # open_: the last number of a pair, and its place
    for first, last in pairs:
        while open_ and open_[-1][0] < first:
            open_.pop()
        inlines.append(Inline(moved[first], moved[last], open_[-1][1] if open_ else -1))
        open_.append((last, len(inlines) - 1))
    marks = [(text[slice(*spans[first][:2])], text[slice(*spans[last][:2])]) for first, last in pairs]
    return _Bare(replaced(text, cuts, lambda _: by), rest, inlines, marks)


def _placed(
    text: str,
    spans: Sequence[ProtectedSpan],
    pairs: Sequence[tuple[int, int]],
    words: Sequence[str],
    custom: Custom | None,
) -> Placing:
    """Return the translation with the marks around the words that are aligned to theirs; None if one has no place."""
    bare = _bare(text, spans, pairs)
    restored = yield from ladder(bare.text, bare.spans, words, custom)
    source = _Masked(bare.text, [span[:2] for span in bare.spans], words)
    target = _Masked(restored.text, restored.kept, words)
    weights = yield from _weights(source.text, target.text)
    whole = (0, len(bare.text.rstrip()))
    if weights is None and any((begin, end) != whole for begin, end, _ in bare.inlines):
        return None
    inlines = [Inline(source.place(begin), source.place(end), parent) for begin, end, parent in bare.inlines]
    segment = Aligned((0, len(source.text)), (0, len(target.text)), weights, source.same(target))
    begun, places = dict[int, int](), list[tuple[int, int, str]]()
    for insertion in place(source.text, target.text, [segment], inlines):
        to = target.own(insertion.place)
        if insertion.closing and begun[insertion.inline] == to:
            return None
        begun[insertion.inline] = to
        places.append((to, to, bare.marks[insertion.inline][insertion.closing]))
    return _inserted(restored, places)


class _Masked:
    """A text with a word that the model knows in place of each kept string that has no blank."""

    def __init__(self, text: str, spans: Sequence[Span], words: Sequence[str]) -> None:
        self._begins, self._masks, length, at = [0], [0], 0, 0
        self._kept = list[tuple[str, Span]]()  # each string, and where it is now
        parts = list[str]()
        for begin, end in spans:
            string = text[begin:end]
            mask = words[0] if words and not any(map(str.isspace, string)) else string
            parts += [text[at:begin], mask]
            length += begin - at
            self._kept.append((string, (length, length + len(mask))))
            length, at = length + len(mask), end
            self._begins += [begin, end]
            self._masks += [length - len(mask), length]
        self.text = "".join([*parts, text[at:]])

    def place(self, at: int) -> int:
        """Return where a place of the text, which is in no kept string, is now."""
        number = bisect_right(self._begins, at) - 1
        return self._masks[number] + at - self._begins[number]

    def own(self, at: int) -> int:
        """Return where a place is in the text as it was; one within a mask is before the string."""
        number = bisect_right(self._masks, at) - 1
        if number % 2 and at > self._masks[number]:
            at = self._masks[number]
        return self._begins[number] + at - self._masks[number]

    def same(self, other: _Masked) -> list[Kept]:
        """Return the strings that another text has as well, equal ones in the order of both; no mark comes into one."""
        waiting: dict[str, list[Span]] = {}
        for string, span in reversed(other._kept):
            waiting.setdefault(string, []).append(span)
        return [Kept(span, waiting[string].pop(), (span,)) for string, span in self._kept if waiting.get(string)]


def _weights(source: str, target: str) -> Generator[Request, Answer, list[list[float]] | None]:
    """Return (target words, source words): how much of a source word is in a target word; None if it is not known."""
    read = normalise(source), normalise(target)
    sources, targets = (_words(text) for text in read)
    count = len(source.split()), len(target.split())
    if (len(sources), len(targets)) != count or not 0 < count[0] * count[1] <= MOST_WEIGHTS:
        return None
    found: Sequence[Link] = yield from links(Align(*read))
    if not found:
        return None
    sums = [[0.0] * len(sources) for _ in targets]
    totals = [0.0] * len(sources)
    for (_, source_end), (_, target_end) in found:
        column = min(bisect_right(sources, source_end - 1), len(sources) - 1)
        sums[min(bisect_right(targets, target_end - 1), len(targets) - 1)][column] += 1
        totals[column] += 1
    return [[value / total if total else 0.0 for value, total in zip(row, totals, strict=True)] for row in sums]


def _words(text: str) -> list[int]:
    """Return the ends of the words of a normalised text."""
    ends, at = list[int](), 0
    for word in text.split():
        at = text.index(word, at) + len(word)
        ends.append(at)
    return ends
