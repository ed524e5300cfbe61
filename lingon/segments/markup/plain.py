"""The blocks of a text with markup as one text without, and the translation of that put back into the markup."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

from lingon.segments.boundaries import Span
from lingon.segments.document import Document, Joined
from lingon.segments.markup.blocks import STAND_IN, Block
from lingon.segments.markup.document import Markup, Written
from lingon.segments.markup.writing import Translated
from lingon.segments.placing.inlines import Aligned, Kept, Weights, needs_weights

SEPARATOR = "\n\n"  # between blocks; it ends a sentence wherever texts are split
_PRIVATE_USE = range(0xF0000, 0xFFFFE)


class TooManyKept(Exception):
    """A text with markup has more that is left as it is within sentences than there are characters to stand for it."""


@dataclass(frozen=True, slots=True)
class PlainText:
    """A text with markup as a text without.

    text: of all blocks; each STAND_IN in them is a private-use character of its own here, so that two of one sentence
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
        """Return the text of the blocks; raises TooManyKept."""
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
        """Return the places in the text of what is left as it is."""
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
        document: Document,
        joined: Joined,
        weights: Sequence[Weights | None],
        kept: Sequence[Sequence[Kept]] | None = None,
    ) -> Generator[None, None, WrittenText]:
        """Return the text with markup and the translation of each segment in its place; yields between blocks.

        document: this text and its segments; joined: their translations
        weights: for each segment, see `Aligned`
        kept: for each segment, what it and its translation have, counted from their begins; by default nothing
        """
        translations: list[Translated | None] = [None] * len(self.begins)
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
                places = list(stand_ins.items())
                segments = tuple(
                    Aligned(
                        source := _less(each, begin),
                        target := _less(copy, begins[index]),
                        shares,
                        [one.moved(source[0], target[0]) for one in strings] or _within(source, target, places),
                    )
                    for each, copy, shares, strings in zip(
                        own, spans, weights[at : at + count], found[at : at + count], strict=True
                    )
                )
                text = text.translate(self.stand_ins) if stand_ins else text
                translations[index] = Translated(text, segments, stand_ins)
                at += count
            yield
        return WrittenText((yield from self.markup.write(translations)), tuple(begins))

    def _kept_in(self, block: Block, begin: int, text: str) -> dict[int, int]:
        """Return the places in a translation of what is left as it is, by those in the block."""
        if not block.kept:
            return {}
        places = {character: at for at, character in enumerate(text) if ord(character) in self.stand_ins}
        named = ((place, places.get(self.text[begin + place])) for place in block.kept)
        return {place: found for place, found in named if found is not None}


@dataclass(frozen=True, slots=True)
class WrittenText:
    """The translation of a text with markup; begins: of the blocks in the translation without markup."""

    written: Written
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


def _within(source: Span, target: Span, stand_ins: Sequence[tuple[int, int]]) -> list[Kept]:
    """Return what stands for what is left as it is in a segment and its translation.

    stand_ins: the places in a block and in its translation, in order
    """
    own = stand_ins[bisect_left(stand_ins, (source[0],)) : bisect_left(stand_ins, (source[1],))]
    return [Kept((place, place + 1), (copy, copy + 1)) for place, copy in own if target[0] <= copy < target[1]]


def _less(span: Span, by: int) -> Span:
    return span[0] - by, span[1] - by


def _unused(blocks: Sequence[Block]) -> Iterator[str]:
    """Yield private-use characters that no block has; raises TooManyKept when there are no more."""
    used = set[str]().union(*(block.text for block in blocks))
    yield from (character for character in map(chr, _PRIVATE_USE) if character not in used)
    raise TooManyKept
