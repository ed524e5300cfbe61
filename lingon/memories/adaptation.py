"""The numbers and placeholders of a similar segment, replaced by those of the text that it was found for. Pure.

Two texts that differ in a number are similar, and the translation of one has a wrong number for the other. What a
match says therefore has the numbers, dates, placeholders, addresses and marks of the text, or there is no match. A
number that is written as a word is a word.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Self

from lingon.memories.keys import EXACT
from lingon.memories.memory import Match, Segments
from lingon.memories.segment import Segment
from lingon.segments.boundaries import Span
from lingon.segments.kept_forms import Kind, replaced
from lingon.segments.protection import find_protected

_SPARE = 8  # matches that are found beyond those that are wanted, because some may be dropped
_DIGITS = re.compile(r"\d++(?:[.,:/'\u2019\-]\d++)*+")  # of any script
_OTHER_NUMBERS = "No", "Nl"  # categories of Unicode: superscripts, fractions, numbers in circles, Roman numerals
_THOUSANDS = 3  # figures of a group
_SIGNS = "+-−–~± "
_WORD = re.compile(r"\w+")
_STRINGS = frozenset(
    [Kind.URL, Kind.EMAIL, Kind.PATH, Kind.PLACEHOLDER, Kind.TAG, Kind.SKELETON, Kind.OPENING, Kind.CLOSING, Kind.CODE]
)


def adapted_matches(
    memory: Segments, text: str, before: str = "", after: str = "", *, min_score: int = 70, most: int = 1
) -> list[Match]:
    """Return at most `most` matches for a text, the best first, each with the numbers and placeholders of the text.

    The parameters are those of `Memory.find`. A match that cannot be adapted is left out.
    """
    found = memory.find(text, before, after, min_score=min_score, most=most)
    matches = _fitting(found, text)
    if len(matches) < len(found) == most and min_score < EXACT:  # which is rare, and a second search for fuzzy ones
        matches = _fitting(memory.find(text, before, after, min_score=min_score, most=most + _SPARE), text)[:most]
    return matches


def _fitting(found: Sequence[Match], text: str) -> list[Match]:
    """Return the matches that can be adapted to a text, adapted."""
    if all(match.segment.source == text for match in found):
        return list(found)
    matches, wanted = list[Match](), _Filled.of(text)
    for match in found:
        segment = _adapted(match.segment, wanted)
        if segment is not None:
            matches.append(match if segment is match.segment else match._replace(adapted=segment))
    return matches


def adapted(segment: Segment, text: str) -> Segment | None:
    """Return a segment with the numbers, placeholders, addresses and marks of a text, or None if that is not certain.

    It is certain if both sources have as many of each kind in the same order, each between the same words if there are
    several, and if the target has exactly those of its source: as they are, or as numbers and dates with other
    separators or in another order.
    """
    return _adapted(segment, _Filled.of(text))


def _adapted(segment: Segment, wanted: _Filled) -> Segment | None:
    if segment.source == wanted.text:
        return segment
    stored = _Filled.of(segment.source)
    if stored.other_numbers != wanted.other_numbers:
        return None
    if stored.values == wanted.values:
        return segment
    if not stored.is_alike(wanted):
        return None
    changes = dict[str, str]()
    for old, new in zip(stored.values, wanted.values, strict=True):
        if changes.setdefault(old, new) != new:
            return None
    written = _written(stored, _Filled.of(segment.target), changes)
    if written is None:
        return None
    return replace(segment, source=stored.with_values(wanted.values), target=written)


class _Filled(NamedTuple):
    """A text, and where it has values: numbers and strings that are kept. spans: in order, without overlap."""

    text: str
    spans: Sequence[Span]
    numbers: Sequence[bool]

    @classmethod
    def of(cls, text: str) -> Self:
        """Return a text with its values. A number is with its sign, currency and unit, or a run of digits."""
        found = [span for span in find_protected(text) if span.kind is Kind.NUMBER or span.kind in _STRINGS]
        rest = replaced(text, found, lambda value: " " * len(value))
        values = [((begin, end), kind is Kind.NUMBER) for begin, end, kind in found]
        values += [(digits.span(), True) for digits in _DIGITS.finditer(rest)]
        values.sort()
        return cls(text, [span for span, _ in values], [is_number for _, is_number in values])

    @property
    def values(self) -> list[str]:
        """The values, in order."""
        return [self.text[begin:end] for begin, end in self.spans]

    @property
    def other_numbers(self) -> list[str]:
        """The characters that are numbers, but no digits, and are in no value, in order."""
        if self.text.isascii():
            return []
        rest = replaced(self.text, self.spans, lambda _: "")
        return [each for each in rest if unicodedata.category(each) in _OTHER_NUMBERS]

    def is_alike(self, other: _Filled) -> bool:
        """Return whether both have as many values of each kind in the same order, several between the same words."""
        if self.numbers != other.numbers:
            return False
        return len(self.spans) == 1 or self._neighbours() == other._neighbours()

    def _neighbours(self) -> list[tuple[str, str]]:
        """Return the words before and after each value, empty where another value or an end of the text is."""
        ends = [0, *(place for span in self.spans for place in span), len(self.text)]
        gaps = [
            _WORD.findall(self.text[begin:end].casefold()) for begin, end in zip(ends[::2], ends[1::2], strict=True)
        ]
        firsts, lasts = [(gap or [""])[0] for gap in gaps], [(gap or [""])[-1] for gap in gaps]
        return list(zip(lasts[:-1], firsts[1:], strict=True))

    def with_values(self, values: Sequence[str]) -> str:
        """Return the text with other values."""
        following = iter(values)
        return replaced(self.text, self.spans, lambda _: next(following))


def _written(stored: _Filled, target: _Filled, changes: Mapping[str, str]) -> str | None:
    """Return a target with the new values of its source, or None if not every value of both has one place in the other.

    changes: the new value of each value of the source
    """
    numbers = dict(zip(stored.values, stored.numbers, strict=True))
    values, left = list[str](), Counter(stored.values)
    for value, is_number in zip(target.values, target.numbers, strict=True):
        sources = [old for old in changes if old == value or (is_number and numbers[old] and _is_same(old, value))]
        if len(sources) != 1:
            return None
        (old,) = sources
        new = value if old == changes[old] else _rewritten(old, changes[old], value, numbers[old])
        if new is None:
            return None
        left[old] -= 1
        values.append(new)
    return target.with_values(values) if not any(left.values()) else None


def _rewritten(old: str, new: str, written: str, is_number: bool) -> str | None:
    """Return how a target writes a new value, or None if that is not known.

    old: the value that the target writes as `written`
    """
    if not is_number:
        return new
    former, later, shown = _Number.of(old), _Number.of(new), _Number.of(written)
    if written == old:  # the target may have other separators than the source, and a unit as a word
        has_unit = any(after and not before for before, after in zip(former.units, later.units, strict=True))
        return new if set(later.separators) <= set(former.separators) and not has_unit else None
    if later.around != former.around or later.separators != former.separators:
        return None
    groups = zip(former.figures[1:], later.figures[1:], strict=True)
    if any(len(each) == _THOUSANDS != len(own) for each, own in groups):
        return None  # what separates thousands in the one is a decimal point in the other
    figures = dict(zip(former.figures, later.figures, strict=True))
    following = iter([figures[each] for each in shown.figures])
    return re.sub(r"\d+", lambda _: next(following), written)


def _is_same(number: str, other: str) -> bool:
    """Return whether two numbers or dates have the same groups of figures, each another one."""
    figures = _Number.of(number).figures
    return 0 < len(set(figures)) == len(figures) and sorted(figures) == sorted(_Number.of(other).figures)


class _Number(NamedTuple):
    """A number in parts. figures: its groups; separators: between them; around: what is before and after."""

    figures: Sequence[str]
    separators: Sequence[str]
    around: tuple[str, str]

    @property
    def units(self) -> tuple[str, str]:
        """The currencies and units before and after, without signs."""
        before, after = self.around
        return before.strip(_SIGNS), after.strip()

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the parts of a number, such as 12, $1,299.99 or 2026-03-12."""
        others = re.split(r"\d+", text)
        return cls(re.findall(r"\d+", text), others[1:-1], (others[0], others[-1]))
