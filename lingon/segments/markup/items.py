"""Divides the tokens between two tags that split a text at the items of lists that are in them."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lingon.segments.markup.lists import (
    BARS,
    CHAINS,
    LONGEST_SEPARATOR,
    NO_TEXT,
    Sibling,
    SiblingKind,
    Surroundings,
    divide,
    element_of,
    is_separator,
    sibling_of,
)
from lingon.segments.markup.structure import HEADING, MENU, WORD, Structure
from lingon.segments.markup.tokens.token import CLOSE, EMPTY, KEPT, OPEN, TEXT, Token

_PARTS = frozenset(["data", "output", "slot", "span", "time"])
_BLANK = r"(?:\s|&(?:nbsp|ensp|emsp|thinsp|\#160|\#x[aA]0);)"
_NAMES = "bull|gt|middot|raquo|rarr|rsaquo|verbar|vert"
_SIGN = rf"(?:[{BARS}{CHAINS}]|&(?:{_NAMES}|\#(?:62|124|183|187|8226|8250)|\#x(?:3[eE]|7[cC]|[bB][7bB]|2022|203[aA]));)"
_SIGNS = re.compile(rf"{_SIGN}(?:{_BLANK}*+{_SIGN})*+{_BLANK}*+")
_BLANKS = re.compile(rf"{_BLANK}*+")
_FIRST = frozenset(BARS + CHAINS + "&")  # one of them is at the begin of a text that begins with a sign
_LAST = frozenset(BARS + CHAINS + ";")
_KEPT = Sibling(SiblingKind.TEXT, "\ufffc", "\ufffc")  # stands for what is left as it is


def with_signs(text: str, tokens: Sequence[Token]) -> list[Token]:
    """Return tokens in which signs that may separate elements are tokens of their own: those at the ends of a text."""
    found = list[Token]()
    for token in tokens:
        kind, begin, end, _ = token
        seen = text[begin:end].strip() if kind == TEXT else ""
        if seen and (seen[0] in _FIRST or seen[-1] in _LAST):
            found += ((TEXT, first, last, "") for first, last in _cut(text, begin, end))
        else:
            found.append(token)
    return found


def _cut(text: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a text: signs at its begin, the rest, and signs at its end."""
    blanks = _BLANKS.match(text, begin, end)
    assert blanks is not None
    if signs := _SIGNS.match(text, blanks.end(), end):
        yield begin, signs.end()
        begin = signs.end()
    stop = next((signs.start() for signs in _SIGNS.finditer(text, begin, end) if signs.end() == end), end)
    if begin < stop:
        yield begin, stop
    if stop < end:
        yield stop, end


@dataclass(slots=True)
class _Element:
    """An element, or all tokens; siblings: what is in it, children: the elements among these by their places."""

    start: int
    kind: SiblingKind
    parent: _Element | None = None
    tokens: list[int] = field(default_factory=list)  # of each sibling its first one
    siblings: list[Sibling] = field(default_factory=list)
    children: dict[int, _Element] = field(default_factory=dict)


def divided(text: str, structure: Structure, members: list[int]) -> Iterator[list[int]]:
    """Yield the tokens of each item of a list, and those between them; without the tags of items and separators."""
    tokens = structure.tokens
    if not _may_have_items(text, tokens, members):
        yield members
        return
    around = structure.around[members[0]]
    left_out = _left_out(structure, _tree(text, structure, members), around)
    begin = 0
    for place in sorted(left_out):
        at = bisect_left(members, place)
        if begin < at:
            yield members[begin:at]
        begin = at + 1
    if begin < len(members):
        yield members[begin:]


def _may_have_items(text: str, tokens: Sequence[Token], members: Sequence[int]) -> bool:
    """Whether there is a list, as far as a glance shows: most texts with tags have none, and are not read again."""
    last, tagged, closed = " ", False, False  # closed: whether an element has ended after the last words
    for place in members:
        kind, begin, end, _ = tokens[place]
        if kind == TEXT:
            seen = text[begin:end].strip()
            if not seen:
                last = " "
                continue
            first = text[begin]
            if seen[0] == "&" or (len(seen) < LONGEST_SEPARATOR and is_separator(seen)):
                return True
            if tagged and not (first.isspace() or last.isspace() or (first.islower() and last.islower())):
                return True
            last, tagged, closed = text[end - 1], False, False
        elif kind == OPEN and closed:
            return True
        else:
            tagged, closed = True, closed or kind == CLOSE
    return False


def _tree(text: str, structure: Structure, members: Sequence[int]) -> _Element:
    """Return the elements of tokens as a tree."""
    tokens, partner = structure.tokens, structure.partner
    stack = [_Element(-1, SiblingKind.MARK)]
    for place in members:
        kind, begin, end, name = tokens[place]
        if kind == OPEN and partner[place] >= 0 and not structure.kept[place]:
            stack.append(_Element(place, _kind_of(name, structure), stack[-1]))
            continue
        if kind == CLOSE and partner[place] >= 0:
            element = stack.pop()
            stack[-1].children[len(stack[-1].siblings)] = element
            sibling, place = element_of(element.kind, element.siblings), element.start
        elif kind == TEXT:
            sibling = sibling_of(text[begin:end], references=True)
        elif kind == KEPT or (kind == OPEN and structure.kept[place] == WORD):
            sibling = _KEPT
        elif kind == EMPTY:
            sibling = NO_TEXT
        else:
            continue
        stack[-1].tokens.append(place)
        stack[-1].siblings.append(sibling)
    return stack[0]


def _kind_of(name: str, structure: Structure) -> SiblingKind:
    if name in structure.in_sentences:
        return SiblingKind.TEXT
    return SiblingKind.LINK if name == "a" else SiblingKind.PART if name in _PARTS or "-" in name else SiblingKind.MARK


def _left_out(structure: Structure, root: _Element, around: int) -> set[int]:
    """Return the tags of items and of the elements around them, and separators."""
    found = set[int]()
    menu, heading = bool(around & MENU), bool(around & HEADING)
    waiting: list[tuple[_Element, tuple[bool, bool]]] = [(root, (True, True))]
    while waiting:
        element, sides = waiting.pop()
        division = divide(element.siblings, Surroundings(*sides, menu, heading))
        for place in division.separators:
            found.add(element.tokens[place])
        for place in division.items:
            start = element.tokens[place]
            found.update((start, structure.partner[start]))
        if division.separators or division.items:
            _leave_out(structure, element, found)
        for place, child in element.children.items():
            if child.children:
                waiting.append((child, (division.borders[place], division.borders[place + 1])))
    return found


def _leave_out(structure: Structure, element: _Element | None, found: set[int]) -> None:
    """Add the tags of an element and of those around it."""
    while element is not None and element.start >= 0 and element.start not in found:
        found.update((element.start, structure.partner[element.start]))
        element = element.parent
