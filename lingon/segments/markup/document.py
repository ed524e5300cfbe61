"""A text with markup as its blocks, and the text with their translations in their places."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from lingon.segments.boundaries import Span
from lingon.segments.markup.blocks import Block
from lingon.segments.markup.text_map import TextMap
from lingon.segments.markup.writing import Translated, write_block


@dataclass(frozen=True, slots=True)
class Written:
    """A text with markup that was put together.

    blocks: of the text that was translated
    shifts: for each of these, by how much it moved
    maps: by its number, where the translation of a block is; one without a map was left as it is
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

    def write(self, translations: Sequence[Translated | None]) -> Generator[None, None, Written]:
        """Return the text with a translation in place of each block; None or the block itself leaves it as it is.

        What is between the blocks is copied. The tags of a block are placed by the alignment of its segments. Yields
        between blocks, since there may be thousands.
        """
        parts: list[str] = []
        shifts: list[int] = []
        maps: dict[int, TextMap] = {}
        at = length = 0
        for block, translated in zip(self.blocks, translations, strict=True):
            shifts.append(length - at)
            if translated is not None and translated.text != block.text:
                parts.append(self.text[at : block.begin])
                length += block.begin - at
                written, pieces = write_block(self.text, block, translated, length, in_html=self.html)
                maps[len(shifts) - 1] = TextMap(pieces)
                parts.append(written)
                length += len(written)
                at = block.end
                yield
        return Written("".join([*parts, self.text[at:]]), self.blocks, shifts, maps)
