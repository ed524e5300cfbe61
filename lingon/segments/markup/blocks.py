"""The blocks of a text with markup: what is translated, with the inline tags in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from lingon.segments.markup.items import divided
from lingon.segments.markup.lists import is_separator
from lingon.segments.markup.rules import READINGS
from lingon.segments.markup.structure import NOTE, WORD, Structure
from lingon.segments.markup.text_map import Piece, TextMap
from lingon.segments.markup.tokens.references import Reference
from lingon.segments.markup.tokens.token import CLOSE, KEPT, OPEN, SECTION, TEXT
from lingon.segments.markup.values import Spelling, values_of
from lingon.segments.placing.inlines import Inline

STAND_IN = "\ufffc"
"""OBJECT REPLACEMENT CHARACTER: stands in a block for what is left as it is within a sentence."""

References = Callable[[str, int, int], Iterator[Reference]]


Tags = tuple[int, int, int, int]
"""Where the tags of an element are written in the text: its start tag and its end tag; that of a point is empty."""


@dataclass(slots=True)
class Block:
    """A text without markup, in which one sentence may follow another.

    inlines: elements and points of the text, each after the one that it is in
    tags: of each of these
    kept: the places of STAND_IN that stand for what is left as it is
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
    spelling: Spelling = Spelling.ELEMENT
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
    """Return the block of tokens; None if they have no text."""
    seen = [place for place, member in enumerate(members) if _is_seen(text, structure, member)]
    if not seen:
        return None
    if len(seen) < len(members):
        members = _without_ends(structure, members, seen[0], seen[-1])
    block = _plain(text, structure, members) or _Builder(text, structure, references).build(members)
    block.enclosed = structure.enclosed[members[0]] == 1
    own = block.text.replace(STAND_IN, "") if block.kept else block.text
    return block if own.strip() and not is_separator(own) else None


def _plain(text: str, structure: Structure, members: list[int]) -> Block | None:
    """Return a block of one text without references, as most are; None for another one."""
    kind, begin, end, _ = structure.tokens[members[0]]
    if kind == SECTION:
        return _verbatim(text, begin, end, Spelling.SECTION)
    if len(members) > 1 or kind != TEXT or text.find("&", begin, end) >= 0:
        return None
    return _verbatim(text, begin, end, Spelling.ELEMENT)


def _verbatim(text: str, begin: int, end: int, spelling: Spelling) -> Block:
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
    """Yield the tokens between what splits the text; an element that is left as it is counts by its start tag."""
    members: list[int] = []
    place, count = 0, len(structure.tokens)
    while place < count:
        if structure.splits[place] or structure.untouched[place]:
            if members:
                yield members
            members = []
        else:
            members.append(place)
            if structure.kept[place]:
                place = structure.partner[place]
        place += 1
    if members:
        yield members


def _is_seen(text: str, structure: Structure, place: int) -> bool:
    """Whether a token is text that is not blank, or something that is left as it is and has such text."""
    kind, begin, end, _ = structure.tokens[place]
    if kind in (TEXT, SECTION):
        return not text[begin:end].isspace()
    return kind == KEPT or (kind == OPEN and structure.kept[place] == WORD and _has_text(text, structure, place))


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
    """Puts one block together."""

    def __init__(self, text: str, structure: Structure, references: References) -> None:
        self._text, self._structure, self._references = text, structure, references
        self._parts: list[str] = []
        self._length = 0
        self._pieces: list[Piece] = []
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
        for place in members:
            kind, begin, end, _ = tokens[place]
            if kind == TEXT:
                self._add_text(begin, end)
            elif kind == CLOSE and structure.partner[place] >= 0:
                for tags in self._readings.pop(self._open[-1], ()):
                    self._add_inline(tags)
                self._ends[self._open.pop()] = self._length
            elif kind == OPEN and structure.partner[place] >= 0:
                _, closing, closed, _ = tokens[structure.partner[place]]
                if structure.kept[place] == NOTE and tokens[place][3] in READINGS and self._open[-1] >= 0:
                    # After the words that it is for, all of which come before the readings in a translation.
                    self._readings.setdefault(self._open[-1], []).append((begin, closed, closed, closed))
                elif structure.kept[place]:
                    self._leave(
                        begin, closed, seen=structure.kept[place] == WORD and _has_text(self._text, structure, place)
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
