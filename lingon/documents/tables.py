"""Tables of texts (.csv, .tsv): the cells of one column are translated where they are, or into another column.

The csv package of Python reads such files, but does not say which quotation marks and line ends they have; here all but
the cells that change is copied byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from lingon.documents.document import Document, Edit, UnreadableDocument
from lingon.documents.edits import TextEntry, broken, document_of, replacing, text_and_encoder
from lingon.documents.messages import Message
from lingon.documents.plurals import MOST_LANGUAGES, is_language
from lingon.language_tags import is_same_tag

SOURCES = ("source", "original", "source text")
TARGETS = ("target", "translation", "target text")
MOST_CELLS = 1_000_000  # of a file
_DELIMITERS = ",;\t"
_SHOWN = 10  # columns that an error names
_SEPARATOR = re.compile(r"sep=(.)\r?\n")  # the first line that Excel writes and reads
_QUOTED = re.compile(r'"((?:[^"]++|"")*+)"')
_END_OF_LINE = re.compile(r"\r\n|\r|\n")
_IDENTIFIER = "id"  # as a header rather a column of numbers than Indonesian


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell, by its position in the text of the file."""

    begin: int
    end: int
    text: str
    is_quoted: bool


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The numbers of the columns to read and to write. They are the same one if cells are replaced.

    header: whether the first row names the columns
    """

    source: int
    target: int
    header: bool


def read_table(content: bytes, target: str = "", column: str = "", *, tabs: bool = False) -> Document:
    """Return a table. Raises UnreadableDocument.

    target: the language to translate to, empty if not known
    column: the name of that with the texts, or its number from 1 on, then all rows have texts, empty for `source`, or
    for the only other language beside a column of the target language
    tabs: whether cells have tabs between them; else a comma, semicolon or tab, whichever the first row has most of
    """
    text, encode = text_and_encoder(content)
    separator = _SEPARATOR.match(text)
    begin = separator.end() if separator is not None else 0
    delimiter = separator[1] if separator is not None else "\t" if tabs else _delimiter(text)
    rows = _rows(text, begin, delimiter, strict=not tabs)
    first = next(rows, None)
    if first is None:
        return document_of(text, (), encode)
    columns = _columns([cell.text.strip() for cell in first], column, target)
    cells = _Cells(delimiter)
    with_texts = rows if columns.header else chain([first], rows)
    every = (cells.entry(row, columns) for row in with_texts if len(row) > columns.source)
    return document_of(text, (entry for entry in every if entry is not None), encode)


def _delimiter(text: str) -> str:
    """Return the sign that the first line has most of, outside of quotation marks."""
    line = re.sub(r'"[^"]*+"', "", text[: _line_end(text)])
    return max(_DELIMITERS, key=line.count)


def _line_end(text: str) -> int:
    """Return where the first line ends that is not in quotation marks."""
    found = re.compile(r'(?:[^"\r\n]++|"[^"]*+")*+').match(text)
    return found.end() if found is not None else 0


def _rows(text: str, at: int, delimiter: str, *, strict: bool) -> Iterator[list[Cell]]:
    """Yield the rows that have cells. Raises UnreadableDocument; strict: see `_CellReader`."""
    cells = _CellReader(text, delimiter, strict=strict)
    row, count = list[Cell](), 0
    while at <= len(text):
        row.append(cells.read(at))
        count += 1
        if count > MOST_CELLS:
            raise UnreadableDocument(f"the file has more than {MOST_CELLS:,} cells")
        at = row[-1].end
        if text.startswith(delimiter, at):
            at += 1
            continue
        end = _END_OF_LINE.match(text, at)
        at = end.end() if end is not None else len(text) + 1
        if len(row) > 1 or row[0].end > row[0].begin:
            yield row
        row = []


class _CellReader:
    """A reader of the cells of a text."""

    def __init__(self, text: str, delimiter: str, *, strict: bool) -> None:
        """strict: whether a quotation mark without another one at the end of a cell is refused; else it is text."""
        self._text, self._strict = text, strict
        self._plain = re.compile(rf"[^{re.escape(delimiter)}\r\n]*+")
        self._ends = delimiter, "\r", "\n"
        self._last_mark = text.rfind('"')  # no cell ends behind it, so that none is looked for again and again

    def read(self, at: int) -> Cell:
        """Return the cell that begins at a position. Raises UnreadableDocument."""
        quoted = _QUOTED.match(self._text, at) if at < self._last_mark else None
        if quoted is not None and (quoted.end() == len(self._text) or self._text[quoted.end()] in self._ends):
            return Cell(at, quoted.end(), quoted[1].replace('""', '"'), is_quoted=True)
        if self._strict and quoted is not None:
            raise broken(self._text, quoted.end(), "table", "a cell goes on after its quotation mark")
        if self._strict and self._text.startswith('"', at):
            raise broken(self._text, at, "table", "a quotation mark has no end")
        plain = self._plain.match(self._text, at)
        assert plain is not None
        return Cell(at, plain.end(), plain[0], is_quoted=False)


def _columns(header: Sequence[str], column: str, target: str) -> TableColumns:
    """Return the columns to read and to write. Raises UnreadableDocument if it is not clear which they are."""
    names = [name.lower() for name in header]
    if column and column.lower() not in names:
        if not column.isdecimal() or not 1 <= int(column[:9]) <= len(names):
            raise _unknown(f"the file has no column {column[:40]!r}", header)
        return TableColumns(int(column) - 1, int(column) - 1, header=False)
    if column:
        source = header.index(column) if column in header else names.index(column.lower())
        into = _target(header, source, target)
        return TableColumns(source, source if into is None else into, header=True)
    source = next((names.index(name) for name in SOURCES if name in names), -1)
    into = _target(header, source, target)
    if source < 0 and into is not None:
        found = [(position, name) for position, name in enumerate(names[:MOST_LANGUAGES]) if is_language(name)]
        others = [position for position, _ in found if position != into]
        others = others if len(others) < 2 else [position for position in others if names[position] != _IDENTIFIER]
        source = others[0] if len(others) == 1 else -1
    if source < 0:
        raise _unknown("say which column of the file has the texts: no column is named source", header)
    return TableColumns(source, source if into is None else into, header=True)


def _target(header: Sequence[str], source: int, target: str) -> int | None:
    """Return the column to write, or None if there is none beside the source."""
    wanted = [position for position, name in enumerate(header) if target and is_same_tag(name, target)]
    wanted += [position for position, name in enumerate(header) if name.lower() in TARGETS]
    return next((position for position in wanted if position != source), None)


def _unknown(problem: str, header: Sequence[str]) -> UnreadableDocument:
    shown = ", ".join(" ".join(name[:40].split()) for name in header[:_SHOWN])
    return UnreadableDocument(f"{problem}; its columns are {shown}{', ...' if len(header) > _SHOWN else ''}")


class _Cells:
    """A writer of cells."""

    def __init__(self, delimiter: str) -> None:
        self._delimiter = delimiter
        self._special = re.compile(f'[{re.escape(delimiter)}"\r\n]')

    def entry(self, row: Sequence[Cell], columns: TableColumns) -> TextEntry | None:
        """Return the text of a row, or None if it has a translation."""
        source = row[columns.source]
        message = Message(source.text)
        if columns.target == columns.source:
            return replacing(message, source.begin, source.end, source.text, self._written(source))
        lacking = columns.target - len(row) + 1
        if lacking > 0:
            end = row[-1].end
            return _filling(message, end, end, lambda text: self._delimiter * lacking + self._written(source)(text))
        target = row[columns.target]
        return None if target.text.strip() else _filling(message, target.begin, target.end, self._written(source))

    def _written(self, like: Cell) -> Callable[[str], str]:
        """Return what writes a cell, in quotation marks if another cell has them or the text needs them."""

        def written(text: str) -> str:
            if not (like.is_quoted or self._special.search(text)):
                return text
            return '"' + text.replace('"', '""') + '"'

        return written


def _filling(message: Message, begin: int, end: int, written: Callable[[str], str]) -> TextEntry:
    """Return an entry whose translation is written in any case, even if it is the text."""
    return TextEntry([message], lambda translations: [Edit(begin, end, written(translations[0]))])
