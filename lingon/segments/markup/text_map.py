"""Where the characters of a block are in the text with markup."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from lingon.segments.boundaries import Span

Piece = tuple[int, int, int, int]
"""A part of a block, begin and end, and where it is written in the text with markup, begin and end.

Parts of equal length are equal character by character.
"""


def is_verbatim(piece: Piece) -> bool:
    """Whether a piece is written as it is."""
    begin, end, raw_begin, raw_end = piece
    return raw_end - raw_begin == end - begin


@dataclass(frozen=True, slots=True)
class TextMap:
    """The pieces of a block in order, which cover it."""

    pieces: Sequence[Piece]

    def raw_span(self, begin: int, end: int) -> Span:
        """Return where a span of the block is written, with the tags inside it but not those around it.

        A span that ends within a piece that is not written as it is grows to the whole piece.
        """
        if begin >= end:
            place = self._raw(begin)
            return place, place
        last = self.pieces[max(bisect_left(self.pieces, (end,)) - 1, 0)]
        return self._raw(begin), last[2] + end - last[0] if is_verbatim(last) else last[3]

    def spelled(self, text: str, begin: int, end: int) -> str:
        """Return a span of the block as it is written, without tags; text: with markup."""
        parts = []
        for number in range(self._number(begin), len(self.pieces)):
            piece = self.pieces[number]
            first, last, raw_begin, raw_end = piece
            if first >= end:
                break
            if is_verbatim(piece):
                raw_begin, raw_end = raw_begin + max(begin - first, 0), raw_end - max(last - end, 0)
            parts.append(text[raw_begin:raw_end])
        return "".join(parts)

    def _raw(self, place: int) -> int:
        if not self.pieces:
            return 0
        piece = self.pieces[self._number(place)]
        return piece[2] + place - piece[0] if is_verbatim(piece) else piece[2]

    def _number(self, place: int) -> int:
        """Return the number of the piece that holds a place."""
        return max(bisect_left(self.pieces, (place + 1,)) - 1, 0)
