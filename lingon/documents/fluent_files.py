"""Files of Fluent (.ftl): the patterns of messages and of their attributes are translated where they are.

fluent.syntax, the parser of the Fluent project, tells the positions of patterns. Its serializer would write the file in
a layout of its own. What is in braces is kept. The variants of a select expression are texts of their own. Terms, which
are names of products, and comments stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from fluent.syntax import FluentParser, ast

from lingon.documents.document import Document, Edit, UnreadableDocument, edited
from lingon.documents.edits import TextEntry, broken, document_of, text_and_encoder
from lingon.documents.messages import Message, Style
from lingon.documents.plurals import is_plural, lacking

MOST_CHARACTERS = 2 << 20  # of a file: its parser takes 7 s for them
MOST_DEPTH = 32  # of braces inside each other: the parser calls itself
_STYLE = Style(is_icu=False)
_MARKED = "\ufdd0{}\ufdd1"  # stands for what is in braces: characters that no text has
_MARK = re.compile(r"\ufdd0(\d{1,9}+)\ufdd1")
_CONTINUED = re.compile(r"\n( ++)(?=\S)")
_BRACES = re.compile(r"[{}]")
_BRACE = re.compile(r'\{[ \t]*+"(?:[^"\\\n]++|\\.)*+"[ \t]*+\}|[{}]|\n(?=[A-Za-z#\-])')
_SPECIAL = "[*."  # signs that begin something else at the begin of a line
_INDENT = 4  # blanks of a line that goes on, where the file has none
_KEYS = ("accesskey", "key", "commandkey")  # attributes that are keys of the keyboard


def read_fluent(content: bytes, target: str = "") -> Document:
    """Return a Fluent file. Raises UnreadableDocument. target: the language to translate to, empty if not known."""
    text, encode = text_and_encoder(content)
    if len(text) > MOST_CHARACTERS:
        raise UnreadableDocument(f"the file has {len(text):,} characters; at most {MOST_CHARACTERS:,}")
    _check_depth(text)
    resource = FluentParser(with_spans=True).parse(text)
    file = _FluentFile(text, target)
    entries = (entry for each in resource.body for entry in file.entries(each))
    return document_of(text, entries, encode)


def _check_depth(text: str) -> None:
    """Raise UnreadableDocument for braces in too many others. A line that begins something else ends all of them."""
    depth = 0
    for found in _BRACE.finditer(text):
        if len(found[0]) == 1:
            depth = 0 if found[0] == "\n" else depth + 1 if found[0] == "{" else max(depth - 1, 0)
        if depth > MOST_DEPTH:
            raise broken(text, found.start(), "Fluent", f"braces are in more than {MOST_DEPTH} others")


class _FluentFile:
    """A file that is read, and how it is written."""

    def __init__(self, text: str, target: str) -> None:
        self.text, self.target = text, target
        self.end = "\r\n" if "\r\n" in text else "\n"

    def entries(self, entry: ast.EntryType) -> Iterator[TextEntry]:
        """Yield the texts of a message. Raises UnreadableDocument for what is none."""
        if isinstance(entry, ast.Junk):
            problem = entry.annotations[0] if entry.annotations else None
            message = " ".join((problem.message or "").split()) if problem is not None else "no message begins here"
            raise broken(self.text, _span(problem or entry)[0], "Fluent", message)
        if not isinstance(entry, ast.Message):
            return
        if entry.value is not None:
            yield self._entry(entry.value)
        for attribute in entry.attributes:
            if attribute.id.name not in _KEYS:
                yield self._entry(attribute.value)

    def _entry(self, pattern: ast.Pattern) -> TextEntry:
        messages: list[Message] = []
        written = _Pattern(pattern, self, messages)
        return TextEntry(messages, written.edits, always=written.grows)


class _Pattern:
    """A pattern, and the patterns of variants in it.

    begin, end: of it in the text of the file
    grows: whether it gets variants that it lacks
    """

    def __init__(self, pattern: ast.Pattern, file: _FluentFile, messages: list[Message]) -> None:
        """messages: those of the file's entry, to which those of this pattern are added."""
        self._file = file
        self._places: list[_Placeable] = []
        value, kept = "", list[tuple[int, int]]()
        for element in pattern.elements:
            if isinstance(element, ast.TextElement):
                value += element.value
                continue
            mark = _MARKED.format(len(self._places))
            self._places.append(_Placeable(element, file, messages))
            kept.append((len(value), len(value) + len(mark)))
            value += mark
        self.grows: bool = any(place.grows for place in self._places)
        self._number = len(messages)
        messages.append(Message(value, _STYLE, kept=kept))
        self._value = value
        text, (first, last) = file.text, _span(pattern)
        body = text[first:last]
        leading = len(value) - len(value.lstrip(" "))
        self.begin = first + len(body) - len(body.lstrip(" \t\r\n")) - leading
        self.end = first + len(body.rstrip(" \t\r\n"))
        line = text.rfind("\n", 0, self.begin) + 1
        self._is_block = not text[line : self.begin].strip(" ")
        continued = _CONTINUED.search(body)
        self._indent = self.begin - line if self._is_block else len(continued[1]) if continued else _INDENT

    def edits(self, translations: Sequence[str]) -> Iterator[Edit[str]]:
        """Yield what changes in the file: all of the pattern, or only what is in its braces."""
        if translations[self._number] == self._value:
            for place in self._places:
                yield from place.edits(translations)
        else:
            yield Edit(self.begin, self.end, self.written(translations))

    def written(self, translations: Sequence[str]) -> str:
        """Return the pattern with its translation."""
        translation = translations[self._number]
        if translation == self._value or not translation.strip():
            text = self._file.text[self.begin : self.end]
            return edited(text, (each.moved(-self.begin) for each in self._inner(translations)))
        lines = _BRACES.sub(r'{"\g<0>"}', translation).split("\n")
        safe = [line if number == 0 and not self._is_block else _safe(line) for number, line in enumerate(lines)]
        text = f"{self._file.end}{' ' * self._indent}".join(safe)
        text = re.sub(rf"(?m)^{' ' * self._indent}(?=\r?$)", "", text) if "" in lines else text
        return _MARK.sub(lambda mark: self._place(mark, translations), text)

    def _inner(self, translations: Sequence[str]) -> Iterator[Edit[str]]:
        for place in self._places:
            yield from place.edits(translations)

    def _place(self, mark: re.Match[str], translations: Sequence[str]) -> str:
        number = int(mark[1])
        return self._places[number].written(translations) if number < len(self._places) else mark[0]


class _Placeable:
    """What is in braces; grows: whether it gets variants that it lacks."""

    def __init__(self, placeable: ast.Placeable, file: _FluentFile, messages: list[Message]) -> None:
        self._file, (self._begin, self._end) = file, _span(placeable)
        self._variants: list[tuple[ast.Variant, _Pattern]] = []
        if isinstance(placeable.expression, ast.SelectExpression):
            variants = placeable.expression.variants
            self._variants = [(each, _Pattern(each.value, file, messages)) for each in variants]
        names = [name for each, _ in self._variants if (name := _name(each))]
        self._added = lacking(names, file.target) if file.target and is_plural(names) else []
        self.grows: bool = bool(self._added) or any(pattern.grows for _, pattern in self._variants)

    def edits(self, translations: Sequence[str]) -> Iterator[Edit[str]]:
        """Yield what changes in it."""
        for variant, pattern in self._variants:
            if self._added and _name(variant) == "other":
                yield from self._forms(variant, pattern, translations)
            yield from pattern.edits(translations)

    def written(self, translations: Sequence[str]) -> str:
        """Return it with the translations of what is in it."""
        text = self._file.text[self._begin : self._end]
        return edited(text, (each.moved(-self._begin) for each in self.edits(translations)))

    def _forms(self, other: ast.Variant, pattern: _Pattern, translations: Sequence[str]) -> Iterator[Edit[str]]:
        """Yield the variants that lack, each in a line before that of `other`."""
        begin, _ = _span(other)
        text = self._file.text
        line = text.rfind("\n", 0, begin) + 1
        blanks = " " * (begin - line)
        between = text[text.index("]", _span(other.key)[1]) : pattern.begin]
        for form in self._added:
            star = " " if other.default else ""
            written = f"{star}[{form}{between}{pattern.written(translations)}{self._file.end}{blanks}"
            yield Edit(begin, begin, written)


def _span(node: ast.SyntaxNode) -> tuple[int, int]:
    """Return the position of a node in the text of the file."""
    assert node.span is not None
    return node.span.start, node.span.end


def _name(variant: ast.Variant) -> str:
    """Return the name of a variant, empty for that of a number."""
    return variant.key.name if isinstance(variant.key, ast.Identifier) else ""


def _safe(line: str) -> str:
    """Return a line that begins nothing else."""
    return f'{{"{line[0]}"}}{line[1:]}' if line[:1] in _SPECIAL and line else line
