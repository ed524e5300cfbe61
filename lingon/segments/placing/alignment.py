"""The atoms of a source text and its translation, segment by segment, and which belong together."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from lingon.segments.placing.atoms import cut, is_mark, is_within, words_of
from lingon.segments.placing.claims import Claim, Column, WordClaims
from lingon.segments.placing.inlines import Aligned, Span

KNOWN = 1.0  # weight of a claim that is known and not estimated


class Alignment:
    """The atoms of both texts, and what those of the source claim.

    source, target: spans of the atoms, in order
    claims: of each source atom
    columns: of each source atom the column of its word, None for one in a segment that was not aligned by words
    segments: for each segment its source and target atoms without the punctuation at the ends
    """

    def __init__(
        self, source: str, target: str, segments: Sequence[Aligned], places: Sequence[int], kept: Mapping[int, int]
    ) -> None:
        """places: of tags in the source, in order; kept: what is kept: places in the target by those in the source."""
        self.source: list[Span] = []
        self.target: list[Span] = []
        self.claims: list[list[Claim]] = []
        self.columns: list[Column | None] = []
        self.segments: list[tuple[range, range]] = []
        before = 0, 0
        for segment in segments:
            (begin, end), (target_begin, target_end), _ = segment
            self._add_between(source, target, ((before[0], begin), (before[1], target_begin)), places)
            before = end, target_end
            first = len(self.source), len(self.target)
            if not is_within(places, (begin, end)):
                self._add_whole(segment)
            elif source[begin:end] == target[target_begin:target_end]:
                self._add_same(source, segment, places)
            else:
                claims = WordClaims(source, target, segment, places)
                for atom, claimed, column in claims.claimed(len(self.target), kept):
                    self._add(atom, claimed, column)
                self.target.extend(claims.atoms)
            self.segments.append((_words(source, self.source, first[0]), _words(target, self.target, first[1])))
        self._add_between(source, target, ((before[0], len(source)), (before[1], len(target))), places)

    def atoms_within(self, begin: int, end: int) -> range:
        """Return the numbers of the source atoms of a span, whose ends are between atoms."""
        first = bisect_left(self.source, (begin, begin))
        return range(first, max(bisect_left(self.source, (end, end)), first))

    def segments_within(self, atoms: range) -> Iterator[tuple[range, range]]:
        """Yield the segments whose words are all among these source atoms."""
        place = bisect_left(self.segments, atoms.start, key=_start)
        while place < len(self.segments) and self.segments[place][0].stop <= atoms.stop:
            yield self.segments[place]
            place += 1

    def _add(self, atom: Span, claims: list[Claim], column: Column | None = None) -> None:
        self.source.append(atom)
        self.claims.append(claims)
        self.columns.append(column)

    def _add_whole(self, segment: Aligned) -> None:
        """Add a segment without tags in it as one atom."""
        claims = []
        if segment.target[0] < segment.target[1]:
            claims.append(Claim(len(self.target), KNOWN))
            self.target.append(segment.target)
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
                self.target.append((begin + shift, end + shift))


def _is_visible(character: str) -> bool:
    return character.isprintable() and not character.isspace()


def _start(segment: tuple[range, range]) -> int:
    return segment[0].start


def _words(text: str, atoms: Sequence[Span], first: int) -> range:
    """Return the atoms from one on, without those at both ends that are punctuation; all if there are no others."""
    begin, end = first, len(atoms)
    while begin < end and is_mark(text, atoms[begin]):
        begin += 1
    while begin < end and is_mark(text, atoms[end - 1]):
        end -= 1
    return range(begin, end) if begin < end else range(first, len(atoms))
