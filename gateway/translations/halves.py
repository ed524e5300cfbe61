"""A text that is too large for one call, in two parts that are translated as the whole is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, pairwise

from lingon.segments.document import Split, cut
from lingon.segments.markup import Block, MarkupRules, read_html
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


def halves(text: str, options: pb.TextOptions, language: str) -> tuple[str, str] | None:
    """Return both parts, cut between sentences or blocks, near the middle; None if there is no such place.

    XML has none: its parts are not well-formed.
    """
    places = [place for place in _begins(text, options, language) if 0 < place < len(text)]
    if not places:
        return None
    at = min(places, key=lambda place: abs(2 * place - len(text)))
    return text[:at], text[at:]


def _begins(text: str, options: pb.TextOptions, language: str) -> list[int]:
    """Return where the sentences of plain text begin, and where the blocks of HTML do, or the sentences of one block.

    No place is within an element that is not translated, because the second part would be translated.
    """
    split = SPLITS.get(options.split_sentences)
    if options.format == pb.TEXT_FORMAT_HTML:
        if text.count("<") + text.count("&") > MOST_SIGNS:
            return []
        rules = MarkupRules.of(options.ignore_tags, options.splitting_tags, options.non_splitting_tags)
        blocks = read_html(text, rules).blocks
        places = [_begin(block) for one, block in pairwise(blocks) if not block.enclosed and not _in_list(one, block)]
        if not places:
            places = [place for block in blocks if split for place in _sentences(block, split, language)]
        return places or list(islice(_items(text, blocks, rules), 1))
    if options.format in (pb.TEXT_FORMAT_XML, pb.TEXT_FORMAT_PIECES) or split is None:
        return []
    return _near_middle(text, split, language)


def _begin(block: Block) -> int:
    """Return where a block may be cut off: before the tags around it if it is the first item of a list."""
    return block.begin if block.group < 0 else block.group


def _in_list(one: Block, other: Block) -> bool:
    """Whether two blocks are in one list, which is no list any more if it is cut anywhere."""
    return other.group >= 0 and other.group == one.group


def _items(text: str, blocks: Sequence[Block], rules: MarkupRules) -> Iterator[int]:
    """Yield where the items of lists begin, the nearest to the middle first, if both parts are read as the whole is."""
    texts = [block.text for block in blocks]
    numbers = [number for number, (one, other) in enumerate(pairwise(blocks), 1) if _in_list(one, other)]
    numbers.sort(key=lambda number: abs(2 * blocks[number].begin - len(text)))
    for number in numbers[:MOST_TRIES]:
        if blocks[number].enclosed:
            continue
        place = _before_tags(text, blocks[number].begin)
        parts = [[block.text for block in read_html(part, rules).blocks] for part in (text[:place], text[place:])]
        if parts == [texts[:number], texts[number:]]:
            yield place


def _before_tags(text: str, place: int) -> int:
    """Return the place before the start tags that are right before a place."""
    for _ in range(MOST_TAGS):
        begin = text.rfind("<", 0, place)
        if begin < 0 or text[place - 1] != ">" or text.startswith("</", begin):
            break
        place = begin
    return place


def _near_middle(text: str, split: Split, language: str) -> list[int]:
    """Return where sentences begin near the middle of a text, but for the first one that is read."""
    first = max(len(text) // 2 - REACH, 0)
    return [first + begin for begin, _ in cut(text[first : len(text) // 2 + REACH], split, language)][1:]


def _sentences(block: Block, split: Split, language: str) -> list[int]:
    """Return where the sentences of a block begin in the text, but for the first and those within an element."""
    if block.enclosed:
        return []
    outside, furthest, inlines = list[int](), 0, iter(block.inlines)  # furthest: the end of the elements before a place
    inline = next(inlines, None)
    for begin in _near_middle(block.text, split, language):
        while inline is not None and inline.begin <= begin:
            furthest, inline = max(furthest, inline.end), next(inlines, None)
        if furthest <= begin:
            outside.append(block.map.raw_span(begin, begin)[0])
    return outside
