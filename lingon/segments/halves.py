"""A text that is too large for one call, in two parts that are translated as the whole is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise

from lingon.segments.boundaries import is_blank
from lingon.segments.layout import Split, cut, mark_at
from lingon.segments.markup import read_html
from lingon.segments.markup_blocks import Block
from lingon.segments.markup_tokens import MarkupRules
from lingon.translation.v1 import translation_pb2 as pb

SPLITS = {
    pb.SENTENCE_SPLITTING_UNSPECIFIED: Split.SENTENCES,
    pb.SENTENCE_SPLITTING_ON: Split.SENTENCES,
    pb.SENTENCE_SPLITTING_NONEWLINES: Split.NONEWLINES,
}
"""Where plain text may be cut."""
REACH = 65_536  # characters on each side of the middle in which sentences are looked for
MOST_TRIES = 4  # items of lists at which a text is cut to see whether its parts are read as the whole
MOST_TAGS = 8  # around an item of a list
MOST_SIGNS = 250_000  # signs < and & of HTML that is cut, 5 µs each; as many tags as a document may have


_LINE_END = re.compile(r"\r\n|[\n\r\u2028\u2029]")
_PARAGRAPH_END = re.compile(r"(?>\r\n|\n|\r)[ \t]*+(?>\r\n|\n|\r)|\u2029")
_SENTENCE_END = re.compile(
    r"(?<![^\W\d_])[^\W\d_]{5,}+[.!?]++[\"'”’»)]{0,3}+ ++(?=[^\W\d_])|(?<=[。！？])(?![」』）”。！？])|[।؟] ++"
)
"""Ends of sentences in any language: before a large letter, after a word that is longer than an abbreviation."""


def halves(text: str, options: pb.TextOptions, language: str) -> tuple[str, str] | None:
    """Return both parts, cut between sentences or blocks, near the middle, or None if there is no such position.

    XML has none: its parts are not well-formed.
    """
    positions = [position for position in _begins(text, options, language) if 0 < position < len(text)]
    if not positions:
        return None
    at = min(positions, key=lambda position: abs(2 * position - len(text)))
    return text[:at], text[at:]


def _begins(text: str, options: pb.TextOptions, language: str) -> list[int]:
    """Return where the sentences of plain text begin, and where the blocks of HTML do, or the sentences of one block.

    No cut is within an element that is not translated, because the second part would be translated.
    """
    split = SPLITS.get(options.split_sentences)
    if options.format == pb.TEXT_FORMAT_HTML:
        if text.count("<") + text.count("&") > MOST_SIGNS:
            return []
        rules = MarkupRules.of(options.ignore_tags, options.splitting_tags, options.non_splitting_tags)
        blocks = read_html(text, rules).blocks
        positions = [
            _begin(block) for one, block in pairwise(blocks) if not block.enclosed and not _in_list(one, block)
        ]
        if not positions:
            positions = [position for block in blocks if split for position in _sentences(block, split, language)]
        return positions or list(islice(_items(text, blocks, rules), 1))
    if options.format in (pb.TEXT_FORMAT_XML, pb.TEXT_FORMAT_PIECES) or split is None:
        return []
    return _near_middle(text, split, language)


def _begins_sentence(text: str, position: int) -> bool:
    """Return whether what is after the end of a sentence is another one, and would not be read as the mark of a
    list.
    """
    return not (text[position].isspace() or text[position].islower()) and mark_at(text, position, len(text)) is None


def _begin(block: Block) -> int:
    """Return where a block may be cut off: before the tags around it if it is the first item of a list."""
    return block.begin if block.group < 0 else block.group


def _in_list(one: Block, other: Block) -> bool:
    """Return whether two blocks are in one list, which is no list any more if it is cut anywhere."""
    return other.group >= 0 and other.group == one.group


def _items(text: str, blocks: Sequence[Block], rules: MarkupRules) -> Iterator[int]:
    """Yield where the items of lists begin, the nearest to the middle first, if both parts are read as the whole is."""
    texts = [block.text for block in blocks]
    numbers = [number for number, (one, other) in enumerate(pairwise(blocks), 1) if _in_list(one, other)]
    numbers.sort(key=lambda number: abs(2 * blocks[number].begin - len(text)))
    for number in numbers[:MOST_TRIES]:
        if blocks[number].enclosed:
            continue
        position = _before_tags(text, blocks[number].begin)
        parts = [[block.text for block in read_html(part, rules).blocks] for part in (text[:position], text[position:])]
        if parts == [texts[:number], texts[number:]]:
            yield position


def _before_tags(text: str, position: int) -> int:
    """Return the position before the start tags that are right before a position."""
    for _ in range(MOST_TAGS):
        begin = text.rfind("<", 0, position)
        if begin < 0 or text[position - 1] != ">" or text.startswith("</", begin):
            break
        position = begin
    return position


def _near_middle(text: str, split: Split, language: str) -> list[int]:
    """Return where lines or sentences begin near the middle of a text, but for the first one that is read."""
    first = max(len(text) // 2 - REACH, 0)
    seen = text[first : len(text) // 2 + REACH]
    if certain := _certain(seen, split):
        return [first + position for position in certain]
    found, last = list[int](), 0
    for begin, end in _segments(seen, split, language):
        if (
            last and is_blank(seen[last:begin]) and mark_at(seen, begin, len(seen)) is None
        ):  # not within a list in a line, which is one by all its signs
            found.append(first + begin)
        last = end
    return found


def _segments(text: str, split: Split, language: str) -> list[tuple[int, int]]:
    """Return the sentences of a text, or none where sentencex is not installed, as with the base install."""
    try:
        return [span for span in cut(text, split, language) if span[0] < span[1]]
    except ModuleNotFoundError:
        return []


def _certain(text: str, split: Split) -> list[int]:
    """Return where lines begin, or paragraphs of wrapped text; without any, where sentences of any language do."""
    for pattern in (_LINE_END if split is Split.SENTENCES else _PARAGRAPH_END, _SENTENCE_END):
        positions = [found.end() for found in pattern.finditer(text) if 0 < found.end() < len(text)]
        if pattern is _SENTENCE_END:
            positions = [position for position in positions if _begins_sentence(text, position)]
        if positions:
            return positions
    return []


def _sentences(block: Block, split: Split, language: str) -> list[int]:
    """Return where the sentences of a block begin in the text, but for the first and those within an element."""
    if block.enclosed:
        return []
    outside, furthest, inlines = (
        list[int](),
        0,
        iter(block.inlines),
    )  # furthest: the end of the elements before a position
    inline = next(inlines, None)
    for begin in _near_middle(block.text, split, language):
        while inline is not None and inline.begin <= begin:
            furthest, inline = max(furthest, inline.end), next(inlines, None)
        if furthest <= begin:
            outside.append(block.map.raw_span(begin, begin)[0])
    return outside
