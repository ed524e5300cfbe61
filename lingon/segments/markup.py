"""HTML and XML as blocks of text, read from a text with markup and written back with their translations."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple

from lingon.segments.boundaries import Span
from lingon.segments.layout import Joined, TextLayout
from lingon.segments.markup_blocks import (
    STAND_IN,
    Block,
    MappedPiece,
    MarkupSpelling,
    References,
    Tags,
    TextMap,
    blocks_of,
    blocks_of_attributes,
    is_verbatim,
    write_value,
)
from lingon.segments.markup_structure import Structure, structure_of, with_signs
from lingon.segments.markup_tokens import (
    NO_RULES,
    MarkupRules,
    encode,
    finished,
    html_references,
    html_tokens,
    xml_references,
    xml_tokens,
)
from lingon.segments.placing import place
from lingon.segments.placing_alignment import Aligned, Inline, Insertion, KeptCopy, Weights, needs_weights


def read_html(text: str, rules: MarkupRules = NO_RULES) -> Markup:
    """Read HTML as browsers do. Any text is HTML.

    Elements that browsers show as blocks split the text, and so does `br`. All others are inline.
    """
    rules = rules.lowered()
    structure = structure_of(text, with_signs(text, html_tokens(text)), rules, html=True)
    return _markup(text, structure, rules, html_references)


def read_xml(text: str, rules: MarkupRules = NO_RULES) -> Markup:
    """Read well-formed XML, a document or a part of one. Raises MarkupError for another text.

    An element is inline if there is text beside it or beside an element around it. All others split the text.
    """
    structure = structure_of(text, xml_tokens(text), rules, html=False)
    return _markup(text, structure, rules, xml_references)


def _markup(text: str, structure: Structure, rules: MarkupRules, references: References) -> Markup:
    blocks = list(blocks_of(text, structure, references))
    if rules.attributes:
        blocks += blocks_of_attributes(text, structure, rules.attributes, references)
        blocks.sort(key=lambda block: block.begin)
    return Markup(text, tuple(blocks), structure.html)


# A text with markup as its blocks, and the text with their translations where they are.


@dataclass(frozen=True, slots=True)
class WrittenMarkup:
    """A text with markup that was put together.

    blocks: of the text that was translated, with the new values of its attributes
    shifts: for each of these, by how much it moved
    maps: by its number, where the translation of a block is. One without a map was left as it is
    """

    text: str
    blocks: Sequence[Block]
    shifts: Sequence[int]
    maps: Mapping[int, TextMap]

    def span(self, block: int, begin: int, end: int) -> Span:
        """Return where a span of the translation of a block is written."""
        if block in self.maps:
            return self.maps[block].raw_span(begin, end)
        first, last = self.blocks[block].map.raw_span(begin, end)
        return first + self.shifts[block], last + self.shifts[block]


@dataclass(frozen=True, slots=True)
class Markup:
    """A text with markup, and its blocks in order."""

    text: str
    blocks: Sequence[Block]
    html: bool

    def write(self, translations: Sequence[TranslatedBlock | None]) -> Generator[None, None, WrittenMarkup]:
        """Return the text with a translation in place of each block. None or the block itself leaves it as it is.

        What is between the blocks is copied. The tags of a block are placed by the alignment of its segments. Yields
        between blocks, since there may be thousands.
        """
        values = self._values(translations)
        text, blocks = with_values(self.text, self.blocks, {number: value for number, (value, _) in values.items()})
        parts: list[str] = []
        shifts: list[int] = []
        maps: dict[int, TextMap] = {}
        tags: dict[
            int, int
        ] = {}  # where the tags of the last block that was translated are written, by their positions
        at = length = 0
        for number, (block, translated) in enumerate(zip(blocks, translations, strict=True)):
            shifts.append(length - at)
            if block.tag >= 0:
                if block.begin < at:
                    shifts[-1] = tags[block.tag] - block.tag
                if number in values:
                    maps[number] = _shifted(values[number][1], block.begin + shifts[-1])
            elif translated is not None and translated.text != block.text:
                parts.append(text[at : block.begin])
                length += block.begin - at
                tags.clear()
                written, pieces = self._write_block(text, block, translated, length, tags)
                maps[number] = TextMap(pieces)
                parts.append(written)
                length += len(written)
                at = block.end
                yield
        return WrittenMarkup("".join([*parts, text[at:]]), blocks, shifts, maps)

    def _values(self, translations: Sequence[TranslatedBlock | None]) -> dict[int, tuple[str, list[MappedPiece]]]:
        """Return the translations of values of attributes as they are written, and their pieces, by their blocks."""
        return {
            number: write_value(translated.text, block.spelling, 0, in_html=self.html)
            for number, (block, translated) in enumerate(zip(self.blocks, translations, strict=True))
            if block.tag >= 0 and translated is not None and translated.text != block.text
        }

    def _write_block(
        self, text: str, block: Block, translated: TranslatedBlock, at: int, tags: dict[int, int]
    ) -> tuple[str, list[MappedPiece]]:
        if block.spelling is MarkupSpelling.SECTION:
            return write_value(translated.text, block.spelling, at, in_html=self.html)
        return write_block(text, block, translated, at, in_html=self.html, tags=tags)


def _shifted(pieces: Sequence[MappedPiece], by: int) -> TextMap:
    return TextMap([(begin, end, first + by, last + by) for begin, end, first, last in pieces])


# A text with other values of attributes, and where its blocks are then.


def with_values(text: str, blocks: Sequence[Block], values: Mapping[int, str]) -> tuple[str, Sequence[Block]]:
    """Return a text with new values of attributes, as they are written, and its blocks; values: by their blocks."""
    if not values:
        return text, blocks
    parts, ends, grown, at = list[str](), list[int](), list[int](), 0
    for number in sorted(values):
        block, value = blocks[number], values[number]
        parts += [text[at : block.begin], value]
        at = block.end
        ends.append(at)
        grown.append(len(value) - (at - block.begin))
    shifts = [0, *accumulate(grown)]

    def moved(place: int) -> int:
        return place + shifts[bisect_right(ends, place)]

    return "".join([*parts, text[at:]]), [_moved(block, moved) for block in blocks]


def _moved(block: Block, moved: Callable[[int], int]) -> Block:
    pieces = [(begin, end, moved(first), moved(last)) for begin, end, first, last in block.map.pieces]
    tags = [
        (moved(opening), moved(opened), moved(closing), moved(closed))
        for opening, opened, closing, closed in block.tags
    ]
    return replace(
        block,
        begin=moved(block.begin),
        end=moved(block.end),
        tag=moved(block.tag),
        group=moved(block.group),
        tags=tags,
        map=TextMap(pieces),
    )


# Writes the translation of a block with its tags.
# A segment that was not changed is written as it was, with its references. So is the white space between segments,
# and each word of a translation that the block has too.

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
class TranslatedBlock:
    """The translation of a block.

    segments: the spans of the block that were translated, in order, and those of their translations, with what is kept
    kept: the positions of STAND_IN in the translation, by those in the block. One that is missing is placed by
        alignment
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
    text: str, block: Block, translated: TranslatedBlock, at: int, *, in_html: bool, tags: dict[int, int] | None = None
) -> tuple[str, list[MappedPiece]]:
    """Return a block with its translation, and where the characters of the translation are.

    text: with markup; at: where the block begins in the result
    tags: gets where each tag begins in the result, by its position in the text
    """
    if not block.inlines and not _SPECIAL.search(text, block.begin, block.end) and not _SPECIAL.search(translated.text):
        return translated.text, [(0, len(translated.text), at, at + len(translated.text))]
    return _BlockWriter(text, block, translated, in_html=in_html).write(at, {} if tags is None else tags)


class _BlockWriter:
    def __init__(self, text: str, block: Block, translated: TranslatedBlock, *, in_html: bool) -> None:
        self._raw, self._block, self._translated, self._in_html = text, block, translated, in_html
        self._inlines, self._tags = _with_missing(block, translated)
        self._spelling = self._own_spelling()
        self._copies = list(self._find_copies())
        self._copy_ends = [end for _, end, _ in self._copies]

    def write(self, at: int, tags: dict[int, int]) -> tuple[str, list[MappedPiece]]:
        """Return the text and its pieces; at: where it begins; tags: gets where each tag is, see `write_block`."""
        translated = self._translated
        insertions: list[Insertion] = []
        if self._inlines:
            insertions = place(self._block.text, translated.text, translated.segments, self._inlines)
        parts: list[str] = []
        pieces: list[MappedPiece] = []
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
        """Return a tag. That of a point has a space on each side on which it has one in the block.

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
    """Return whether a word is set apart from this character by a space: not in the scripts that write none."""
    return not (neighbour.isspace() or _WITHOUT_SPACES.match(neighbour))


def _merged(stretches: Iterator[_Stretch], insertions: Sequence[Insertion]) -> Iterator[_Stretch | Insertion]:
    """Yield stretches, cut where tags come, and these before the text at their position."""
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


def _with_missing(block: Block, translated: TranslatedBlock) -> tuple[list[Inline], list[Tags]]:
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


# The blocks of a text with markup as one text without, and the translation of that put back into the markup.

SEPARATOR = "\n\n"  # between blocks; it ends a sentence wherever texts are split
_PRIVATE_USE = range(0xF0000, 0xFFFFE)


class TooManyKept(Exception):
    """A text with markup has more that is left as it is within sentences than there are characters to stand for it."""


@dataclass(frozen=True, slots=True)
class PlainText:
    """A text with markup as a text without.

    text: of all blocks. Each STAND_IN in them is a private-use character of its own here, so that two of one sentence
        can change places in its translation
    begins: of the blocks in it
    stand_ins: STAND_IN by the code point of each of these characters, for `str.translate`
    """

    markup: Markup
    text: str
    begins: tuple[int, ...]
    stand_ins: dict[int, str]

    @classmethod
    def of(cls, markup: Markup) -> PlainText:
        """Return the text of the blocks. Raises TooManyKept."""
        free = _unused(markup.blocks)
        texts, begins, stand_ins, at = list[str](), list[int](), dict[int, str](), 0
        for block in markup.blocks:
            characters = list(block.text) if block.kept else []
            for kept in block.kept:
                characters[kept] = next(free)
                stand_ins[ord(characters[kept])] = STAND_IN
            texts.append("".join(characters) or block.text)
            begins.append(at)
            at += len(block.text) + len(SEPARATOR)
        return cls(markup, SEPARATOR.join(texts), tuple(begins), stand_ins)

    def block(self, index: int) -> Span:
        """Return where a block is in the text."""
        begin = self.begins[index]
        return begin, begin + len(self.markup.blocks[index].text)

    def kept(self) -> list[int]:
        """Return the positions in the text of what is left as it is."""
        blocks = zip(self.begins, self.markup.blocks, strict=True)
        return [begin + place for begin, block in blocks for place in block.kept]

    def raw_span(self, begin: int, end: int) -> Span:
        """Return where a span of the text, within one block, is in the text with markup."""
        index = max(bisect_right(self.begins, begin) - 1, 0)
        first = self.begins[index]
        return self.markup.blocks[index].map.raw_span(begin - first, end - first)

    def aligned(self, segments: Sequence[Span]) -> list[bool]:
        """Return for each segment of the text whether tags within it are placed by an alignment."""
        needed = list[bool]()
        for index, block in enumerate(self.markup.blocks):
            begin, end = self.block(index)
            own = segments[len(needed) : len(needed) + _count(segments, len(needed), end)]
            needed += needs_weights((_less(segment, begin) for segment in own), block.inlines)
        return needed

    def write(
        self,
        document: TextLayout,
        joined: Joined,
        weights: Sequence[Weights | None],
        kept: Sequence[Sequence[KeptCopy]] | None = None,
    ) -> Generator[None, None, WrittenText]:
        """Return the text with markup, with a translation instead of each segment, and yield between blocks.

        document: this text and its segments; joined: their translations
        weights: for each segment, see `Aligned`
        kept: for each segment, what it and its translation have, counted from their begins; by default nothing
        """
        translations: list[TranslatedBlock | None] = [None] * len(self.begins)
        found = kept if kept is not None else [()] * len(weights)
        begins, at, moved = list(self.begins), 0, 0  # moved: by how much the translation of a block is shifted
        for index, block in enumerate(self.markup.blocks):
            begin, end = self.block(index)
            count = _count(document.segments, at, end)
            begins[index] = begin + moved
            if count:
                own, spans = document.segments[at : at + count], joined.spans[at : at + count]
                moved = spans[-1][1] - own[-1][1]
                text = joined.text[begins[index] : end + moved]
                stand_ins = self._kept_in(block, begin, text)
                positions = list(stand_ins.items())
                segments = tuple(
                    Aligned(
                        source := _less(each, begin),
                        target := _less(copy, begins[index]),
                        shares,
                        [one.moved(source[0], target[0]) for one in strings] or _within(source, target, positions),
                    )
                    for each, copy, shares, strings in zip(
                        own, spans, weights[at : at + count], found[at : at + count], strict=True
                    )
                )
                text = text.translate(self.stand_ins) if stand_ins else text
                translations[index] = TranslatedBlock(text, segments, stand_ins)
                at += count
            yield
        return WrittenText((yield from self.markup.write(translations)), tuple(begins))

    def _kept_in(self, block: Block, begin: int, text: str) -> dict[int, int]:
        """Return the positions in a translation of what is left as it is, by those in the block."""
        if not block.kept:
            return {}
        positions = {character: at for at, character in enumerate(text) if ord(character) in self.stand_ins}
        named = ((place, positions.get(self.text[begin + place])) for place in block.kept)
        return {place: found for place, found in named if found is not None}


@dataclass(frozen=True, slots=True)
class WrittenText:
    """The translation of a text with markup; begins: of the blocks in the translation without markup."""

    written: WrittenMarkup
    begins: tuple[int, ...]

    @property
    def text(self) -> str:
        """The translation with markup."""
        return self.written.text

    def span(self, begin: int, end: int) -> Span:
        """Return where a span of the translation without markup, within one block, is written."""
        index = max(bisect_right(self.begins, begin) - 1, 0)
        first = self.begins[index]
        return self.written.span(index, begin - first, end - first)


def _count(segments: Sequence[Span], first: int, end: int) -> int:
    """Return how many segments, from one on, begin before `end`."""
    return bisect_left(segments, (end,), lo=first) - first


def _within(source: Span, target: Span, stand_ins: Sequence[tuple[int, int]]) -> list[KeptCopy]:
    """Return what stands for what is left as it is in a segment and its translation.

    stand_ins: the positions in a block and in its translation, in order
    """
    own = stand_ins[bisect_left(stand_ins, (source[0],)) : bisect_left(stand_ins, (source[1],))]
    return [KeptCopy((place, place + 1), (copy, copy + 1)) for place, copy in own if target[0] <= copy < target[1]]


def _less(span: Span, by: int) -> Span:
    return span[0] - by, span[1] - by


def _unused(blocks: Sequence[Block]) -> Iterator[str]:
    """Yield private-use characters that no block has. Raises TooManyKept when there are no more."""
    used = set[str]().union(*(block.text for block in blocks))
    yield from (character for character in map(chr, _PRIVATE_USE) if character not in used)
    raise TooManyKept
