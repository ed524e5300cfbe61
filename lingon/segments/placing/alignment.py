"""The atoms of a source text and its translation, segment by segment, and which belong together."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lingon.segments.placing.atoms import Mark, cut, is_within, mark_of, words_of
from lingon.segments.placing.claims import KNOWN, Claim, Column, WordClaims
from lingon.segments.placing.dividing import divided
from lingon.segments.placing.inlines import Aligned, Span


class Segment(NamedTuple):
    """The atoms of a segment and of its translation.

    source_words, target_words: those without the punctuation at the ends
    """

    source: range
    target: range
    source_words: range
    target_words: range


class Alignment:
    """The atoms of both texts, and what those of the source claim.

    source, target: spans of the atoms, in order
    source_marks, target_marks: what each of them is
    claims: of each source atom
    columns: of each source atom the column of its word, None for one in a segment that was not aligned by words
    kept_source, kept_target: 1 for each atom that is kept
    """

    def __init__(self, source: str, target: str, segments: Sequence[Aligned], places: Sequence[int]) -> None:
        """places: of tags in the source, in order."""
        self.source_text, self.target_text = source, target
        self.source: list[Span] = []
        self.target: list[Span] = []
        self.source_marks: list[Mark] = []
        self.target_marks: list[Mark] = []
        self.claims: list[list[Claim]] = []
        self.columns: list[Column | None] = []
        self.kept_source, self.kept_target = bytearray(), bytearray()
        self.segments: list[Segment] = []
        before = 0, 0
        for segment in (part for each in segments for part in divided(source, target, each)):
            (begin, end), (target_begin, target_end) = segment[:2]
            self._add_between(source, target, ((before[0], begin), (before[1], target_begin)), places)
            before = end, target_end
            first, target_first = len(self.source), len(self.target)
            if not is_within(places, (begin, end)):
                self._add_whole(segment)
            elif source[begin:end] == target[target_begin:target_end]:
                self._add_same(source, segment, places)
            else:
                claims = WordClaims(source, target, segment, places)
                for atom, claimed, column, kept in claims.claimed(len(self.target)):
                    self._add(atom, claimed, column, kept=kept)
                kept_atoms = set(claims.kept)
                for number, atom in enumerate(claims.atoms):
                    self._add_target(atom, kept=number in kept_atoms)
            atoms, targets = range(first, len(self.source)), range(target_first, len(self.target))
            words = _words(self.source_marks, atoms), _words(self.target_marks, targets)
            self.segments.append(Segment(atoms, targets, *words))
        self._add_between(source, target, ((before[0], len(source)), (before[1], len(target))), places)

    def atoms_within(self, begin: int, end: int) -> range:
        """Return the numbers of the source atoms of a span, whose ends are between atoms."""
        first = bisect_left(self.source, (begin, begin))
        return range(first, max(bisect_left(self.source, (end, end)), first))

    def segments_within(self, atoms: range) -> Iterator[Segment]:
        """Yield the segments whose words are all among these source atoms."""
        place = bisect_left(self.segments, atoms.start, key=lambda segment: segment.source_words.start)
        while place < len(self.segments) and self.segments[place].source_words.stop <= atoms.stop:
            yield self.segments[place]
            place += 1

    def _add(self, atom: Span, claims: list[Claim], column: Column | None = None, *, kept: bool = False) -> None:
        self.source.append(atom)
        self.source_marks.append(Mark.NONE if kept else mark_of(self.source_text, atom))
        self.claims.append(claims)
        self.columns.append(column)
        self.kept_source.append(kept)

    def _add_target(self, atom: Span, *, kept: bool = False) -> None:
        self.target.append(atom)
        self.target_marks.append(Mark.NONE if kept else mark_of(self.target_text, atom))
        self.kept_target.append(kept)

    def _add_whole(self, segment: Aligned) -> None:
        """Add a segment without tags in it as one atom."""
        claims = []
        if segment.target[0] < segment.target[1]:
            claims.append(Claim(len(self.target), KNOWN))
            self._add_target(segment.target)
        if segment.source[0] < segment.source[1]:
            self._add(segment.source, claims)

    def _add_between(self, source: str, target: str, between: tuple[Span, Span], places: Sequence[int]) -> None:
        """Add what separates segments, such as the mark of a list; blanks have no atoms.

        between: where it is in both texts; that of the target may have one blank more
        """
        (begin, end), (target_begin, target_end) = between
        text = source[begin:end]
        if target[target_begin:target_end].startswith(text) and any(map(_is_visible, text)):
            self._add_same(source, Aligned((begin, end), (target_begin, target_begin + len(text))), places)

    def _add_same(self, source: str, segment: Aligned, places: Sequence[int]) -> None:
        """Add a segment whose translation is itself."""
        shift = segment.target[0] - segment.source[0]
        for word in words_of(source, segment.source):
            for begin, end in (part for atom in word.atoms for part in cut(atom, places)):
                self._add((begin, end), [Claim(len(self.target), KNOWN)])
                self._add_target((begin + shift, end + shift))


def _is_visible(character: str) -> bool:
    return character.isprintable() and not character.isspace()


def _words(marks: Sequence[Mark], atoms: range) -> range:
    """Return atoms without those at both ends that are punctuation; all if there are no others."""
    begin, end = atoms.start, atoms.stop
    while begin < end and marks[begin] is not Mark.NONE:
        begin += 1
    while begin < end and marks[end - 1] is not Mark.NONE:
        end -= 1
    return range(begin, end) if begin < end else atoms
