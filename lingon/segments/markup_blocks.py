"""The blocks of a text with markup: what is translated, with the inline tags in it."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from lingon.segments.boundaries import Span
from lingon.segments.markup_lists import is_separator
from lingon.segments.markup_structure import NOTE, WORD, Structure, divided
from lingon.segments.markup_tokens import (
    CLOSE,
    EMPTY,
    KEPT,
    OPEN,
    READINGS,
    SECTION,
    TEXT,
    CharacterReference,
    attributes_of,
    says_translate,
)
from lingon.segments.placing_alignment import Inline

# Where the characters of a block are in the text with markup.

MappedPiece = tuple[int, int, int, int]
"""A part of a block, begin and end, and where it is written in the text with markup, begin and end.

Parts of equal length are equal character by character.
"""


def is_verbatim(piece: MappedPiece) -> bool:
    """Return whether a piece is written as it is."""
    begin, end, raw_begin, raw_end = piece
    return raw_end - raw_begin == end - begin


@dataclass(frozen=True, slots=True)
class TextMap:
    """The pieces of a block in order, which cover it."""

    pieces: Sequence[MappedPiece]

    def raw_span(self, begin: int, end: int) -> Span:
        """Return where a span of the block is written, with the tags inside it but not those around it.

        A span that ends within a piece that is not written as it is grows to the whole piece.
        """
        if begin >= end:
            position = self._raw(begin)
            return position, position
        last = self.pieces[max(bisect_left(self.pieces, (end,)) - 1, 0)]
        return self._raw(begin), last[2] + end - last[0] if is_verbatim(last) else last[3]

    def spelled(self, text: str, begin: int, end: int) -> str:
        """Return a span of the block as it is written, without tags; text: with markup."""
        parts = []
        for number in range(self._number(begin), len(self.pieces)):
            piece = self.pieces[number]
            first, last, raw_begin, raw_end = piece
            if first >= end:
                break
            if is_verbatim(piece):
                raw_begin, raw_end = raw_begin + max(begin - first, 0), raw_end - max(last - end, 0)
            parts.append(text[raw_begin:raw_end])
        return "".join(parts)

    def _raw(self, position: int) -> int:
        if not self.pieces:
            return 0
        piece = self.pieces[self._number(position)]
        return piece[2] + position - piece[0] if is_verbatim(piece) else piece[2]

    def _number(self, position: int) -> int:
        """Return the number of the piece that holds a position."""
        return max(bisect_left(self.pieces, (position + 1,)) - 1, 0)


# Texts that are not between tags: the values of attributes, and CDATA sections of XML. They have no tags inside.

_BUTTONS = frozenset(["button", "reset", "submit"])  # types of a field that show their value
_DESCRIPTIONS = re.compile(
    r"description|keywords|(?:og|twitter):(?:title|description|site_name|image:alt)", re.IGNORECASE
)
_WITH_LABELS = frozenset(["menuitem", "optgroup", "option", "track"])
_STYLES = frozenset(["link", "style"])  # their titles are names that programs use
_PLAIN = re.compile(r"[^&<>\"'\xa0]++|.", re.DOTALL)
_SECTION = re.compile(r"(?:[^\]]++|\](?!\]>))++|\]\]>")


class MarkupSpelling(Enum):
    """How a text is written: between tags, in a CDATA section, or as the value of an attribute."""

    ELEMENT = "element"
    SECTION = "section"
    DOUBLE = "double"
    SINGLE = "single"
    UNQUOTED = "unquoted"


_OF_QUOTES = {'"': MarkupSpelling.DOUBLE, "'": MarkupSpelling.SINGLE}


def values_of(text: str, structure: Structure, names: frozenset[str]) -> Iterator[tuple[int, int, int, MarkupSpelling]]:
    """Yield the position of each tag with such attributes, and those of their values, without the quotation marks.

    names: of attributes, in lower case for HTML. In HTML some stand for a text in some elements only, such as value.
    """
    if not names:
        return
    html = structure.html
    for position, (kind, begin, end, name) in enumerate(structure.tokens):
        if kind not in (OPEN, EMPTY) or structure.untouched[position] or structure.kept[position]:
            continue
        found = [
            (each if not html else each._replace(name=each.name.lower())) for each in attributes_of(text, begin, end)
        ]
        if not any(each.name in names for each in found) or says_translate(text[begin:end]) is False:
            continue
        others = {each.name: text[each.begin : each.end].lower() for each in reversed(found)} if html else {}
        for each in found:
            if each.name in names and (not html or _is_text(name, each.name, others)):
                yield begin, each.begin, each.end, _OF_QUOTES.get(text[each.begin - 1], MarkupSpelling.UNQUOTED)


def _is_text(element: str, name: str, attributes: dict[str, str]) -> bool:
    """Return whether an attribute of an element of HTML is a text; attributes: all of the element, in lower case."""
    if name == "value":
        return element == "input" and attributes.get("type") in _BUTTONS
    if name == "content":
        what = attributes.get("name") or attributes.get("property") or ""
        return element == "meta" and _DESCRIPTIONS.fullmatch(what) is not None
    if name == "label":
        return element in _WITH_LABELS
    return not (name == "title" and element in _STYLES)


def write_value(value: str, spelling: MarkupSpelling, at: int, *, in_html: bool) -> tuple[str, list[MappedPiece]]:
    """Return a text as it is written, with new quotation marks if it had none, and where its characters are.

    at: where it begins in the result
    """
    parts, pieces, length = list[str](), list[MappedPiece](), 0
    start = '"' if spelling is MarkupSpelling.UNQUOTED else ""
    at += len(start)
    for part, written in _written(value, spelling, in_html=in_html):
        pieces.append((length, length + len(part), at, at + len(written)))
        parts.append(written)
        length, at = length + len(part), at + len(written)
    return f"{start}{''.join(parts)}{start}", pieces


def _written(value: str, spelling: MarkupSpelling, *, in_html: bool) -> Iterator[tuple[str, str]]:
    """Yield the parts of a value and how each is written."""
    if spelling is MarkupSpelling.SECTION:
        for found in _SECTION.finditer(value):
            yield found[0], "]]]]><![CDATA[>" if found[0] == "]]>" else found[0]
        return
    references = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
    references |= {"'": "&#39;"} if spelling is MarkupSpelling.SINGLE else {'"': "&quot;"}
    references |= {"\xa0": "&nbsp;"} if in_html else {}
    for found in _PLAIN.finditer(value):
        yield found[0], references.get(found[0], found[0])


STAND_IN = "\ufffc"
"""OBJECT REPLACEMENT CHARACTER: stands in a block for what is left as it is within a sentence."""

References = Callable[[str, int, int], Iterator[CharacterReference]]


Tags = tuple[int, int, int, int]
"""Where the tags of an element are written in the text: its start tag and its end tag. That of a point is empty."""


@dataclass(slots=True)
class Block:
    """A text without markup, in which one sentence may follow another.

    inlines: elements and points of the text, each after the one that it is in
    tags: of each of these
    kept: the positions of STAND_IN that stand for what is left as it is
    begin, end: of the block in the text with markup
    map: where its characters are written
    enclosed: whether an element around it is not translated, or it is in a tag, so that the text cannot be cut here
    spelling: how it is written
    tag: where the tag begins that a value of an attribute is in, -1 for another text
    group: of an item of a list and of what is beside it, where all of them begin, -1 for another text
    """

    text: str
    inlines: Sequence[Inline]
    tags: Sequence[Tags]
    kept: Sequence[int]
    begin: int
    end: int
    map: TextMap
    enclosed: bool = False
    spelling: MarkupSpelling = MarkupSpelling.ELEMENT
    tag: int = -1
    group: int = -1


def blocks_of(text: str, structure: Structure, references: References) -> Iterator[Block]:
    """Yield the blocks that have text, in order."""
    for group in _between_splits(structure):
        parts = list(divided(text, structure, group)) if structure.html and len(group) > 2 else [group]
        for members in parts:
            block = _block_of(text, structure, references, members)
            if block is not None:
                block.group = structure.tokens[group[0]][1] if len(parts) > 1 else -1
                yield block


def _block_of(text: str, structure: Structure, references: References, members: list[int]) -> Block | None:
    """Return the block of tokens, or None if they have no text."""
    seen = [position for position, member in enumerate(members) if _is_seen(text, structure, member)]
    if not seen:
        return None
    if len(seen) < len(members):
        members = _without_ends(structure, members, seen[0], seen[-1])
    block = _plain(text, structure, members) or _Builder(text, structure, references).build(members)
    block.enclosed = structure.enclosed[members[0]] == 1
    own = block.text.replace(STAND_IN, "") if block.kept else block.text
    return block if own.strip() and not is_separator(own) else None


def _plain(text: str, structure: Structure, members: list[int]) -> Block | None:
    """Return a block of one text without references, as most are, or None for another one."""
    kind, begin, end, _ = structure.tokens[members[0]]
    if kind == SECTION:
        return _verbatim(text, begin, end, MarkupSpelling.SECTION)
    if len(members) > 1 or kind != TEXT or text.find("&", begin, end) >= 0:
        return None
    return _verbatim(text, begin, end, MarkupSpelling.ELEMENT)


def _verbatim(text: str, begin: int, end: int, spelling: MarkupSpelling) -> Block:
    pieces = ((0, end - begin, begin, end),)
    return Block(text[begin:end], (), (), (), begin, end, TextMap(pieces), spelling=spelling)


def blocks_of_attributes(
    text: str, structure: Structure, names: frozenset[str], references: References
) -> Iterator[Block]:
    """Yield the values of attributes that have words, in order; names: see `values_of`."""
    for tag, begin, end, spelling in values_of(text, structure, names):
        block = _Builder(text, structure, references).build_value(begin, end)
        if not block.kept and any(map(str.isalpha, block.text)):
            block.spelling, block.tag, block.enclosed = spelling, tag, True
            yield block


def _between_splits(structure: Structure) -> Iterator[list[int]]:
    """Yield the tokens between what splits the text. An element that is left as it is counts by its start tag."""
    members: list[int] = []
    position, count = 0, len(structure.tokens)
    while position < count:
        if structure.splits[position] or structure.untouched[position]:
            if members:
                yield members
            members = []
        else:
            members.append(position)
            if structure.kept[position]:
                position = structure.partner[position]
        position += 1
    if members:
        yield members


def _is_seen(text: str, structure: Structure, position: int) -> bool:
    """Return whether a token is text that is not blank, or something that is left as it is and has such text."""
    kind, begin, end, _ = structure.tokens[position]
    if kind in (TEXT, SECTION):
        return not text[begin:end].isspace()
    return kind == KEPT or (kind == OPEN and structure.kept[position] == WORD and _has_text(text, structure, position))


def _has_text(text: str, structure: Structure, start: int) -> bool:
    inside = structure.tokens[start + 1 : structure.partner[start]]
    return any(kind == KEPT or (kind == TEXT and not text[begin:end].isspace()) for kind, begin, end, _ in inside)


def _without_ends(structure: Structure, members: list[int], first: int, last: int) -> list[int]:
    """Return tokens without those tags at both ends that stay there: points, and elements around the whole."""
    partner, tokens = structure.partner, structure.tokens
    begin, end = 0, len(members)
    while begin < first:
        other = partner[members[begin]] if tokens[members[begin]][0] == OPEN else -1
        if other >= 0 and members[first] < other <= members[last]:
            break
        begin += 1
    while end > last + 1:
        other = partner[members[end - 1]] if tokens[members[end - 1]][0] == CLOSE else -1
        if other >= 0 and members[begin] <= other <= members[last]:
            break
        end -= 1
    return members[begin:end]


class _Builder:
    """A builder of one block."""

    def __init__(self, text: str, structure: Structure, references: References) -> None:
        self._text, self._structure, self._references = text, structure, references
        self._parts: list[str] = []
        self._length = 0
        self._pieces: list[MappedPiece] = []
        self._kept: list[int] = []
        self._begins: list[int] = []  # of the inlines
        self._ends: list[int] = []
        self._parents: list[int] = []
        self._tags: list[Tags] = []
        self._open: list[int] = [-1]  # inlines
        self._readings: dict[int, list[Tags]] = {}  # by the inlines that they are in

    def build(self, members: list[int]) -> Block:
        """Return the block of these tokens."""
        tokens, structure = self._structure.tokens, self._structure
        for position in members:
            kind, begin, end, _ = tokens[position]
            if kind == TEXT:
                self._add_text(begin, end)
            elif kind == CLOSE and structure.partner[position] >= 0:
                for tags in self._readings.pop(self._open[-1], ()):
                    self._add_inline(tags)
                self._ends[self._open.pop()] = self._length
            elif kind == OPEN and structure.partner[position] >= 0:
                _, closing, closed, _ = tokens[structure.partner[position]]
                if structure.kept[position] == NOTE and tokens[position][3] in READINGS and self._open[-1] >= 0:
                    # After the words that it is for, all of which come before the readings in a translation.
                    self._readings.setdefault(self._open[-1], []).append((begin, closed, closed, closed))
                elif structure.kept[position]:
                    self._leave(
                        begin,
                        closed,
                        seen=structure.kept[position] == WORD and _has_text(self._text, structure, position),
                    )
                else:
                    self._add_inline((begin, end, closing, closed))
                    self._open.append(len(self._tags) - 1)
            else:
                self._leave(begin, end, seen=kind == KEPT)
        return self._block(members)

    def build_value(self, begin: int, end: int) -> Block:
        """Return the value of an attribute as a block."""
        self._add_text(begin, end)
        return Block("".join(self._parts), (), (), self._kept, begin, end, TextMap(self._pieces))

    def _block(self, members: list[int]) -> Block:
        tokens, last = self._structure.tokens, members[-1]
        if self._structure.kept[last]:
            last = self._structure.partner[last]
        return Block(
            text="".join(self._parts),
            inlines=tuple(map(Inline, self._begins, self._ends, self._parents)),
            tags=self._tags,
            kept=self._kept,
            begin=tokens[members[0]][1],
            end=tokens[last][2],
            map=TextMap(self._pieces),
        )

    def _add(self, characters: str, begin: int, end: int) -> None:
        length = self._length + len(characters)
        self._parts.append(characters)
        self._pieces.append((self._length, length, begin, end))
        self._length = length

    def _add_text(self, begin: int, end: int) -> None:
        at = begin
        if self._text.find("&", begin, end) >= 0:
            for first, last, characters in self._references(self._text, begin, end):
                if first > at:
                    self._add(self._text[at:first], at, first)
                if characters is None:
                    self._leave(first, last, seen=True)
                else:
                    self._add(characters, first, last)
                at = last
        if at < end:
            self._add(self._text[at:end], at, end)

    def _leave(self, begin: int, end: int, *, seen: bool) -> None:
        """Add what is left as it is: a character for what a reader sees, a point for the rest."""
        if seen:
            self._kept.append(self._length)
            self._add(STAND_IN, begin, end)
        else:
            self._add_inline((begin, end, end, end))

    def _add_inline(self, tags: Tags) -> None:
        self._begins.append(self._length)
        self._ends.append(self._length)
        self._parents.append(self._open[-1])
        self._tags.append(tags)
