"""Writes the translation of a block with its tags.

A segment that was not changed is written as it was, with its references. So is the white space between segments, and
each word of a translation that the block has too.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lingon.segments.markup.blocks import STAND_IN, Block, Tags
from lingon.segments.markup.text_map import Piece, is_verbatim
from lingon.segments.markup.tokens.references import encode, finished
from lingon.segments.placing.inlines import Aligned, Inline, Insertion
from lingon.segments.placing.place import place

_SPACES = re.compile(r"(\s+)")
_SPECIAL = re.compile(r"[&<>\xa0]")
_WORD = re.compile(r"\S+")
_UNFINISHED = re.compile(r"(?:&[#A-Za-z0-9]*+|<)\Z")  # what the next character could make a reference or a tag
_WITHOUT_SPACES = re.compile(
    r"[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uff9f]"
)
_END_MARKS = ".,;:!?)"
_LONGEST = 40  # characters of the longest reference


@dataclass(frozen=True, slots=True)
class Translated:
    """The translation of a block.

    segments: the spans of the block that were translated, in order, and those of their translations, with what is kept
    kept: the places of STAND_IN in the translation, by those in the block; one that is missing is placed by alignment
    """

    text: str
    segments: tuple[Aligned, ...]
    kept: dict[int, int]


class _Stretch(NamedTuple):
    """A part of a translation; source: where the block has the same, -1 for new text."""

    begin: int
    end: int
    source: int


def write_block(
    text: str, block: Block, translated: Translated, at: int, *, in_html: bool, tags: dict[int, int] | None = None
) -> tuple[str, list[Piece]]:
    """Return a block with its translation, and where the characters of the translation are.

    text: with markup; at: where the block begins in the result
    tags: gets where each tag begins in the result, by its place in the text
    """
    if not block.inlines and not _SPECIAL.search(text, block.begin, block.end) and not _SPECIAL.search(translated.text):
        return translated.text, [(0, len(translated.text), at, at + len(translated.text))]
    return _Writer(text, block, translated, in_html=in_html).write(at, {} if tags is None else tags)


class _Writer:
    def __init__(self, text: str, block: Block, translated: Translated, *, in_html: bool) -> None:
        self._raw, self._block, self._translated, self._in_html = text, block, translated, in_html
        self._inlines, self._tags = _with_missing(block, translated)
        self._spelling = self._own_spelling()
        self._copies = list(self._find_copies())
        self._copy_ends = [end for _, end, _ in self._copies]

    def write(self, at: int, tags: dict[int, int]) -> tuple[str, list[Piece]]:
        """Return the text and its pieces; at: where it begins; tags: gets where each tag is, see `write_block`."""
        translated = self._translated
        insertions: list[Insertion] = []
        if self._inlines:
            insertions = place(self._block.text, translated.text, translated.segments, self._inlines)
        parts: list[str] = []
        pieces: list[Piece] = []
        before = " "  # the last character of the text so far, to which tags do not belong
        for item in _merged(self._stretches(), insertions):
            if isinstance(item, Insertion):
                parts.append(self._tag(item, before))
                opening, _, closing, _ = self._tags[item.inline]
                tags[closing if item.closing else opening] = at + len(parts[-1]) - len(parts[-1].lstrip(" "))
                before = parts[-1][-1:] if parts[-1].endswith(" ") else before
                at += len(parts[-1])
                continue
            before = translated.text[item.end - 1]
            for begin, end, written in self._written(item):
                if pieces and parts[-1] and (found := _UNFINISHED.search(parts[-1], max(len(parts[-1]) - _LONGEST, 0))):
                    end_of_part = finished(found[0], in_html=self._in_html)
                    at += len(end_of_part) - len(found[0])
                    parts[-1] = parts[-1][: found.start()] + end_of_part
                    pieces[-1] = (*pieces[-1][:3], at)
                pieces.append((begin, end, at, at + len(written)))
                parts.append(written)
                at += len(written)
        return "".join(parts), pieces

    def _tag(self, item: Insertion, before: str) -> str:
        """Return a tag; that of a point has a space on each side on which it has one in the block.

        Two points have none between them that is not there, and one right after a word none before an end mark.
        before: the character before it. A translation has one space where the block has one on either side of a point.
        """
        opening, opened, closing, closed = self._tags[item.inline]
        tag = self._raw[closing:closed] if item.closing else self._raw[opening:opened]
        begin, end, _ = self._inlines[item.inline]
        if begin < end:
            return tag
        text, translation = self._block.text, self._translated.text
        spaced = begin > 0 and text[begin - 1].isspace()
        if not item.closing:
            apart = spaced and self._raw[max(opening - 1, 0) : opening] != ">"
            return f" {tag}" if apart and _needs_space(before) else tag
        after = begin + (item.inline >= len(self._block.inlines))  # what is kept has a character of its own
        next_one = translation[item.place : item.place + 1] or " "
        apart = text[after : after + 1].isspace() and self._raw[closed : closed + 1] != "<"
        return f"{tag} " if apart and _needs_space(next_one) and (spaced or next_one not in _END_MARKS) else tag

    def _stretches(self) -> Iterator[_Stretch]:
        """Yield the segments and what is between them, in the order of the translation."""
        block, translated = self._block, self._translated
        at = source_at = 0
        for (begin, end), (first, last), *_ in translated.segments:
            yield self._stretch(at, first, source_at, begin)
            yield self._stretch(first, last, begin, end)
            at, source_at = last, end
        yield self._stretch(at, len(translated.text), source_at, len(block.text))

    def _stretch(self, begin: int, end: int, source: int, source_end: int) -> _Stretch:
        same = self._translated.text[begin:end] == self._block.text[source:source_end]
        return _Stretch(begin, end, source if same else -1)

    def _written(self, stretch: _Stretch) -> Iterator[tuple[int, int, str]]:
        """Yield the parts of a stretch, each with its span in the translation, as they are written."""
        begin, end, source = stretch
        if source >= 0:
            yield begin, end, self._block.map.spelled(self._raw, source, source + end - begin)
            return
        for number in range(bisect_right(self._copy_ends, begin), len(self._copies)):
            first, last, source = self._copies[number]
            if first >= end:
                break
            if begin < first:
                yield begin, first, self._new(begin, first)
                begin = first
            stop = min(last, end)
            yield begin, stop, self._block.map.spelled(self._raw, source + begin - first, source + stop - first)
            begin = stop
        if begin < end:
            yield begin, end, self._new(begin, end)

    def _find_copies(self) -> Iterator[tuple[int, int, int]]:
        """Yield the spans of the translation that the block has as well, in order, each with its begin in the block."""
        translated, text = self._translated, self._block.text
        found = [(target, target + 1, source) for source, target in translated.kept.items()]
        for kept in (each for segment in translated.segments for each in segment.kept):
            if text[slice(*kept.source)] == translated.text[slice(*kept.target)]:
                found.append((*kept.target, kept.source[0]))
        at = 0
        for begin, end, source in sorted(found):
            if at <= begin < end:
                yield begin, end, source
                at = end

    def _new(self, begin: int, end: int) -> str:
        """Return new text as it is written."""
        text = self._translated.text[begin:end]
        if not self._spelling:
            return encode(text, in_html=self._in_html)
        words = _SPACES.split(text)
        return "".join(self._spelling.get(word) or encode(word, in_html=self._in_html) for word in words)

    def _own_spelling(self) -> dict[str, str]:
        """Return how the words of the block are written that `encode` would write otherwise."""
        block = self._block
        if all(is_verbatim(piece) for piece in block.map.pieces) and not _SPECIAL.search(block.text):
            return {}
        found = {}
        for word in _WORD.finditer(block.text):
            written = block.map.spelled(self._raw, *word.span())
            if STAND_IN not in word[0] and written != encode(word[0], in_html=self._in_html):
                found[word[0]] = written
        return found


def _needs_space(neighbour: str) -> bool:
    """Whether a word is set apart from this character by a space: not in the scripts that write none."""
    return not (neighbour.isspace() or _WITHOUT_SPACES.match(neighbour))


def _merged(stretches: Iterator[_Stretch], insertions: Sequence[Insertion]) -> Iterator[_Stretch | Insertion]:
    """Yield stretches, cut where tags come, and these before the text at their place."""
    number = 0
    for begin, end, source in stretches:
        at = begin
        while number < len(insertions) and insertions[number].place < end:
            insertion = insertions[number]
            if insertion.place > at:
                yield _Stretch(at, insertion.place, source + at - begin if source >= 0 else -1)
                at = insertion.place
            yield insertion
            number += 1
        if at < end:
            yield _Stretch(at, end, source + at - begin if source >= 0 else -1)
    yield from insertions[number:]


def _with_missing(block: Block, translated: Translated) -> tuple[list[Inline], list[Tags]]:
    """Return the inlines of a block, and a point for each part that is kept but not in the translation."""
    inlines, tags = list(block.inlines), list(block.tags)
    open_: list[int] = []
    number = 0
    for kept in block.kept:
        if kept in translated.kept:
            continue
        while number < len(block.inlines) and block.inlines[number].begin <= kept:
            open_.append(number)
            number += 1
        while open_ and block.inlines[open_[-1]].end <= kept:
            open_.pop()
        inlines.append(Inline(kept, kept, open_[-1] if open_ else -1))
        begin, end = block.map.raw_span(kept, kept + 1)
        tags.append((begin, end, end, end))
    return inlines, tags
