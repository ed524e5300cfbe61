"""The structure of a text with markup: which tags belong together, and which of them split the text."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lingon.segments.markup_lists import (
    BARS,
    CHAINS,
    LONGEST_SEPARATOR,
    NO_TEXT,
    Sibling,
    SiblingKind,
    Surroundings,
    divide,
    element_of,
    is_bar,
    is_separator,
    sibling_of,
)
from lingon.segments.markup_tokens import (
    BLOCKS,
    CLOSE,
    EMPTY,
    ENDS_IMPLIED,
    KEPT,
    OPEN,
    READINGS,
    SPLIT,
    TEXT,
    UNTOUCHED,
    MarkupRules,
    MarkupToken,
    says_translate,
)

# Which tags belong together, which of them split the text, and what is left as it is.

MAX_DEPTH = 64  # inline elements in one another; a deeper one splits the text, and so does each around it

WORD, NOTE = 1, 2
MENU, HEADING = 1, 2
_AROUND = {"menu": MENU, "nav": MENU, **dict.fromkeys(("h1", "h2", "h3", "h4", "h5", "h6", "title"), HEADING)}
_NOTE_TAGS = frozenset(["a", "sup"])
_NOTE_TOKENS = 6  # a mark of a note has fewer: <a><sup>1</sup></a>
_NOTE_CHARACTERS = 12
_HIDDEN = re.compile(r"""[\s"'/]type\s*+=\s*+["']?hidden\b""", re.IGNORECASE)
_BEFORE_NOTE = re.compile(r"""[\w.,;:!?)\]"'\u2019\u201d\u00bb\u2026]""")


@dataclass(slots=True)
class Structure:
    """What the tokens of a text are to each other. Every list has an entry for each token.

    html: whether they are tokens of HTML
    in_sentences: names of elements that are no items of lists
    partner: of a start or end tag the other one, -1 without. Of a reading without an end tag the last token in it
    splits: 1 for a tag at which the text is split
    untouched: 1 for a token within an element that is not translated
    kept: for the start tag of an element that is not translated and belongs to the sentence around it: WORD, or NOTE
        for a mark of a note and for a reading, which are beside a word and are none
    enclosed: 1 for a token around which an element is not translated, though an element in that one may be
    around: for a token in an element of HTML: MENU, HEADING, their sum or 0
    """

    tokens: Sequence[MarkupToken]
    html: bool
    in_sentences: frozenset[str]
    partner: list[int] = field(init=False)
    splits: bytearray = field(init=False)
    untouched: bytearray = field(init=False)
    kept: bytearray = field(init=False)
    enclosed: bytearray = field(init=False)
    around: bytearray = field(init=False)

    def __post_init__(self) -> None:
        count = len(self.tokens)
        self.partner = [-1] * count
        self.splits, self.untouched = bytearray(count), bytearray(count)
        self.kept, self.enclosed, self.around = bytearray(count), bytearray(count), bytearray(count)


def structure_of(text: str, tokens: Sequence[MarkupToken], rules: MarkupRules, *, html: bool) -> Structure:
    """Return the structure of a text, in time linear in its tokens."""
    reader = _StructureReader(text, tokens, rules, _elements_with_text(text, tokens) if not html else None)
    for position, (kind, begin, end, name) in enumerate(tokens):
        if kind == OPEN:
            reader.open(position, name, begin, end)
        elif kind == CLOSE:
            reader.close(position, name)
        elif kind != TEXT or reader.is_untouched:
            reader.leaf(position, kind, name)
        if reader.is_enclosed:
            reader.found.enclosed[position] = 1
        if reader.around:
            reader.found.around[position] = reader.around
    reader.end()
    return reader.found


def _elements_with_text(text: str, tokens: Sequence[MarkupToken]) -> bytearray:
    """Return 1 for each start tag of well-formed XML whose element has text of its own. The last entry is the whole.

    Bars between elements are none.
    """
    found = bytearray(len(tokens) + 1)
    stack = [len(tokens)]
    for position, (kind, begin, end, _) in enumerate(tokens):
        if kind == OPEN:
            stack.append(position)
        elif kind == CLOSE:
            stack.pop()
        elif kind == KEPT or (kind == TEXT and not is_bar(text[begin:end])):
            found[stack[-1]] = 1
    return found


class _StructureReader:
    """The elements that are open at a token.

    with_text: of XML, see `_elements_with_text`: in an element with text of its own, tags belong to a sentence
    """

    def __init__(
        self, text: str, tokens: Sequence[MarkupToken], rules: MarkupRules, with_text: bytearray | None
    ) -> None:
        self.found = Structure(tokens, with_text is None, rules.non_splitting_tags)
        self._text, self._tokens, self._rules, self._with_text = text, tokens, rules, with_text
        self._stack: list[int] = []  # start tags of the elements that are open
        self._inline: list[bool] = [False]  # of these, and of the whole: whether they belong to a sentence
        self._untouched: list[bool] = [False]  # of these, and of the whole: whether the content is not translated
        self._untranslated = 0  # of these, how many are not
        self._open: dict[str, int] = {}  # by name: how many elements are open
        self.around = 0  # MENU, HEADING, their sum or 0 for what comes now
        self._outside: list[int] = []  # the same for what is outside of the elements that are menus or headings
        self._split_to = 0  # so many elements of the stack, from its bottom, are known to split the text
        html = with_text is None
        self._splitting = rules.splitting_tags | (BLOCKS - rules.non_splitting_tags if html else frozenset())
        self._ignored = rules.ignore_tags | (UNTOUCHED if html else frozenset())

    @property
    def _is_html(self) -> bool:
        return self._with_text is None

    @property
    def is_untouched(self) -> bool:
        """Whether what comes now is not translated."""
        return self._untouched[-1]

    @property
    def is_enclosed(self) -> bool:
        """Whether an open element is not translated."""
        return self._untranslated > 0

    def open(self, position: int, name: str, begin: int, end: int) -> None:
        """Read a start tag."""
        splits = self._splits(name)
        if self._is_html:
            self._end_implied(position, name, splits)
        outside, untouched = self._untouched[-1], self._untouched[-1]
        said = says_translate(self._text[begin:end]) if end - begin > len(name) + 2 else None
        if said is False or name in self._ignored:
            untouched = True
        elif said:
            untouched = False
        note = (
            not untouched
            and self._is_html
            and ((name in READINGS and not said) or self._is_note(position, name, begin))
        )
        untouched = untouched or note
        self.found.untouched[position] = outside
        self.found.kept[position] = 0 if outside or not untouched else NOTE if note else WORD
        inline = not splits
        splits = splits or (outside and not untouched) or len(self._stack) - self._split_to >= MAX_DEPTH
        self._stack.append(position)
        self._inline.append(inline)
        self._untouched.append(untouched)
        self._untranslated += untouched
        if name in _AROUND and self._is_html:
            self._outside.append(self.around)
            self.around |= _AROUND[name]
        self._open[name] = self._open.get(name, 0) + 1
        if splits:
            self._split()

    def close(self, position: int, name: str) -> None:
        """Read an end tag, which may be of no element."""
        if self._open.get(name):
            while True:
                start = self._pop()
                if self._tokens[start][3] == name:
                    break
                self._without_end(start, position)
            self.found.partner[start], self.found.partner[position] = position, start
            self.found.splits[position] = self.found.splits[start]
        elif name in self._splitting:
            self._split()
            self.found.splits[position] = 1
        self.found.untouched[position] = self._untouched[-1]

    def leaf(self, position: int, kind: int, name: str) -> None:
        """Read what is neither a start nor an end tag."""
        self.found.untouched[position] = self._untouched[-1]
        if kind == SPLIT or (kind == EMPTY and self._splits(name) and not self._is_hidden(position, name)):
            self._split()
            self.found.splits[position] = 1

    def end(self) -> None:
        """Read the end of the text."""
        while self._stack:
            self._without_end(self._pop(), len(self._tokens))

    def _splits(self, name: str) -> bool:
        """Return whether an element splits the text by its name or, in XML, by what is around it."""
        if self._is_html or name in self._splitting:
            return name in self._splitting
        parent = self._stack[-1] if self._stack else len(self._tokens)
        assert self._with_text is not None
        return not (name in self._rules.non_splitting_tags or self._inline[-1] or self._with_text[parent])

    def _is_hidden(self, position: int, name: str) -> bool:
        """Return whether an element of HTML is a field that a browser does not show."""
        _, begin, end, _ = self._tokens[position]
        return name == "input" and self._is_html and _HIDDEN.search(self._text, begin, end) is not None

    def _is_note(self, position: int, name: str, begin: int) -> bool:
        """Return whether an element of HTML is a mark of a note: one without letters, high or right after a word."""
        if name not in _NOTE_TAGS:
            return False
        found, high = "", name == "sup"
        for kind, first, end, inside in self._tokens[position + 1 : position + _NOTE_TOKENS]:
            if kind == CLOSE and inside == name:
                after_word = begin > 0 and _BEFORE_NOTE.match(self._text, begin - 1)
                is_mark = 0 < len(found.strip()) <= _NOTE_CHARACTERS and not any(map(str.isalpha, found))
                return is_mark and bool(high or after_word)
            if kind not in (TEXT, OPEN, CLOSE) or (kind != TEXT and inside not in _NOTE_TAGS):
                return False
            high = high or (kind == OPEN and inside == "sup")
            found += self._text[first:end] if kind == TEXT else ""
        return False

    def _end_implied(self, position: int, name: str, splits: bool) -> None:
        """End the elements of HTML that a start tag ends; only those without another element in them."""
        ended = ENDS_IMPLIED.get(name, frozenset())
        while self._stack:
            last = self._tokens[self._stack[-1]][3]
            if last not in ended and not (splits and last == "p"):
                return
            self._without_end(self._pop(), position)

    def _split(self) -> None:
        """Let all open elements split the text."""
        for start in self._stack[self._split_to :]:
            self.found.splits[start] = 1
        self._split_to = len(self._stack)

    def _pop(self) -> int:
        start = self._stack.pop()
        self._inline.pop()
        self._untranslated -= self._untouched.pop()
        name = self._tokens[start][3]
        self._open[name] -= 1
        if name in _AROUND and self._is_html:
            self.around = self._outside.pop()
        self._split_to = min(self._split_to, len(self._stack))
        return start

    def _without_end(self, start: int, position: int) -> None:
        """Note that an element, which ends before this position, has no end tag.

        What is not translated in it splits the text, but for a reading, whose end tag HTML lets an author leave out.
        """
        if self.found.kept[start] == NOTE and self._tokens[start][3] in READINGS:
            self.found.partner[start] = position - 1
        elif self.found.kept[start]:
            self.found.splits[start] = 1
            self._split()


# Divides the tokens between two tags that split a text at the items of lists that are in them.

_PARTS = frozenset(["data", "output", "slot", "span", "time"])
_BLANK = r"(?:\s|&(?:nbsp|ensp|emsp|thinsp|\#160|\#x[aA]0);)"
_NAMES = "bull|gt|middot|raquo|rarr|rsaquo|verbar|vert"
_SIGN = rf"(?:[{BARS}{CHAINS}]|&(?:{_NAMES}|\#(?:62|124|183|187|8226|8250)|\#x(?:3[eE]|7[cC]|[bB][7bB]|2022|203[aA]));)"
_SIGNS = re.compile(rf"{_SIGN}(?:{_BLANK}*+{_SIGN})*+{_BLANK}*+")
_BLANKS = re.compile(rf"{_BLANK}*+")
_FIRST = frozenset(BARS + CHAINS + "&")  # one of them is at the begin of a text that begins with a sign
_LAST = frozenset(BARS + CHAINS + ";")
_KEPT = Sibling(SiblingKind.TEXT, "\ufffc", "\ufffc")  # stands for what is left as it is


def with_signs(text: str, tokens: Sequence[MarkupToken]) -> list[MarkupToken]:
    """Return tokens in which signs that may separate elements are tokens of their own: those at the ends of a text."""
    found = list[MarkupToken]()
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
    """An element, or all tokens; siblings: what is in it, children: the elements among these by their positions."""

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
    for position in sorted(left_out):
        at = bisect_left(members, position)
        if begin < at:
            yield members[begin:at]
        begin = at + 1
    if begin < len(members):
        yield members[begin:]


def _may_have_items(text: str, tokens: Sequence[MarkupToken], members: Sequence[int]) -> bool:
    """Return whether there is a list, as far as a glance shows: most texts with tags have none, and are not read
    again.
    """
    last, tagged, closed = " ", False, False  # closed: whether an element has ended after the last words
    for position in members:
        kind, begin, end, _ = tokens[position]
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
    for position in members:
        kind, begin, end, name = tokens[position]
        if kind == OPEN and partner[position] >= 0 and not structure.kept[position]:
            stack.append(_Element(position, _kind_of(name, structure), stack[-1]))
            continue
        if kind == CLOSE and partner[position] >= 0:
            element = stack.pop()
            stack[-1].children[len(stack[-1].siblings)] = element
            sibling, position = element_of(element.kind, element.siblings), element.start
        elif kind == TEXT:
            sibling = sibling_of(text[begin:end], references=True)
        elif kind == KEPT or (kind == OPEN and structure.kept[position] == WORD):
            sibling = _KEPT
        elif kind == EMPTY:
            sibling = NO_TEXT
        else:
            continue
        stack[-1].tokens.append(position)
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
        for position in division.separators:
            found.add(element.tokens[position])
        for position in division.items:
            start = element.tokens[position]
            found.update((start, structure.partner[start]))
        if division.separators or division.items:
            _leave_out(structure, element, found)
        for position, child in element.children.items():
            if child.children:
                waiting.append((child, (division.borders[position], division.borders[position + 1])))
    return found


def _leave_out(structure: Structure, element: _Element | None, found: set[int]) -> None:
    """Add the tags of an element and of those around it."""
    while element is not None and element.start >= 0 and element.start not in found:
        found.update((element.start, structure.partner[element.start]))
        element = element.parent
