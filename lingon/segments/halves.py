"""A text that is too large for one call, in two parts that are translated as the whole is."""

from __future__ import annotations

import re

from lingon.segments.boundaries import is_blank
from lingon.segments.document import Split, cut
from lingon.segments.layout.marks import mark_at
from lingon.segments.markup import Block, MarkupRules, read_html
from lingon.translation.v1 import translation_pb2 as pb

SPLITS = {
    pb.SENTENCE_SPLITTING_UNSPECIFIED: Split.SENTENCES,
    pb.SENTENCE_SPLITTING_ON: Split.SENTENCES,
    pb.SENTENCE_SPLITTING_NONEWLINES: Split.NONEWLINES,
}
"""Where plain text may be cut."""
REACH = 65_536  # characters on each side of the middle in which sentences are looked for
MOST_SIGNS = 250_000  # signs < and & of HTML that is cut, 5 µs each; as many tags as a document may have


_LINE_END = re.compile(r"\r\n|[\n\r\u2028\u2029]")
_PARAGRAPH_END = re.compile(r"(?>\r\n|\n|\r)[ \t]*+(?>\r\n|\n|\r)|\u2029")
_SENTENCE_END = re.compile(
    r"(?<![^\W\d_])[^\W\d_]{5,}+[.!?]++[\"'”’»)]{0,3}+ ++(?=[^\W\d_])|(?<=[。！？])(?![」』）”。！？])|[।؟] ++"
)
"""Ends of sentences in any language: before a large letter, after a word that is longer than an abbreviation."""


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
        places = [block.begin for block in blocks[1:] if not block.enclosed]
        return places or [place for block in blocks if split for place in _sentences(block, split, language)]
    if options.format in (pb.TEXT_FORMAT_XML, pb.TEXT_FORMAT_PIECES) or split is None:
        return []
    return _near_middle(text, split, language)


def _begins_sentence(text: str, place: int) -> bool:
    """Whether what is after the end of a sentence is another one, and would not be read as the mark of a list."""
    return not (text[place].isspace() or text[place].islower()) and mark_at(text, place, len(text)) is None


def _near_middle(text: str, split: Split, language: str) -> list[int]:
    """Return where lines or sentences begin near the middle of a text, but for the first one that is read."""
    first = max(len(text) // 2 - REACH, 0)
    seen = text[first : len(text) // 2 + REACH]
    if certain := _certain(seen, split):
        return [first + place for place in certain]
    found, last = list[int](), 0
    for begin, end in _segments(seen, split, language):
        if (
            last and is_blank(seen[last:begin]) and mark_at(seen, begin, len(seen)) is None
        ):  # not within a list in a line, which is one by all its signs
            found.append(first + begin)
        last = end
    return found


def _segments(text: str, split: Split, language: str) -> list[tuple[int, int]]:
    """Return the sentences of a text; none where sentencex is not installed, as with the base install."""
    try:
        return [span for span in cut(text, split, language) if span[0] < span[1]]
    except ModuleNotFoundError:
        return []


def _certain(text: str, split: Split) -> list[int]:
    """Return where lines begin, or paragraphs of wrapped text; without any, where sentences of any language do."""
    for pattern in (_LINE_END if split is Split.SENTENCES else _PARAGRAPH_END, _SENTENCE_END):
        places = [found.end() for found in pattern.finditer(text) if 0 < found.end() < len(text)]
        if pattern is _SENTENCE_END:
            places = [place for place in places if _begins_sentence(text, place)]
        if places:
            return places
    return []


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
