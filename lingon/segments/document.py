"""A text as its sentences and what separates them, from which the text can be put together again.

What separates them are blanks, marks of lists, tabs and the like, and all that has no letters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from lingon.segments.boundaries import (
    Span,
    ends_without_space,
    has_letters,
    has_space,
    is_blank,
    lines,
    next_visible,
    paragraphs,
    sentences,
    trimmed_end,
)
from lingon.segments.layout.cells import cells_of
from lingon.segments.layout.marks import after_dash


class Split(Enum):
    """Where a text is split: SENTENCES ends a sentence at each line break, NONEWLINES only at blank lines."""

    SENTENCES = "sentences"
    NONEWLINES = "nonewlines"
    OFF = "off"


def cut(text: str, split: Split, language: str = "", *, collapses: bool = False) -> Iterator[Span]:
    """Yield the segments of a text; each step takes at most a few milliseconds, whatever the text.

    A segment begins and ends with a visible character and has a letter; all else is between the segments. An empty span
    is none: it stands for a part without letters, so that the caller can give way to others. With Split.OFF, a text
    that has a visible character is one segment.
    language: of the text, BCP-47
    collapses: whether spaces and tabs are white space of any width, as in HTML
    """
    if split is Split.OFF:
        begin = next_visible(text, 0, len(text))
        if begin < len(text):
            yield begin, trimmed_end(text, begin, len(text))
        return
    for paragraph in (lines if split is Split.SENTENCES else paragraphs)(text):
        for begin, end in cells_of(text, paragraph, collapses=collapses):
            if has_letters(text, begin, end):
                for first, last in sentences(text, (begin, end), language):
                    yield after_dash(text, first, last), last
            else:
                yield begin, begin


@dataclass(frozen=True, slots=True)
class Joined:
    """A text that was put together, and the span of each translation in it."""

    text: str
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """A text and its segments, spans in code points; what is between and around them are the separators."""

    text: str
    segments: tuple[Span, ...]

    @classmethod
    def of(cls, text: str, split: Split, language: str = "") -> Document:
        """Return a text with its segments; see `cut`."""
        return cls(text, tuple(span for span in cut(text, split, language) if span[0] < span[1]))

    def segment(self, index: int) -> str:
        """Return the text of a segment."""
        begin, end = self.segments[index]
        return self.text[begin:end]

    def separator(self, index: int) -> str:
        """Return the text before a segment; that after the last one has the index len(segments)."""
        begin = self.segments[index - 1][1] if index else 0
        end = self.segments[index][0] if index < len(self.segments) else len(self.text)
        return self.text[begin:end]

    def join(self, translations: Sequence[str]) -> Joined:
        """Return the text with a translation in the place of each segment; the segments themselves give `text`."""
        joiner, pieces, spans, length = Joiner(self), [], [], 0
        for index, translation in enumerate(translations):
            pieces.append(joiner.add(index, translation))
            length += len(pieces[-1])
            spans.append((length - len(translation), length))
        return Joined("".join([*pieces, joiner.end()]), tuple(spans))


class Joiner:
    """Puts the translation of a document together, from pieces in the order of the segments."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._next = 0  # the separator that comes next
        self._last = ""  # the last character so far

    def add(self, index: int, text: str) -> str:
        """Return what the next piece of the translation of a segment adds to the whole, with the separators before it.

        Where a script without spaces has nothing between two sentences, a translation into another script gets a space.
        """
        added = ""
        while self._next <= index:
            separator = self._document.separator(self._next)
            added += separator
            if self._next == index and text and self._needs_space(separator):
                added += " "
            self._last = added[-1:] or self._last
            self._next += 1
        self._last = text[-1:] or self._last
        return added + text

    def end(self) -> str:
        """Return the separators that are left."""
        return "".join(self._document.separator(index) for index in range(self._next, len(self._document.segments) + 1))

    def _needs_space(self, separator: str) -> bool:
        if self._next == 0 or not self._last or has_space(separator) or not is_blank(separator):
            return False
        return not (self._last.isspace() or ends_without_space(self._last))
