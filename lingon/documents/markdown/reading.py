"""The text inside a block of Markdown as nodes for translation, and Markdown of nodes.

The parser says what is text and what is not, but not where: each of its tokens is found in the source in turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markdown_it.common.utils import normalizeReference
from markdown_it.helpers import parseLinkDestination
from markdown_it.token import Token

from lingon.documents.inline import Around, Node, Piece, Point, depth_of
from lingon.documents.markdown.parsers import DEFINITION, tokens_of
from lingon.documents.marks import named_tag, paired

EMPHASIS = frozenset(["em", "strong", "s"])
MARKED = EMPHASIS | {"span"}  # what has marks before and after it that do not depend on what is in it
MOST_RAISED = 256  # characters of a word that a translation can be told to keep
MOST_DEPTH = 64  # of emphasis, links and tags inside each other
_AUTOLINK = re.compile(r"<[^<>\s]*+>")
_FOOTNOTE = re.compile(r"\[\^[^\[\]\s]++\]")
_SOFT_BREAK = re.compile(r"[ \t]*+\n[ \t]*+")
_HARD_BREAK = re.compile(r"((?:\\|[ \t]*+)\n)[ \t]*+")
_TITLE = re.compile(
    r"""[ \t\n]*(?:("(?:[^"\\]++|\\.)*+"|'(?:[^'\\]++|\\.)*+'|\((?:[^()\\]++|\\.)*+\))[ \t\n]*)?\)""", re.DOTALL
)
_LABEL = re.compile(r"\[((?:[^\[\]\\]++|\\.)*+)\]", re.DOTALL)
_LINE_BREAK = re.compile(r"<br\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, eq=False)
class Aside:
    """A text that is translated alone, such as the title of a link; written: as the source has it."""

    text: str
    written: str


@dataclass(frozen=True, slots=True)
class Mark:
    """What is no text. Between its parts there may be texts that are translated alone.

    parts: its source
    meaning: what a program that shows the text makes of it
    name: of its token, such as em
    label: of the reference that the text before it names
    """

    parts: tuple[str | Aside, ...]
    meaning: str
    name: str = ""
    label: str = ""


class UnknownSource(Exception):
    """A token is not where it is expected in its source; the block is then not translated."""


class Reader:
    """Reads the tokens of a source."""

    def __init__(self, source: str, references: Mapping[str, Any]) -> None:
        self._source, self._at = source, 0
        self._tokens = tokens_of(source, references)
        words = (token.content for token in self._tokens if token.type == "text")
        self.raised: set[str] = set()  # words with raised or lowered characters, which translations have to keep
        self._line_end = " " if any(map(str.isalpha, "".join(words))) else "\n"  # pictures keep their lines

    def nodes(self) -> list[Node[Mark]]:
        """Return the nodes of the source; raises UnknownSource, also if it has too many inside each other."""
        levels: list[list[Node[Mark]]] = [[]]
        starts: list[tuple[Mark, int, str]] = []
        tokens = iter(self._tokens)
        for token in tokens:
            name, nesting = token.type.rpartition("_")[0], token.nesting
            if token.markup == "autolink":
                meaning = "".join(map(meaning_of, (token, next(tokens), next(tokens))))
                levels[-1].append(Point(Mark((self._taken(_AUTOLINK),), meaning)))
            elif nesting == 1:
                start = Mark((self._exactly(token.markup or "["),), meaning_of(token), name)
                starts.append((start, self._at, _label(token)))
                levels.append([])
                if len(levels) > MOST_DEPTH:
                    raise UnknownSource
            elif nesting == -1:
                start, begin, label = starts.pop()
                text = self._source[begin : self._at]
                parts = (self._exactly(token.markup),) if name in MARKED else self._tail(label)
                inside = _with_tags(levels.pop())
                levels[-1].append(Around(start, inside, Mark(parts, meaning_of(token), name, _named(text, parts))))
            else:
                levels[-1] += self._nodes(token)
        if self._at != len(self._source):
            raise UnknownSource
        nodes = _with_tags(levels[0])
        if depth_of(nodes) > MOST_DEPTH:
            raise UnknownSource
        return nodes

    def _nodes(self, token: Token) -> Iterator[Node[Mark]]:
        """Yield the nodes of a token without others inside of it."""
        if token.type == "text":
            yield from _text(self._exactly(token.content))
        elif token.type == "definition":
            self._exactly(token.content)
            yield Point(Mark((f"\n{token.content}",), f" {token.content}"), splits=True)
        elif token.type == "text_special":
            self._exactly(token.markup)
            yield Point(Mark((token.markup,), token.content)) if token.content.isspace() else Piece(token.content)
        elif token.type == "softbreak":
            self._taken(_SOFT_BREAK)
            if not DEFINITION.match(self._source, self._at):  # which has its line break
                yield Piece(self._line_end)
        elif token.type == "hardbreak":
            yield Point(Mark((self._taken(_HARD_BREAK, 1),), meaning_of(token)), splits=True)
        elif token.type == "code_inline":
            yield Point(Mark((self._code(token.markup),), meaning_of(token)))
        elif token.type == "formula":
            yield Point(Mark((_in_line(self._exactly(token.content)),), meaning_of(token)))
        elif token.type == "raised":
            word = self._exactly(token.content)
            self.raised.add(word)
            yield Piece(word) if len(word) <= MOST_RAISED else Point(Mark((word,), meaning_of(token)))
        elif token.type == "wiki":
            page, bar, text = self._exactly(token.content)[:-2].partition("|")
            yield Point(
                Mark((f"{page}{bar}", _aside(text, text), "]]") if bar else (token.content,), meaning_of(token))
            )
        elif token.type == "html_inline":
            splits = bool(_LINE_BREAK.match(token.content))
            yield Point(Mark((_in_line(self._exactly(token.content)),), meaning_of(token), "html"), splits)
        elif token.type == "image":
            before = self._exactly("![")
            alternative = _aside(self._exactly(token.content), _plain(token.children or []))
            tail = self._tail(_label(token))
            label = _named(token.content, tail)
            yield Point(Mark((before, alternative, *tail), meaning_of(token), "image", label))
        else:
            raise UnknownSource

    def _exactly(self, text: str) -> str:
        if not self._source.startswith(text, self._at):
            raise UnknownSource
        self._at += len(text)
        return text

    def _taken(self, pattern: re.Pattern[str], group: int = 0) -> str:
        found = pattern.match(self._source, self._at)
        if found is None:
            raise UnknownSource
        self._at = found.end()
        return found[group]

    def _code(self, fence: str) -> str:
        """Return a code span."""
        begin = self._at
        self._exactly(fence)
        for run in re.compile("`+").finditer(self._source, self._at):
            if run[0] == fence:
                self._at = run.end()
                return _in_line(self._source[begin : self._at])
        raise UnknownSource

    def _tail(self, label: str) -> tuple[str | Aside, ...]:
        """Return what is after the text of a link or of an image; label: empty for one that has its address there."""
        begin = self._at
        if label:
            self._exactly("]")
            found = _LABEL.match(self._source, self._at)
            if found and (not found[1] or normalizeReference(found[1]) == label):
                self._at = found.end()
            return (self._source[begin : self._at],)
        self._exactly("](")
        self._taken(re.compile(r"[ \t\n]*"))
        address = parseLinkDestination(self._source, self._at, len(self._source))
        title = _TITLE.match(self._source, address.pos if address.ok else self._at)
        if title is None:
            raise UnknownSource
        self._at = title.end()
        if not title[1]:
            return (_in_line(self._source[begin : self._at]),)
        inside = _aside(title[1][1:-1], re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", title[1][1:-1]))
        before, after = self._source[begin : title.start(1) + 1], self._source[title.end(1) - 1 : self._at]
        return (_in_line(before), inside, _in_line(after))


def _in_line(source: str) -> str:
    """Return the source of a mark in one line: the next one would begin with the marks of the blocks around it."""
    return source.replace("\n", " ")


def meaning_of(token: Token) -> str:
    """Return what a program makes of a token that is no text."""
    if token.type == "wiki":
        return f"\0wiki {token.content.partition('|')[0]}\0"
    if token.type == "raised":
        return raised_meaning(token.content)
    if token.type in ("text", "text_special", "definition"):
        return token.content
    if token.type == "softbreak":
        return " "
    address = token.attrs.get("href", token.attrs.get("src", ""))
    return f"\0{token.type} {address} {'' if token.type == 'image' else token.content}\0"


def raised_meaning(word: str) -> str:
    """Return what a program makes of a word with raised or lowered characters."""
    return f"\0raised {word}\0"


def _text(text: str) -> Iterator[Node[Mark]]:
    at = 0
    for found in _FOOTNOTE.finditer(text):
        yield Piece(text[at : found.start()])
        yield Point(Mark((found[0],), found[0]))
        at = found.end()
    yield Piece(text[at:])


def _aside(written: str, text: str) -> Aside | str:
    written = _in_line(re.sub(r"(?<!\\)\\\n", "\n", written))
    return Aside(text, written) if any(map(str.isalpha, text)) else written


def _plain(tokens: Sequence[Token]) -> str:
    """Return the text of tokens."""
    return "".join(
        _plain(token.children) if token.children else " " if token.type == "softbreak" else token.content
        for token in tokens
    )


def _named(text: str, tail: tuple[str | Aside, ...]) -> str:
    """Return the label of a reference that is the text of a link or of an image; empty for another link."""
    return text if tail in (("]",), ("][]",)) else ""


def _label(token: Token) -> str:
    return str(token.meta.get("label", ""))


def _with_tags(nodes: Sequence[Node[Mark]]) -> list[Node[Mark]]:
    """Return nodes in which tags of HTML are around what is between them."""

    def tag(point: Point[Mark]) -> tuple[str, bool] | None:
        (source, *_) = point.content.parts
        return named_tag(source) if point.content.name == "html" and isinstance(source, str) else None

    return paired(nodes, tag)
