"""A normalised text with the origin of its characters, which turns spans of a reply into spans of the caller's text."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator

from lingon.client.values.results import Span
from lingon.errors import LingonError
from lingon.text import is_invisible, to_nfc

Letter = tuple[str, int, int]
"""A character of a normalised text, and the begin and the end of what it was read from."""

FIRST_THAT_JOINS = "\u0300"
"""Smaller code points neither combine with the character before them nor are reordered by NFC."""


class NormalisedText:
    """A text as the server reads it.

    original: the caller's text
    text: its normalised form, to which the spans of a reply refer

        source = NormalisedText(text)
        result = client.translate(text, return_alignment=True)
        places = [source.original_span(link.source) for link in result.best.alignment]
    """

    def __init__(self, original: str) -> None:
        """original: any text; the time for it grows linearly with its length."""
        self.original = original
        letters = list(_with_single_spaces(_letters(original)))
        self.text = "".join(letter for letter, _, _ in letters)
        self._spans = [(begin, end) for _, begin, end in letters]  # in `original`, of each character of `text`

    def original_span(self, span: Span) -> Span:
        """Return the span of `original` that a span of `text` was read from.

        Removed characters and further white space inside the span belong to it. Characters that NFC joined or
        reordered belong together: the span covers all of them. Raises LingonError for a span that is not in `text`.
        """
        begin, end = span
        if not 0 <= begin <= end <= len(self.text):
            raise LingonError(f"span must be within 0 and {len(self.text)}, the length of the text, got {span}")
        if begin == end:
            place = self._spans[begin][0] if begin < len(self._spans) else len(self.original)
            return place, place
        return self._spans[begin][0], self._spans[end - 1][1]


def _with_single_spaces(letters: Iterable[Letter]) -> Iterator[Letter]:
    """Yield one space for each run of white space, and none at the begin and the end."""
    begun, gap = False, None  # gap: the white space since the last letter
    for letter, begin, end in letters:
        if letter.isspace():
            gap = (gap[0] if gap else begin), end
            continue
        if gap and begun:
            yield " ", *gap
        yield letter, begin, end
        begun, gap = True, None


def _letters(original: str) -> Iterator[Letter]:
    """Yield the characters of the NFC form without invisible ones, each with the span that it comes from."""
    piece, places = "", list[int]()  # characters that NFC may change together
    for place, character in enumerate(original):
        if is_invisible(character):
            continue
        # Nothing joins with white space before it. Kept apart, it is no part of the span of the letters after it.
        if piece and (piece.isspace() or not _joins(piece, character)):
            yield from _of_piece(piece, places)
            piece, places = "", []
        piece += character
        places.append(place)
    yield from _of_piece(piece, places)


def _of_piece(piece: str, places: list[int]) -> Iterator[Letter]:
    """Yield the characters of a piece that begins and ends where NFC joins and reorders nothing."""
    normalised = to_nfc(piece)
    if normalised == piece:
        yield from ((letter, place, place + 1) for letter, place in zip(piece, places, strict=True))
    else:
        yield from ((letter, places[0], places[-1] + 1) for letter in normalised)


def _joins(piece: str, character: str) -> bool:
    """Whether NFC may change a character together with those before it (Unicode Standard Annex 15, section 9.1)."""
    if character < FIRST_THAT_JOINS:
        return False
    if unicodedata.combining(unicodedata.normalize("NFD", character)[0]):
        return True
    return to_nfc(piece + character) != to_nfc(piece) + to_nfc(character)
