"""A text with markup as its blocks, and the text with their translations in their places."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from lingon.segments.boundaries import Span
from lingon.segments.markup.blocks import Block
from lingon.segments.markup.moving import with_values
from lingon.segments.markup.text_map import Piece, TextMap
from lingon.segments.markup.values import Spelling, write_value
from lingon.segments.markup.writing import Translated, write_block


@dataclass(frozen=True, slots=True)
class Written:
    """A text with markup that was put together.

    blocks: of the text that was translated, with the new values of its attributes
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
        values = self._values(translations)
        text, blocks = with_values(self.text, self.blocks, {number: value for number, (value, _) in values.items()})
        parts: list[str] = []
        shifts: list[int] = []
        maps: dict[int, TextMap] = {}
        tags: dict[int, int] = {}  # where the tags of the last block that was translated are written, by their places
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
        return Written("".join([*parts, text[at:]]), blocks, shifts, maps)

    def _values(self, translations: Sequence[Translated | None]) -> dict[int, tuple[str, list[Piece]]]:
        """Return the translations of values of attributes as they are written, and their pieces, by their blocks."""
        return {
            number: write_value(translated.text, block.spelling, 0, in_html=self.html)
            for number, (block, translated) in enumerate(zip(self.blocks, translations, strict=True))
            if block.tag >= 0 and translated is not None and translated.text != block.text
        }

    def _write_block(
        self, text: str, block: Block, translated: Translated, at: int, tags: dict[int, int]
    ) -> tuple[str, list[Piece]]:
        if block.spelling is Spelling.SECTION:
            return write_value(translated.text, block.spelling, at, in_html=self.html)
        return write_block(text, block, translated, at, in_html=self.html, tags=tags)


def _shifted(pieces: Sequence[Piece], by: int) -> TextMap:
    return TextMap([(begin, end, first + by, last + by) for begin, end, first, last in pieces])
