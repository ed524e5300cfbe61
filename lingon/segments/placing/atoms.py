"""The parts of words that are aligned: what is between punctuation, the punctuation, and what tags cut these into."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from lingon.segments.placing.inlines import Span

_WORD = re.compile(r"\S+")
_ATOM = re.compile(r"\ufffc|\w(?:[^\s\ufffc]*\w)?|[^\w\s\ufffc]+")
_LETTER = re.compile(r"\w")
_MARK = re.compile(r"[^\w\s\ufffc]+")


class Word(NamedTuple):
    """A word of a segment; spans in the text.

    before, cores, after: the punctuation at its begin, what has letters or figures, and the rest
    """

    before: list[Span]
    cores: list[Span]
    after: list[Span]

    @property
    def atoms(self) -> list[Span]:
        """All parts of the word."""
        return [*self.before, *self.cores, *self.after]


def words_of(text: str, segment: Span) -> list[Word]:
    """Return the words of a segment, which are those of `str.split`."""
    return [_word(text, found.span()) for found in _WORD.finditer(text, *segment)]


def cut(atom: Span, places: Sequence[int]) -> list[Span]:
    """Return the parts of an atom between places, which are in order."""
    begin, end = atom
    first, last = bisect_right(places, begin), bisect_left(places, end)
    return list(pairwise([begin, *places[first:last], end])) if first < last else [atom]


def is_within(places: Sequence[int], segment: Span) -> bool:
    """Whether one of the places is within a segment."""
    return bisect_right(places, segment[0]) < bisect_left(places, segment[1])


def is_mark(text: str, atom: Span) -> bool:
    """Whether an atom is punctuation."""
    return _MARK.fullmatch(text, *atom) is not None


def _word(text: str, span: Span) -> Word:
    word = Word([], [], [])
    for found in _ATOM.finditer(text, *span):
        if _LETTER.match(text, found.start()):
            word.cores.extend((*word.after, found.span()))
            word.after.clear()
        else:
            (word.after if word.cores else word.before).append(found.span())
    return word
