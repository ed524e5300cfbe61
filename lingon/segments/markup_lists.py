"""Which elements beside each other are a list, such as the links of a menu, and no parts of one sentence.

Nothing in HTML says so: `<a>Home</a> <a>About us</a>` is a menu, `<a>German</a> <a>composer</a>` is none. What decides
is what stands between and beside the elements, what they are, and how their texts begin and end. What is not sure stays
one sentence.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

LONGEST_END = 16  # characters of a text that are looked at, at each of its ends
LONGEST_SEPARATOR = 12  # characters of a text that may be a separator
_LONGEST_WRITTEN = 160  # characters of a separator with its references, such as &nbsp;

BARS = "|\u00a6\u2016\u2022\u2502\u2503\u2758\u25cf\u25aa\u2023\u2219\u00b7\u22c5"
"""Characters that separate the elements beside them from whatever is on the other side."""

CHAINS = "/>\u203a\u00bb\u2192\u25b8\u25b6\u276f"
"""Characters that stand between the steps of a path to a page, the last of which is often no element."""

_SEPARATORS = frozenset(BARS + CHAINS + "\\\u2039\u00ab\u2190*~:;,-\u2013\u2014\u25e6")
_BAR_CHARACTERS, _CHAIN_CHARACTERS = frozenset(BARS), frozenset(CHAINS)
_ONLY_LINKS = frozenset(",;:")  # separate links alone: they are between the words of a sentence too
_DASHES = frozenset("-\u2013\u2014*~")  # separate other elements only with white space around them
_SENTENCE_ENDS = ".!?\u2026\u3002\uff01\uff1f\u061f\u0964"
_COLONS = ":\uff1a"
_LAST_WORD = re.compile(r"[^\W\d_]+\Z")
_FIRST_WORD = re.compile(r"[^\W\d_]+")
_SPACELESS = re.compile(
    r"[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uff9f]"
)


class SiblingKind(Enum):
    """What one of several siblings is.

    BLANK: white space, or something without text, such as a picture
    SEPARATOR: text that may separate the elements beside it, BAR: text that does
    PART: an element without a meaning, such as span; MARK: one that belongs to a sentence, such as b
    """

    BLANK = "blank"
    TEXT = "text"
    SEPARATOR = "separator"
    BAR = "bar"
    LINK = "link"
    PART = "part"
    MARK = "mark"


_ELEMENTS = frozenset([SiblingKind.LINK, SiblingKind.PART, SiblingKind.MARK])
_ITEMS = frozenset([SiblingKind.LINK, SiblingKind.PART])


class Sibling(NamedTuple):
    """A text or an element beside others.

    head, tail: the first and the last characters of its text that are not blank
    spaced_before, spaced_after: whether its text begins and ends with white space
    separator: the characters of one that may be a separator
    """

    kind: SiblingKind
    head: str = ""
    tail: str = ""
    spaced_before: bool = False
    spaced_after: bool = False
    separator: str = ""


NO_TEXT = Sibling(SiblingKind.BLANK)


def sibling_of(text: str, *, references: bool = False) -> Sibling:
    """Return a text as a sibling; references: whether it is written with those of HTML."""
    seen = text.strip()
    if not seen:
        return NO_TEXT
    head, tail = seen[: 3 * LONGEST_END], seen[-3 * LONGEST_END :]
    if references and "&" in seen:
        head, tail = html.unescape(head), html.unescape(tail)
        if len(seen) <= _LONGEST_WRITTEN:
            seen = html.unescape(seen).strip()
            head, tail = (head, tail) if seen else ("", "")
    before, after = text[0].isspace() or head[:1].isspace(), text[-1].isspace() or tail[-1:].isspace()
    head, tail = head.strip()[:LONGEST_END], tail.strip()[-LONGEST_END:]
    if not head or not tail:
        return NO_TEXT
    separator = "".join(seen.split()) if len(seen) <= LONGEST_SEPARATOR and is_separator(seen) else ""
    kind = (
        SiblingKind.TEXT
        if not separator
        else SiblingKind.BAR
        if _BAR_CHARACTERS.issuperset(separator)
        else SiblingKind.SEPARATOR
    )
    return Sibling(kind, head, tail, before, after, separator)


def is_separator(text: str) -> bool:
    """Return whether a text is nothing but signs that separate texts, and blanks."""
    return len(text) <= _LONGEST_WRITTEN and _SEPARATORS.issuperset("".join(text.split()))


def is_bar(text: str) -> bool:
    """Return whether a text is nothing but bars and blanks, or blank."""
    return text.isspace() or (len(text) <= _LONGEST_WRITTEN and _BAR_CHARACTERS.issuperset("".join(text.split())))


def element_of(kind: SiblingKind, children: Sequence[Sibling]) -> Sibling:
    """Return an element as a sibling. One around nothing but a link is a link.

    kind: without that. TEXT for an element that is no item, whatever is beside it
    """
    seen = [child for child in children if child.kind is not SiblingKind.BLANK]
    if not seen:
        return NO_TEXT
    if kind is not SiblingKind.TEXT and len(seen) == 1 and seen[0].kind is SiblingKind.LINK:
        kind = SiblingKind.LINK
    head, tail = "", ""
    for child in seen:
        if len(head) >= LONGEST_END or (child.spaced_before and head):
            break
        head += child.head
        if child.spaced_after:
            break
    for child in reversed(seen):
        if len(tail) >= LONGEST_END or (child.spaced_after and tail):
            break
        tail = child.tail + tail
        if child.spaced_before:
            break
    before = seen[0].spaced_before or children[0].kind is SiblingKind.BLANK
    after = seen[-1].spaced_after or children[-1].kind is SiblingKind.BLANK
    return Sibling(kind, head[:LONGEST_END], tail[-LONGEST_END:], before, after)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is around siblings.

    before, after: whether no sentence goes on into them from what is before them, and none after them
    menu, heading: whether they are in a menu, where elements are items, and in a heading, which is one sentence
    """

    before: bool = True
    after: bool = True
    menu: bool = False
    heading: bool = False


@dataclass(frozen=True, slots=True)
class Division:
    """Which siblings are translated alone, and which are separators between them that stay; both by their positions.

    borders: for each sibling and the end, whether no sentence goes on from what is before it
    """

    items: Sequence[int]
    separators: Sequence[int]
    borders: Sequence[bool]


_NONE, _FREE, _REAL = 0, 1, 2  # no border; one that may be, because a text begins or ends there; one beside an item


def divide(siblings: Sequence[Sibling], around: Surroundings) -> Division:
    """Return what of siblings is translated alone; in time linear in their number."""
    positions = [position for position, sibling in enumerate(siblings) if sibling.kind is not SiblingKind.BLANK]
    seen = _Seen([siblings[position] for position in positions], _spaces(siblings, positions), around)
    items, separators = seen.divided()
    borders, number = list[bool](), 0
    for position in range(len(siblings) + 1):
        borders.append(seen.gaps[number] > _NONE)
        number += number < len(positions) and positions[number] == position
    return Division([positions[each] for each in items], [positions[each] for each in separators], borders)


def _spaces(siblings: Sequence[Sibling], positions: Sequence[int]) -> list[bool]:
    """Return for each of the siblings that are seen, but the first, whether there is white space before it."""
    return [
        after - before > 1 or siblings[before].spaced_after or siblings[after].spaced_before
        for before, after in pairwise(positions)
    ]


class _Seen:
    """Siblings that have text; gaps: of each the border before it, and of the last one that after it."""

    def __init__(self, siblings: list[Sibling], spaces: Sequence[bool], around: Surroundings) -> None:
        self._siblings, self._spaces, self._around = siblings, spaces, around
        self.gaps = [_NONE] * (len(siblings) + 1)
        if around.before:
            self.gaps[0] = _FREE
        if around.after:
            self.gaps[-1] = _FREE
        self._separators: list[int] = []

    def divided(self) -> tuple[list[int], list[int]]:
        """Return the items and the separators."""
        gaps = self.gaps
        if all(sibling.kind not in _ELEMENTS for sibling in self._siblings):
            return [], []
        if self._around.before and self._around.after:
            self._find_bars()
        self._find_borders()
        for begin, end in self._runs():
            if gaps[begin] and gaps[end] and self._is_list(begin, end):
                self._divide(begin, end)
        items = [
            position
            for position, sibling in enumerate(self._siblings)
            if sibling.kind in _ELEMENTS
            and gaps[position]
            and gaps[position + 1]
            and (gaps[position] == _REAL or gaps[position + 1] == _REAL)
        ]
        return items, sorted(self._separators)

    def _find_bars(self) -> None:
        """Find bars beside elements.

        They have white space on both sides or on none, unlike those of |x|, or are between two elements. A short text
        on a side, unless it is of a link or a span, is a variable of a formula such as P(A | B).
        """
        siblings, spaces, last = self._siblings, self._spaces, len(self._siblings) - 1
        for position, sibling in enumerate(siblings):
            if sibling.kind is SiblingKind.BAR:
                beside = [siblings[each] for each in (position - 1, position + 1) if 0 <= each <= last]
                elements = [each.kind in _ELEMENTS for each in beside]
                alike = position in (0, last) or all(elements) or spaces[position - 1] == spaces[position]
                sure = any(each.kind in _ITEMS for each in beside) or all(len(each.head) > 2 for each in beside)
                if alike and any(elements) and sure:
                    self._separate(position)

    def _separate(self, position: int) -> None:
        self._separators.append(position)
        self.gaps[position] = self.gaps[position + 1] = _REAL

    def _find_borders(self) -> None:
        """Find where words end because something else begins, and where a sentence may end."""
        for position, (one, other) in enumerate(pairwise(self._siblings), start=1):
            if self.gaps[position] == _REAL or (one.kind not in _ELEMENTS and other.kind not in _ELEMENTS):
                continue
            if self._spaces[position - 1]:
                ends = one.tail[-1] in _SENTENCE_ENDS + _COLONS
                self.gaps[position] = max(self.gaps[position], _FREE if ends else _NONE)
            elif one.kind is other.kind is SiblingKind.LINK:
                self.gaps[position] = _REAL
                for outer in (position - 1, position + 1):  # they are translated alone even if they are in a sentence
                    self.gaps[outer] = max(self.gaps[outer], _FREE)
            elif _is_border(one, other):
                self.gaps[position] = _REAL

    def _runs(self) -> list[tuple[int, int]]:
        """Return the ranges of siblings that may be items, with what may separate them."""
        found, begin = list[tuple[int, int]](), -1
        for position, sibling in enumerate([*self._siblings, NO_TEXT]):
            if sibling.kind in _ITEMS or sibling.kind is SiblingKind.SEPARATOR or self._is_step(position):
                begin = position if begin < 0 else begin
            elif begin >= 0:
                found.append((begin, position))
                begin = -1
        return found

    def _is_step(self, position: int) -> bool:
        """Return whether a sibling is a text between the signs of a path."""
        if position >= len(self._siblings) or self._siblings[position].kind is not SiblingKind.TEXT:
            return False
        beside = self._siblings[max(position - 1, 0) : position] + self._siblings[position + 1 : position + 2]
        return bool(beside) and all(_CHAIN_CHARACTERS.issuperset(each.separator or " ") for each in beside)

    def _are_one(self, position: int) -> bool:
        """Return whether a sibling goes on with the word of the one before it."""
        kinds = [sibling.kind for sibling in self._siblings[position - 1 : position + 1]]
        return not (self._spaces[position - 1] or self.gaps[position] == _REAL or SiblingKind.SEPARATOR in kinds)

    def _is_list(self, begin: int, end: int) -> bool:
        """Return whether what is in a range is the items of a list."""
        run = self._siblings[begin:end]
        items = [sibling for sibling in run if sibling.kind is not SiblingKind.SEPARATOR]
        separators = {sibling.separator for sibling in run if sibling.kind is SiblingKind.SEPARATOR}
        if len(items) < 2 or any(self._are_one(position) for position in range(begin + 1, end)):
            return False
        low = [item.head[0].islower() or item.head[0] in "([" for item in items]  # goes on with what is before it
        if all(item.kind is SiblingKind.LINK for item in items):
            return self._around.menu or len(items) > 2 or not any(low[1:]) or not separators <= _ONLY_LINKS
        if separators & _ONLY_LINKS or (separators & _DASHES and not all(self._spaces[begin : end - 1])):
            return False
        if self._around.menu:
            return True
        ends = [item.tail[-1] in _SENTENCE_ENDS for item in items]
        caseless = any(_is_caseless(item.head[0]) for item in items)
        return not (self._around.heading or any(low) or caseless or (ends[-1] and not all(ends)))

    def _divide(self, begin: int, end: int) -> None:
        for position in range(begin, end):
            if self._siblings[position].kind is SiblingKind.SEPARATOR:
                self._separate(position)
            elif position > begin:
                self.gaps[position] = _REAL


def _is_border(one: Sibling, other: Sibling) -> bool:
    """Return whether no word goes on from a sibling to the next one, without white space between them.

    What could be one word, such as H2O, 5km or the name of a program, is taken for one, except between two elements
    without a meaning. The elements that belong to sentences only end after a mark.
    """
    last, first = one.tail[-1], other.head[0]
    if not first.isalnum():
        return False
    if last in _COLONS or last in ";!?":
        return one.tail[-2:-1].isalpha()
    if last == ".":
        return one.tail[-3:-1].islower() and first.isupper()
    elements = one.kind in _ELEMENTS and other.kind in _ELEMENTS
    if not elements and SiblingKind.MARK in (one.kind, other.kind):
        return False
    word, following = _LAST_WORD.search(one.tail), _FIRST_WORD.match(other.head)
    before, after = word[0] if word else "", following[0] if following else ""
    if first.isdigit():
        return len(before) > 2 and (before.islower() or before.istitle() or (len(before) > 3 and before.isupper()))
    if len(after) < 2 or (before and len(before) < 2):
        return False
    if last.isdigit() or last in ")]%":
        return len(after) > 2 and after.istitle()
    if not before:
        return False
    if first.isupper():
        return last.islower() or (elements and last.isupper())
    return elements and _is_caseless(last) and _is_caseless(first) and not _SPACELESS.match(first)


def _is_caseless(character: str) -> bool:
    return character.isalpha() and character.lower() == character.upper()
