"""Markdown of nodes, which is parsed again before it is used: it must mean what the nodes mean."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from markdown_it.common.utils import normalizeReference
from markdown_it.token import Token

from lingon.documents.inline import Around, Node, Piece
from lingon.documents.markdown.parsers import PARSER, RAISED_WORD, TooMuchMarkup, environment
from lingon.documents.markdown.reading import EMPHASIS, Aside, Mark, meaning_of, raised_meaning

_SPECIAL = re.compile(r"[\\`*_\[\]<>&~#$]")
_BLOCK_START = re.compile(r"^(\d{0,9})([-+=.)])", re.MULTILINE)
_BLOCK_IN_TEXT = re.compile(r"\n(?:[-+*](?!\S)|#{1,6}(?!\S)|\d{1,9}[.)](?!\S)|>|[-=]+[ \t]*(?:\n|\Z)|~~~|```)")
_ASIDE = re.compile(r'[\\"\[\]]')
_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~]")
_BLANKS = re.compile(r"[ \t\r\n]+")
_SPACES = re.compile(r"[ \t\r]+")
_BEGINS_LINE = re.compile(r"[^\W\d_]|[(\[\"'`*_!\u00ab\u2018-\u201e]{1,2}[^\W_]")
_INSIDE = "\2"  # a blank at which a line must not end


@dataclass(frozen=True, slots=True)
class Style:
    """How nodes are written.

    escape: whether characters that may mean something get a backslash
    emphasis: the marks around words: those of the source, asterisks in their place, asterisks and underscores in
        turn, as runs of one character may mean something else, or none
    """

    escape: bool
    emphasis: str = "kept"


STYLES = [Style(escape, emphasis) for emphasis in ("kept", "asterisks", "in turn", "none") for escape in (False, True)]
"""What is tried in turn: the first that means what the nodes mean is taken."""


@dataclass(frozen=True, slots=True)
class Block:
    """How the text of a block is to be written.

    references: of the document
    before, after: what makes a heading of the text: its marks, or the line below it
    width: characters of its longest line, at which lines are ended; 0 to write one line
    in_cell: whether it is a cell of a table
    in_title: whether it is between quotation marks, or at the end of a line
    """

    references: MutableMapping[str, Any]
    before: str = ""
    after: str = ""
    width: int = 0
    in_cell: bool = False
    in_title: bool = False

    def written(self, nodes: Sequence[Node[Mark]], asides: Callable[[Aside], str]) -> str | None:
        """Return nodes as Markdown, None if there is no way to write them. asides: returns translations."""
        for style in STYLES:
            source, meaning = _Writer(style, asides).block(nodes)
            source = _wrapped(source, self.width).replace(_INSIDE, " ")
            if _squeezed(self._meaning(source)) == _squeezed(meaning):
                return source.replace("|", r"\|") if self.in_cell else source
        return None

    def _meaning(self, source: str) -> str:
        """Return what the text of a block means; empty if it is no single block of its kind."""
        text = f"{self.before}{source}{self.after}"
        try:
            tokens = PARSER.parse(text, environment(text, ChainMap({}, self.references)))
        except TooMuchMarkup:
            return ""
        kind = "heading_open" if self.before or self.after else "paragraph_open"
        if len(tokens) != 3 or tokens[0].type != kind or (self.in_cell and "\n" in source):
            return ""
        if self.in_title and re.search(r"[\"\n\[\]{}]", source):
            return ""
        if _BLOCK_IN_TEXT.search(source):  # which begins a block where the line is in less blocks than the first
            return ""
        return _meaning(tokens[1].children or [])


class _Writer:
    def __init__(self, style: Style, asides: Callable[[Aside], str]) -> None:
        self._style, self._asides = style, asides
        self._inside = 0  # emphasis around what is written

    def block(self, nodes: Sequence[Node[Mark]]) -> tuple[str, str]:
        """Return nodes as Markdown, and what they mean."""
        source, meaning = self._written(nodes)
        source = source.strip(" \n")
        return (_BLOCK_START.sub(r"\1\\\2", source) if self._style.escape else source), meaning

    def _written(self, nodes: Sequence[Node[Mark]]) -> tuple[str, str]:
        parts = list(map(self._node, nodes))
        return "".join(source for source, _ in parts), "".join(meaning for _, meaning in parts)

    def _node(self, node: Node[Mark]) -> tuple[str, str]:
        if isinstance(node, Piece):
            text = _SPACES.sub(" ", node.text)
            meaning = RAISED_WORD.sub(lambda word: raised_meaning(word[0]), text)
            return (self._escaped(text) if self._style.escape else text), meaning
        if not isinstance(node, Around):
            return self._mark(node.content), node.content.meaning
        self._inside += node.before.name in EMPHASIS
        source, meaning = self._written(node.nodes)
        self._inside -= node.before.name in EMPHASIS
        if node.before.name in EMPHASIS:
            return self._emphasis(source, meaning, node)
        after, label = self._mark(node.after), node.after.label
        if label and normalizeReference(source) != normalizeReference(label):
            after = f"][{label}]"
        return f"{self._mark(node.before)}{source}{after}", f"{node.before.meaning}{meaning}{node.after.meaning}"

    def _escaped(self, text: str) -> str:
        """Return a text with backslashes before what may mean something, but in words with raised characters."""
        found, at = list[str](), 0
        for word in RAISED_WORD.finditer(text):
            found += [_SPECIAL.sub(r"\\\g<0>", text[at : word.start()]), word[0]]
            at = word.end()
        return "".join([*found, _SPECIAL.sub(r"\\\g<0>", text[at:])])

    def _emphasis(self, source: str, meaning: str, node: Around[Mark]) -> tuple[str, str]:
        """Return words with marks around them; blanks at their ends are outside of the marks."""
        inside = source.strip(" ")
        if not inside or self._style.emphasis == "none":
            return source, meaning
        before, after = self._mark(node.before), self._mark(node.after)
        if self._style.emphasis == "asterisks":
            before, after = before.replace("_", "*"), after.replace("_", "*")
        elif self._style.emphasis == "in turn":
            old, new = ("_", "*") if self._inside % 2 == 0 else ("*", "_")
            before, after = before.replace(old, new), after.replace(old, new)
        first, last = source.partition(inside)[::2]
        return (
            f"{first}{before}{inside}{after}{last}",
            f"{first}{node.before.meaning}{meaning.strip(' ')}{node.after.meaning}{last}",
        )

    def _mark(self, mark: Mark) -> str:
        parts = list(map(self._part, mark.parts))
        if mark.label and len(parts) > 1 and parts[1] != mark.label:  # an image
            parts[-1] = f"][{mark.label}]"
        return "".join(parts).replace(" ", _INSIDE)

    def _part(self, part: str | Aside) -> str:
        if isinstance(part, str):
            return part
        text = _squeezed(self._asides(part))
        if text == _squeezed(part.text):
            return part.written
        return (_PUNCTUATION if self._style.escape else _ASIDE).sub(r"\\\g<0>", text)


def _meaning(tokens: Sequence[Token]) -> str:
    return "".join(map(meaning_of, tokens))


def _squeezed(text: str) -> str:
    return _BLANKS.sub(" ", text).strip(" ")


def _wrapped(source: str, width: int) -> str:
    """Return lines that end before words, which begin no block; width: their most characters; 0 for all."""
    return "\n".join("\n".join(_lines(line, width)) for line in source.split("\n")) if width else source


def _lines(line: str, width: int) -> Iterator[str]:
    first, *words = line.split(" ")
    found = first
    for word in words:
        if len(found) + 1 + len(word) > width and _BEGINS_LINE.match(word) and found.strip():
            yield found
            found = word
        else:
            found += f" {word}"
    yield found
