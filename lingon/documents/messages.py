"""A text of a program as a text to translate: its tags, line breaks, arms and signs of its format stay where they are.

What a format has as a sign for a value, such as `$name$`, is `{0}` in the text that is translated. Such a placeholder
is kept in a translation, and the sign is written again instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from lingon.documents.document import check_marks
from lingon.documents.inline import (
    FormattedText,
    InlineText,
    Node,
    Point,
    marks_in,
    named_tag,
    paired,
    tags_of,
    with_breaks,
    without_marks,
    write,
)
from lingon.documents.plurals import categories

_BLOCK_NAMES = """
    address article aside blockquote body br caption center dd details div dl dt fieldset figcaption figure footer
    form h1 h2 h3 h4 h5 h6 header hr legend li main nav ol option p section select summary table tbody td tfoot th
    thead tr ul
"""
_BLOCKS = frozenset(_BLOCK_NAMES.split())
"""Elements of HTML that end a sentence. Those of `segments.markup` need packages that a client has not."""

_CODE_ELEMENTS = frozenset(["code", "kbd", "math", "pre", "samp", "script", "style", "var"])  # not translated
_PLACE = re.compile(r"\{(\d{1,9}+)\}")
_UNWRITABLE = re.compile("[\0\ud800-\udfff\ufffe\uffff]")  # XML, or UTF-8, has no way to write them
_QUOTED = r"'(?=[{}#|])(?:[^']++|'')*+'"  # of ICU: braces that are text
_QUOTED_ONLY = re.compile(f"''|{_QUOTED}")
_ARGUMENT = re.compile(r"(?<!\{)\{\s{0,9}+[\w.\-]{1,80}+\s{0,9}+[,}]")
_BEFORE_ARGUMENT = re.compile(r"'(?=\{(?!\{))")
_NO_WORDS = re.compile(
    r"\{\{[^{}]{0,400}+\}\}|[$#%]?\{[^{}]{0,400}+\}|\$t\([^()]{0,400}+\)|\$\w{1,64}+\$"
    r"|%\([^()]{1,64}+\)[a-zA-Z]|%#@\w{1,64}+@|%[-^_#0-9.$+*]{0,12}+(?:hh|ll|[hlLzjtq])?[A-Za-z@]"
    r"|https?://\S++|[\w.+\-]{1,64}+@[\w\-]{1,63}+(?:\.[\w\-]{1,63}+){1,9}+|</?[A-Za-z][^<>]*+>"
    r"|&#?\w{1,32}+;"
)
_CODE = re.compile(
    r"#[0-9A-Fa-f]{3,8}+|(?:rgb|hsl)a?\([\d\s.,%/]*+\)"  # colours
    r"|:[a-z_]\w*+"  # symbols of Ruby
    r"|[A-Za-z0-9]++(?:_[A-Za-z0-9]++)++|_++\w++|[a-z]++[A-Z]\w*+"  # names of programs: btn_ok, btnOk
    r"|[A-Za-z]"  # keys of menus
    r"|(?:application|audio|font|image|text|video)/[\w.+\-]++|\.{0,2}+/[\w./+\-]++"  # text/html, ./a/b
    r"|(?:Africa|America|Antarctica|Asia|Atlantic|Australia|Europe|Indian|Pacific|Etc)/[\w/+\-]++"  # zones of time
    r"|[a-z][a-z0-9_\-]*+(?:\.[A-Za-z0-9_\-]++)++"  # app.title
)
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Style:
    """How a format writes a text.

    kept: signs that are kept, such as `$name$`
    is_icu: whether a text may be an ICU message
    doubles: whether a text with an argument has two apostrophes for one, as MessageFormat of Java demands
    """

    kept: re.Pattern[str] | None = None
    is_icu: bool = True
    doubles: bool = False


PLAIN = Style()


class Message:
    """A text of a file.

    value: what it says, without the escapes of the file
    text: to translate, as XML, empty if there is nothing to translate
    marks: how many tags, line breaks and braces it has, at most
    is_unwritable: whether it stays as it is because it has characters that no text has
    """

    def __init__(self, value: str, style: Style = PLAIN, target: str = "", kept: Iterable[Span] = ()) -> None:
        """Raise UnreadableDocument for a text that cannot be read.

        target: the language to translate to, whose plural categories a message gets, empty for none
        kept: places of further signs that are kept, in order and without overlap
        """
        self.value, self.text = value, ""
        self.marks = marks_in(value) + value.count("{")
        check_marks(self.marks)  # before each mark becomes an object
        self.is_unwritable = _UNWRITABLE.search(value) is not None
        if self.is_unwritable:
            return
        self._first = max((int(place[1]) + 1 for place in _PLACE.finditer(value)), default=0)
        self._signs: list[str] = []
        self._places: dict[str, str] = {}
        tree = parsed(value) if style.is_icu else None
        self._doubles = _doubles(value, style, is_icu=tree is not None)
        self._curls = style.is_icu and not self._doubles and _BEFORE_ARGUMENT.search(value) is None
        if tree is None:
            text = self._with_places(value, style, list(kept))
            if not has_words(text):
                return
            tree = [text]
        elif target:
            tree = with_categories(tree, lambda kind: categories(target, kind))
        nodes = paired(list(self._nodes(tree)), _inline_tag)
        self._inline = InlineText(nodes)
        self.text = self._inline.text

    def translated(self, translation: str) -> str | None:
        """Return the text of a translation, or None if it has other signs than the text of the file."""
        nodes = self._inline.translated(translation)
        found = without_marks(write(nodes, self._piece, bytes).decode())
        if not self._signs:
            return found
        places = [int(place[1]) - self._first for place in _PLACE.finditer(found)]
        mine = [place for place in places if 0 <= place < len(self._signs)]
        source = [int(place[1]) - self._first for place in _PLACE.finditer(self.text)]
        if sorted(mine) != sorted(place for place in source if place >= 0):
            return None
        return _PLACE.sub(self._sign, found)

    def _sign(self, place: re.Match[str]) -> str:
        number = int(place[1]) - self._first
        return self._signs[number] if 0 <= number < len(self._signs) else place[0]

    def _piece(self, piece: FormattedText) -> bytes:
        text = piece.text
        if self._doubles:
            text = text.replace("'", "''")
        elif self._curls:
            # ICU reads an apostrophe before a brace as a quotation mark. The typographic one is right everywhere.
            text = _BEFORE_ARGUMENT.sub("\u2019", text)
        return text.encode()

    def _place(self, sign: str) -> str:
        """Return the placeholder of a sign."""
        if sign not in self._places:
            self._places[sign] = f"{{{self._first + len(self._signs)}}}"
            self._signs.append(sign)
        return self._places[sign]

    def _with_places(self, value: str, style: Style, kept: Sequence[Span]) -> str:
        """Return a text with placeholders for the signs that are kept."""
        if style.kept is not None:
            kept = [found.span() for found in style.kept.finditer(value)]
        parts, at = list[str](), 0
        for begin, end in kept:
            parts += [value[at:begin], self._place(value[begin:end])]
            at = end
        return "".join([*parts, value[at:]])

    def _nodes(self, tree: Sequence[IcuNode]) -> Iterator[Node[bytes]]:
        text = ""
        for node in tree:
            if isinstance(node, str):
                text += self._unquoted(node)
            elif isinstance(node, Number):
                text += self._place("#")
            else:
                yield from _text_nodes(text)
                text = ""
                before = node.head
                for arm in node.arms:
                    yield Point((before + arm.before).encode(), splits=True)
                    yield from self._nodes(arm.nodes)
                    before = "}"
                yield Point((before + node.end).encode(), splits=True)
        yield from _text_nodes(text)

    def _unquoted(self, text: str) -> str:
        """Return a text with one apostrophe for two, and with placeholders for braces in apostrophes."""
        if not self._doubles:
            return text
        return _QUOTED_ONLY.sub(lambda found: "'" if found[0] == "''" else self._place(found[0]), text)


def _text_nodes(text: str) -> Iterator[Node[bytes]]:
    """Yield a text whose tags, line breaks and control characters are points.

    A block of HTML, such as a paragraph, ends a sentence. Code is one point with its tags.
    """
    at = 0
    tags = list(tags_of(text))
    for tag, end in zip(tags, _ends_of_code(tags), strict=True):
        if tag.start() >= at:
            yield from with_breaks(text[at : tag.start()], str.encode)
            yield Point(text[tag.start() : end].encode(), splits=_name_of(tag[0]) in _BLOCKS)
            at = end
    yield from with_breaks(text[at:], str.encode)


def _ends_of_code(tags: Sequence[re.Match[str]]) -> list[int]:
    """Return where each tag ends; a start tag of code, and of other elements that are not translated, with these."""
    ends, closing = list[int](), dict[str, int]()
    for tag in reversed(tags):
        name, end = _name_of(tag[0]), tag.end()
        if name in _CODE_ELEMENTS and tag[0].startswith("</"):
            closing[name] = end
        elif name in _CODE_ELEMENTS and not tag[0].endswith("/>"):
            end = closing.get(name, end)
        ends.append(end)
    return ends[::-1]


def _name_of(tag: str) -> str:
    found = named_tag(tag.removesuffix("/>"))
    return found[0] if found is not None else ""


def _inline_tag(point: Point[bytes]) -> tuple[str, bool] | None:
    """Return the name of a tag that belongs to a sentence and whether it is a start, or None for all else."""
    return None if point.splits else named_tag(point.content.decode())


def _doubles(value: str, style: Style, *, is_icu: bool) -> bool:
    """Return whether a text has two apostrophes for one. One alone, as in "it's", says that it has not."""
    if not style.is_icu or not (is_icu or _ARGUMENT.search(value)) or not (style.doubles or "''" in value):
        return False
    return "'" not in _QUOTED_ONLY.sub("", value)


def has_words(value: str) -> bool:
    """Return whether a text is language: it has letters outside of signs and addresses, and is no name of a program."""
    if _CODE.fullmatch(value.strip()):
        return False
    return any(map(str.isalpha, _NO_WORDS.sub("", value)))


# ICU messages as trees: `{n, plural, one {# file} other {# files}}`, whose arms are texts.
# The syntax is that of MessageFormat in the ICU user guide, "Formatting Messages". An argument without arms, such as
# `{name}`, is text. What does not parse is text as a whole.

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
class ChoiceMessage:
    """A message with arms; kind: plural, selectordinal or select; end: what is after the last arm."""

    head: str
    kind: str
    arms: Sequence[Arm]
    end: str


IcuNode = str | Number | ChoiceMessage


def parsed(text: str) -> list[IcuNode] | None:
    """Return the tree of a text, or None if it has no message with arms or is broken. Takes time linear in the text."""
    if "{" not in text or _HEAD.search(text) is None:
        return None
    return _Parser(text).parse()


class _Parser:
    """A reader of a text from its begin to its end; `_open` has the messages around the position that is read."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._levels: list[list[IcuNode]] = [[]]  # of the whole, and of the arms that are open
        self._open: list[tuple[re.Match[str], list[Arm], re.Match[str]]] = []  # head, arms before, this one
        self._braces = 0  # of arguments without arms that are open

    def parse(self) -> list[IcuNode] | None:
        """Return the tree, or None if it is broken."""
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
        self._levels[-1].append(ChoiceMessage(head[0], head["kind"], arms, end[0]))
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
        if not isinstance(node, ChoiceMessage):
            found.append(node)
            continue
        arms = [Arm(arm.selector, arm.before, _grown(arm.nodes, categories)) for arm in node.arms]
        present = {_NUMBERS.get(arm.selector, arm.selector) for arm in arms} | {arm.selector for arm in arms}
        other = next((place for place, arm in enumerate(arms) if arm.selector == "other"), None)
        if node.kind != "select" and other is not None:
            lacking = [category for category in categories(node.kind) if category not in present]
            arms[other:other] = [_copy(arms[other], category) for category in lacking]
        found.append(ChoiceMessage(node.head, node.kind, arms, node.end))
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
