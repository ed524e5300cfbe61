"""Markdown: the blocks of a file that have text, and the file with their translations.

The parser says which lines a block has and what its text is. The text is looked for in these lines, and only it is
replaced: the marks of lists and quotes, blank lines and all other blocks are copied byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

from markdown_it.token import Token

from lingon.documents.document import Document, UnreadableDocument
from lingon.documents.encodings import read_encoded
from lingon.documents.inline import FormattedText, InlineText, Node, Point, steps, text_options
from lingon.documents.markdown_inline import (
    BLOCKS,
    MOST_RAISED,
    Aside,
    MarkdownBlock,
    MarkdownMark,
    TokenReader,
    TooMuchMarkup,
    UnknownSource,
)

MOST_KEPT = 200  # words that a translation is asked to keep
LINE_CHARACTERS = 72  # of a line, at least, of a paragraph that has several
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
_FRONT_MATTER = re.compile(r"(---|\+\+\+)[ \t]*(?:\r\n|\r|\n)")
_BEFORE = re.compile(
    r"\[\^[^\]\s]+\]:[ \t]+|\[[ xX]\][ \t]+|\[![A-Za-z]+\][ \t]*(?:\n|\Z)|:{3,}[^\n]*(?:\n|\Z)|:[ \t]+"
    r"|\*\[[^\[\]\n]+\]:[ \t]+|\{:[^{}\n]*\}[ \t]*(?:\n|\Z)"
)
_AFTER = re.compile(r"\n(?::{3,}|\{:[^{}\n]*\})[ \t]*\Z")
_CELLS = frozenset(["th_open", "td_open"])
_HEADING = re.compile(r"#{1,6}[ \t]+")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the text of a block is: begin and end in the file, and what its lines but the first begin with."""

    begin: int
    end: int
    prefix: str


class _BlockText:
    """The text of a block."""

    def __init__(self, nodes: list[Node[MarkdownMark]], position: _Place, block: MarkdownBlock) -> None:
        self.position, self._block = position, block
        self.inline = InlineText(nodes)
        self.asides = [(aside, InlineText[MarkdownMark]([FormattedText(aside.text)])) for aside in _asides(nodes)]

    @property
    def texts(self) -> list[str]:
        """To translate: the text, and the titles and alternative texts in it."""
        return [text for text in (self.inline.text, *(inline.text for _, inline in self.asides)) if text]

    def written(self, translations: Sequence[str]) -> str | None:
        """Return the block of translations of its texts, or None if it stays as it is."""
        each = iter(translations)
        nodes = self.inline.translated(next(each)) if self.inline.text else self.inline.nodes
        asides = {aside: _plain(inline.translated(next(each))) for aside, inline in self.asides}
        return self._block.written(nodes, asides.__getitem__)


def read_markdown(content: bytes) -> Document:
    """Return a Markdown file (CommonMark with tables). Raises UnreadableDocument."""
    check_markdown(content)
    text, encoding = read_encoded(content)
    notes = list[str]()
    lines = _LINE.findall(text)
    reader = _BlockReader(lines)
    texts = sorted((each for each in reader.texts() if each.texts), key=lambda each: each.position.begin)
    end = next((line[len(line.rstrip("\r\n")) :] for line in lines), "\n") or "\n"

    def write(translations: Sequence[str]) -> bytes:
        found, at, first, left = list[str](), 0, 0, list[int]()
        for each in texts:
            last = first + len(each.texts)
            written = each.written(translations[first:last])
            if written is not None:
                found += [text[at : each.position.begin], written.replace("\n", end + each.position.prefix)]
                at = each.position.end
            else:
                left.append(text.count("\n", 0, each.position.begin) + 1 if not left else 0)
            first = last
        if left:
            message = "texts stay as they are, for their translations would mean something else"
            notes.append(f"{message}: {len(left):,}, the first at line {left[0]:,}")
        return encoding.written("".join([*found, text[at:]]), notes)

    options = text_options()
    options.keep.extend(sorted(word for word in reader.raised if len(word) <= MOST_RAISED)[:MOST_KEPT])
    return Document([text for each in texts for text in each.texts], options, write, notes)


class _BlockReader:
    """A reader of the texts of blocks in the lines of a file."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._starts = list(accumulate(map(len, lines), initial=0))
        self._references: MutableMapping[str, Any] = {}
        self.raised = set[str]()  # words that translations have to keep
        self._column = 0  # after the last cell that was found in a row

    def texts(self) -> Iterator[_BlockText]:
        """Yield the texts of the blocks."""
        front = _front_matter(self._lines)
        environment: dict[str, Any] = {}
        try:
            inside = contained(self._lines[front:])
            tokens = BLOCKS.parse("\n" * front + "".join(inside.lines), environment)
        except TooMuchMarkup as error:
            raise UnreadableDocument(f"in the file {error}") from None
        self._references = environment.get("references", {})
        for number, begin, end in inside.titles:
            with suppress(UnknownSource, TooMuchMarkup):
                yield self._title(front + number, begin, end)
        for before, token in pairwise(tokens):
            if token.type == "tr_open":
                self._column = 0
            if token.type == "inline" and token.map and token.content:
                with suppress(UnknownSource, TooMuchMarkup):
                    yield self._text(before, token, token.map[0])

    def _text(self, before: Token, token: Token, line: int) -> _BlockText:
        """Return the text of a block; before: its start, line: its first one.

        Raises UnknownSource and TooMuchMarkup for a block that stays as it is.
        """
        if before.type in _CELLS:
            return self._cell(token.content, line)
        if before.markup.startswith("#"):
            return self._heading(token.content, line)
        return self._paragraph(token.content, line, before.markup)

    def _title(self, line: int, begin: int, end: int) -> _BlockText:
        """Return the title of a note."""
        position = _Place(self._starts[line] + begin, self._starts[line] + end, "")
        return self._made(self._lines[line][begin:end], position, MarkdownBlock(self._references, in_title=True))

    def _cell(self, content: str, line: int) -> _BlockText:
        source = content.replace("|", r"\|")
        column = self._lines[line].find(source, self._column)
        if column < 0:
            self._column = len(self._lines[line])  # or each of the cells after it would be looked for in the whole line
            raise UnknownSource
        self._column = column + len(source)
        begin = self._starts[line] + column
        block = MarkdownBlock(self._references, in_cell=True)
        return self._made(content, _Place(begin, begin + len(source), ""), block)

    def _heading(self, content: str, line: int) -> _BlockText:
        marks = _HEADING.search(self._lines[line])
        column = self._lines[line].find(content, marks.end()) if marks else -1
        if column < 0:
            raise UnknownSource
        begin = self._starts[line] + column
        block = MarkdownBlock(self._references, before="# ")
        return self._made(content, _Place(begin, begin + len(content), ""), block)

    def _paragraph(self, content: str, line: int, mark: str) -> _BlockText:
        """Return the text of a paragraph, or of a heading with a line of marks below it."""
        before, after = _BEFORE.match(content), _AFTER.search(content)
        skipped, last = before.end() if before else 0, after.start() if after else len(content)
        found = content.split("\n")
        first, end = content.count("\n", 0, skipped), content.count("\n", 0, max(last, skipped))
        columns = [self._column_of(text, line + number) for number, text in enumerate(found)]
        begin = skipped - (content.rfind("\n", 0, skipped) + 1) - (len(found[first]) - len(found[first].lstrip()))
        position = _Place(
            self._starts[line + first] + columns[first] + max(begin, 0),
            self._starts[line + end] + columns[end] + len(found[end].strip()),
            self._lines[line + first + 1][: columns[first + 1]] if end > first else "",
        )
        width = max(LINE_CHARACTERS, *(len(text.strip()) for text in found[first : end + 1])) if end > first else 0
        return self._made(
            content[skipped:last],
            position,
            MarkdownBlock(self._references, after=f"\n{mark * 3}" if mark else "", width=width),
        )

    def _column_of(self, text: str, line: int) -> int:
        """Return where the text of a line begins. Raises UnknownSource."""
        text, whole = text.strip(), self._lines[line].rstrip()
        if not whole.endswith(text):
            raise UnknownSource
        return len(whole) - len(text)

    def _made(self, source: str, position: _Place, block: MarkdownBlock) -> _BlockText:
        reader = TokenReader(source, self._references)
        nodes = reader.nodes()
        self.raised |= reader.raised
        return _BlockText(nodes, position, block)


def _front_matter(lines: Sequence[str]) -> int:
    """Return how many lines the data before the text has."""
    mark = _FRONT_MATTER.fullmatch(lines[0]) if lines else None
    if mark is None:
        return 0
    ends = (mark[1], "...") if mark[1] == "---" else (mark[1],)
    return next((number for number, line in enumerate(lines[1:], start=2) if line.rstrip() in ends), 0)


def _asides(nodes: Sequence[Node[MarkdownMark]]) -> Iterator[Aside]:
    """Yield the titles and the alternative texts in nodes."""
    for node, nesting in steps(nodes):
        marks: list[MarkdownMark] = []
        if isinstance(node, Point):
            marks = [node.content]
        elif not isinstance(node, FormattedText) and nesting < 0:
            marks = [node.before, node.after]
        yield from (part for mark in marks for part in mark.parts if isinstance(part, Aside))


def _plain(nodes: Sequence[Node[MarkdownMark]]) -> str:
    return "".join(node.text for node in nodes if isinstance(node, FormattedText))


# How large a Markdown file may be: each line and each mark takes a multiple of its bytes in memory.

MOST_BYTES = 4 << 20  # of a file
MOST_LINES = 50_000
MOST_MARKS = 250_000  # characters that may be marks


def _marks(content: bytes) -> int:
    return sum(map(content.count, b"*_`[]<&~\\|"))


def check_markdown(content: bytes) -> None:
    """Raise UnreadableDocument for a file that would take too much memory."""
    for what, count, most in (
        ("bytes", len(content), MOST_BYTES),
        ("lines", content.count(b"\n") + content.count(b"\r"), MOST_LINES),
        ("characters that may be marks", _marks(content), MOST_MARKS),
    ):
        if count > most:
            raise UnreadableDocument(f"the file has {count:,} {what}; at most {most:,}")


# What other kinds of Markdown than CommonMark indent: the bodies of notes, tabs, footnotes and definitions.
# CommonMark reads lines that are indented by four blanks as code. Lines of such a body are given to the parser
# without these blanks. Their text is found in the lines of the file as it is.

INDENT = 4  # blanks
MOST_INSIDE = 16  # bodies inside each other
_NOTE = re.compile(
    r'([ \t]*+)(?:!!!|\?\?\?\+?|===[!+]?)[ \t]+(?:[\w-]++[ \t]*+)*+(?:"(?P<title>[^"\r\n]*+)")?[ \t]*+(?:\r?\n|\r|\Z)'
)
_OTHERS = re.compile(r"([ \t]*+)(?:\[\^[^\[\]\s]++\]:|:)[ \t]")
_TITLED = re.compile(r"[ \t>]*+:{3,}[ \t]*+[\w-]++(?:[ \t]++|\[)(?P<title>[^\W\d_][^\r\n\[\]{}]*+)")
_FENCE = re.compile(r"[ \t>]*+(```|~~~)")


@dataclass(slots=True)
class Contained:
    """The lines of a file for the parser, and the titles of its notes.

    titles: the number of a line, and the begin and the end of the title in it
    """

    lines: list[str] = field(default_factory=list)
    titles: list[tuple[int, int, int]] = field(default_factory=list)


def contained(lines: Sequence[str]) -> Contained:
    """Return the lines of a file with the bodies of notes as the text around them. Each line has its position."""
    found, bodies, fence = Contained(), list[int](), ""
    for number, line in enumerate(lines):
        if not line.strip():
            found.lines.append(line)
            continue
        indent = len(line) - len(line.lstrip(" \t"))
        while bodies and not fence and indent < bodies[-1]:
            bodies.pop()
        shown = line[min(indent, INDENT * len(bodies)) :]
        mark = _FENCE.match(shown)
        if fence or mark:
            fence = "" if mark and fence == mark[1] else fence or (mark[1] if mark else "")
            found.lines.append(shown)
            continue
        note = _NOTE.match(shown)
        if note is not None and len(note[1]) < INDENT and len(bodies) < MOST_INSIDE:
            bodies.append(indent + INDENT)
            if note["title"]:
                begin = len(line) - len(shown) + note.start("title")
                found.titles.append((number, begin, begin + len(note["title"])))
            found.lines.append(line[len(line.rstrip("\r\n")) :])
            continue
        if (title := _TITLED.match(line)) is not None:
            begin, end = title.span("title")
            found.titles.append((number, begin, begin + len(line[begin:end].rstrip())))
        elif (other := _OTHERS.match(shown)) is not None and len(other[1]) < INDENT and len(bodies) < MOST_INSIDE:
            bodies.append(indent + INDENT)
        found.lines.append(shown)
    return found
