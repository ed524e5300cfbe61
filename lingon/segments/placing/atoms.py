"""The parts of words that are aligned: what is kept, what is between punctuation, the punctuation, and parts of these.

Tags cut a part that is not punctuation where they are within it.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from enum import Enum, auto
from itertools import pairwise
from typing import NamedTuple

from lingon.segments.placing.inlines import Span

QUOTES = "\"'„“”‚‘’‛‟«»‹›「」『』"
BRACKETS = "()[]{}（）［］｛｝【】〈〉《》"
STOPS = ".,;:!?…¿¡。、，；：！？؟،؛।"

_WORD = re.compile(r"\S+")
_NAMED = rf"{re.escape(QUOTES)}{re.escape(BRACKETS)}"
_ATOM = re.compile(
    rf"\ufffc|\w++(?:(?:[^\w\s\ufffc{_NAMED}]++|['’])\w++)*+"  # an apostrophe between letters is no quotation mark
    rf"|[{_NAMED}]|([{re.escape(STOPS)}])\1*+|[^\w\s\ufffc{_NAMED}{re.escape(STOPS)}]++"
)
_LETTER = re.compile(r"\w")
_MARK = re.compile(r"[^\w\s\ufffc]+")


class Mark(Enum):
    """What an atom of punctuation is; NONE for another atom."""

    NONE = auto()
    QUOTE = auto()
    BRACKET = auto()
    STOP = auto()
    OTHER = auto()


class Word(NamedTuple):
    """A word of a segment; spans in the text.

    before, cores, after: the punctuation at its begin, what has letters or figures or is kept, and the rest
    joined: the words of `str.split` in it; more than one if something is kept that has blanks
    """

    before: list[Span]
    cores: list[Span]
    after: list[Span]
    joined: int = 1

    @property
    def atoms(self) -> list[Span]:
        """All parts of the word."""
        return [*self.before, *self.cores, *self.after]


def words_of(text: str, segment: Span, kept: Sequence[Span] = ()) -> list[Word]:
    """Return the words of a segment, which are those of `str.split`; what is kept is within one word, and one atom.

    kept: not empty, in order, without overlap and within the segment
    """
    if not kept:
        return [_word(text, found.span(), (), 1) for found in _WORD.finditer(text, *segment)]
    return [_word(text, *each) for each in _around_kept(text, segment, kept)]


def cut(atom: Span, places: Sequence[int]) -> list[Span]:
    """Return the parts of an atom between places, which are in order."""
    begin, end = atom
    first, last = bisect_right(places, begin), bisect_left(places, end)
    return list(pairwise([begin, *places[first:last], end])) if first < last else [atom]


def is_within(places: Sequence[int], segment: Span) -> bool:
    """Whether one of the places is within a segment."""
    return bisect_right(places, segment[0]) < bisect_left(places, segment[1])


def mark_of(text: str, atom: Span) -> Mark:
    """Return what an atom that is not kept is."""
    if text[atom[0]].isalnum() or _MARK.fullmatch(text, *atom) is None:
        return Mark.NONE
    first = text[atom[0]]
    if first in QUOTES:
        return Mark.QUOTE
    if first in BRACKETS:
        return Mark.BRACKET
    return Mark.STOP if first in STOPS else Mark.OTHER


def _around_kept(text: str, segment: Span, kept: Sequence[Span]) -> Iterator[tuple[Span, Sequence[Span], int]]:
    """Yield the words of a segment, of which one that is kept may join several, what is kept in each, and their number.

    kept: see `words_of`
    """
    at, begin, last, own, count = 0, -1, -1, list[Span](), 0
    for found in _WORD.finditer(text, *segment):
        first, end = found.span()
        if not own or own[-1][1] <= first:
            if count:
                yield (begin, last), own, count
            begin, own, count = first, [], 0
        while at < len(kept) and kept[at][0] < end:
            own.append(kept[at])
            at += 1
        last, count = end, count + 1
    if count:
        yield (begin, last), own, count


def _word(text: str, span: Span, kept: Sequence[Span], count: int) -> Word:
    word, at = Word([], [], [], count), span[0]
    for own in (*kept, (span[1], span[1])):
        for found in _ATOM.finditer(text, at, own[0]):
            if _LETTER.match(text, found.start()):
                _add_core(word, found.span())
            else:
                (word.after if word.cores else word.before).append(found.span())
        if own[0] < own[1]:
            _add_core(word, own)
        at = own[1]
    return word


def _add_core(word: Word, atom: Span) -> None:
    word.cores.extend((*word.after, atom))
    word.after.clear()
