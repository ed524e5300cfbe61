"""A text with other values of attributes, and where its blocks are then."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from lingon.segments.markup.blocks import Block
from lingon.segments.markup.text_map import TextMap


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
