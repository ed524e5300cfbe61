"""A text as a model reads it, with the places of its characters in the text as it was sent."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lingon.segments.boundaries import Span
from lingon.segments.protection.spans import ProtectedSpan


class Change(NamedTuple):
    """A string that another one stands for.

    begin, end: of what the model reads
    sent_begin, sent_end: of what was sent
    """

    begin: int
    end: int
    sent_begin: int
    sent_end: int

    @property
    def is_one_by_one(self) -> bool:
        """Whether each character stands for one."""
        return self.end - self.begin == self.sent_end - self.sent_begin

    def sent_from(self, begin: int) -> int:
        """Return where in what was sent a span begins that begins here or before the next change."""
        if begin < self.end and not self.is_one_by_one:
            return self.sent_begin
        return begin + self.sent_end - self.end

    def sent_to(self, end: int) -> int:
        """Return where in what was sent a span ends that ends here or before the next change."""
        if end < self.end and not self.is_one_by_one:
            return self.sent_end
        return end + self.sent_end - self.end


@dataclass(frozen=True, slots=True)
class Reading:
    """A text with twins in the places of characters.

    spans: what is kept of it, in order and without overlap; the strings are those that were sent
    changes: in order
    """

    text: str
    spans: tuple[ProtectedSpan, ...] = ()
    changes: tuple[Change, ...] = ()

    @classmethod
    def of(cls, text: str, twins: Iterable[tuple[int, int, str]], spans: Sequence[ProtectedSpan] = ()) -> Reading:
        """Return a text with twins, in order: begin, end and what is read there; none is within a span.

        spans: what is kept of the text, in order
        """
        parts, changes, at, length = list[str](), list[Change](), 0, 0
        for begin, end, twin in twins:
            parts += [text[at:begin], twin]
            length += begin - at
            changes.append(Change(length, length + len(twin), begin, end))
            at, length = end, length + len(twin)
        moved, place, shift = list[ProtectedSpan](), 0, 0
        for span in spans:
            while place < len(changes) and changes[place].sent_end <= span.begin:
                shift = changes[place].end - changes[place].sent_end
                place += 1
            moved.append(span._replace(begin=span.begin + shift, end=span.end + shift))
        return cls("".join([*parts, text[at:]]), tuple(moved), tuple(changes))

    def sent(self, begin: int, end: int) -> Span:
        """Return where a span of the text is in what was sent; a part of a twin stands for the whole character."""
        place = bisect_right(self.changes, begin, key=lambda change: change.begin) - 1
        first = self.changes[place].sent_from(begin) if place >= 0 else begin
        place = bisect_left(self.changes, end, key=lambda change: change.begin) - 1
        last = self.changes[place].sent_to(end) if place >= 0 else end
        return first, max(first, last)

    def part(self, begin: int, end: int) -> Reading:
        """Return a part of the text, without spans, as if only this was sent."""
        first = self.sent(begin, end)[0]
        inside = (change for change in self.changes if begin <= change.begin and change.end <= end)
        changes = (Change(each[0] - begin, each[1] - begin, each[2] - first, each[3] - first) for each in inside)
        return Reading(self.text[begin:end], (), tuple(changes))
