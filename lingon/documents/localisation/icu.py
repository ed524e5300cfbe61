"""ICU messages as trees: `{n, plural, one {# file} other {# files}}`, whose arms are texts.

The syntax is that of MessageFormat in the ICU user guide, "Formatting Messages". An argument without arms, such as
`{name}`, is text. What does not parse is text as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

MOST_DEPTH = 6  # of messages inside each other
MOST_GROWTH = 16  # times as long as it was: what arms that are added may make of a message

_HEAD = re.compile(
    r"\{\s*+(?P<name>[\w.\-]++)\s*+,\s*+(?P<kind>plural|selectordinal|select)\s*+,(?:\s*+offset:\s*+\d++)?"
)
_ARM = re.compile(r"\s*+(?P<selector>=\d++|[\w\-]++)\s*+\{")
_END = re.compile(r"\s*+\}")
_MARK = re.compile(r"''|'(?=[{}#|])(?:[^']++|'')*+(?:'|\Z)|[{}#]")
_NUMBERS = {"=0": "zero", "=1": "one", "=2": "two"}


@dataclass(frozen=True, slots=True)
class Number:
    """The sign `#` in an arm of a plural."""


@dataclass(frozen=True, slots=True)
class Arm:
    """What is said in one case; before: what is before its text, up to the opening brace; size: characters of both."""

    selector: str
    before: str
    nodes: Sequence[IcuNode]
    size: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", len(self.before) + length(self.nodes))


@dataclass(frozen=True, slots=True)
class Choice:
    """A message with arms; kind: plural, selectordinal or select; end: what is after the last arm."""

    head: str
    kind: str
    arms: Sequence[Arm]
    end: str


IcuNode = str | Number | Choice


def parsed(text: str) -> list[IcuNode] | None:
    """Return the tree of a text; None if it has no message with arms or is broken. Takes time linear in the text."""
    if "{" not in text or _HEAD.search(text) is None:
        return None
    return _Parser(text).parse()


class _Parser:
    """Reads a text from its begin to its end; `_open` has the messages around the place that is read."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._levels: list[list[IcuNode]] = [[]]  # of the whole, and of the arms that are open
        self._open: list[tuple[re.Match[str], list[Arm], re.Match[str]]] = []  # head, arms before, this one
        self._braces = 0  # of arguments without arms that are open

    def parse(self) -> list[IcuNode] | None:
        """Return the tree; None if it is broken."""
        for mark in _MARK.finditer(self._text):
            if mark.start() < self._at:
                continue  # a part of a head or of the begin of an arm
            if mark[0] == "{" and not self._read_opening(mark):
                return None
            if mark[0] == "}" and not self._read_closing(mark):
                return None
            if mark[0] == "#" and not self._braces and self._in_plural:
                self._add_text(mark.start())
                self._levels[-1].append(Number())
                self._at = mark.end()
        if self._open or self._braces:
            return None
        self._add_text(len(self._text))
        return self._levels[0]

    @property
    def _in_plural(self) -> bool:
        return any(head["kind"] != "select" for head, _, _ in self._open)

    def _read_opening(self, brace: re.Match[str]) -> bool:
        head = None if self._braces else _HEAD.match(self._text, brace.start())
        if head is None:
            self._braces += 1
            return True
        self._add_text(brace.start())
        arm = _ARM.match(self._text, head.end())
        if arm is None or len(self._open) >= MOST_DEPTH:
            return False
        self._begin(head, [], arm)
        return True

    def _read_closing(self, brace: re.Match[str]) -> bool:
        if self._braces:
            self._braces -= 1
            return True
        if not self._open:
            return False
        self._add_text(brace.start())
        head, arms, arm = self._open.pop()
        arms.append(Arm(arm["selector"], arm[0], self._levels.pop()))
        following = _ARM.match(self._text, brace.end())
        if following is not None:
            self._begin(head, arms, following)
            return True
        end = _END.match(self._text, brace.end())
        if end is None:
            return False
        self._levels[-1].append(Choice(head[0], head["kind"], arms, end[0]))
        self._at = end.end()
        return True

    def _begin(self, head: re.Match[str], arms: list[Arm], arm: re.Match[str]) -> None:
        self._open.append((head, arms, arm))
        self._levels.append([])
        self._at = arm.end()

    def _add_text(self, end: int) -> None:
        if end > self._at:
            self._levels[-1].append(self._text[self._at : end])
        self._at = end


def with_categories(nodes: Sequence[IcuNode], categories: Callable[[str], Sequence[str]]) -> list[IcuNode]:
    """Return a message in which each plural has an arm for each category of a language, those that lack from `other`.

    categories: of a kind, plural or selectordinal
    A message that would grow too much, since its plurals are inside each other, gets none.
    """
    grown = _grown(nodes, categories)
    return grown if length(grown) <= MOST_GROWTH * length(nodes) else list(nodes)


def _grown(nodes: Sequence[IcuNode], categories: Callable[[str], Sequence[str]]) -> list[IcuNode]:
    found: list[IcuNode] = []
    for node in nodes:
        if not isinstance(node, Choice):
            found.append(node)
            continue
        arms = [Arm(arm.selector, arm.before, _grown(arm.nodes, categories)) for arm in node.arms]
        present = {_NUMBERS.get(arm.selector, arm.selector) for arm in arms} | {arm.selector for arm in arms}
        other = next((place for place, arm in enumerate(arms) if arm.selector == "other"), None)
        if node.kind != "select" and other is not None:
            lacking = [category for category in categories(node.kind) if category not in present]
            arms[other:other] = [_copy(arms[other], category) for category in lacking]
        found.append(Choice(node.head, node.kind, arms, node.end))
    return found


def _copy(other: Arm, category: str) -> Arm:
    blanks = other.before[: len(other.before) - len(other.before.lstrip())]
    return Arm(category, f"{blanks or ' '}{category}{other.before.lstrip().removeprefix('other')}", other.nodes)


def length(nodes: Sequence[IcuNode]) -> int:
    """Return how many characters a message has."""
    found = 0
    for node in nodes:
        if isinstance(node, str):
            found += len(node)
        elif isinstance(node, Number):
            found += 1
        else:
            found += len(node.head) + sum(arm.size + 1 for arm in node.arms) + len(node.end)
    return found
