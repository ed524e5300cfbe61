"""Plain text: a line is a row, and its only column is the text. What is written has the translations alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import IO

from lingon.bulk.formats.format import Added, Piece, Reader, Value, check_columns, decoded
from lingon.bulk.formats.line_reader import Line, LineReader, cut_lines

COLUMN = "text"


class TextRows:
    """Lines of text."""

    def __init__(self, lines: list[Line]) -> None:
        self._lines = lines

    def __len__(self) -> int:
        return len(self._lines)

    def values(self, column: str) -> list[Value]:
        return [decoded(line) for line in self._lines]

    def written(self, added: Added, marks: Mapping[str, str]) -> bytes:
        """The first added column; a value that is missing is a blank line, and line breaks are spaces."""
        translations = next(iter(added.values())).values
        return "".join(f"{' '.join(str(each or '').split())}\n" for each in translations).encode()


class PlainText:
    """Lines of UTF-8."""

    def check(self, name: str, file: IO[bytes], needed: Sequence[str], added: Sequence[str]) -> None:
        check_columns(name, [COLUMN], needed, added)

    def cut(self, name: str, file: IO[bytes], rows: int) -> Iterator[Piece]:
        return cut_lines(name, file, rows)

    def reader(self, name: str, file: IO[bytes]) -> Reader:
        return LineReader(name, file, TextRows)
