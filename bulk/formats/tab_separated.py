"""TSV with a line of names: a line is a row and a tab ends a value. A quotation mark is a character as any other.

Most parallel corpora are written like this. By the rules of CSV one quotation mark too many would join rows without an
error. What a row has stays as it is, byte for byte; blank lines are no rows, as in CSV.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import IO

from lingon.bulk.formats.format import (
    MAX_VALUE_BYTES,
    Added,
    Piece,
    Reader,
    Value,
    check_columns,
    decoded,
    no_value,
    too_many_values,
)
from lingon.bulk.formats.line_reader import Line, LineReader, cut_lines, lines, naming
from lingon.bulk.formats.packing import unpacked
from lingon.errors import CorpusError

TAB = b"\t"
SPACES = str.maketrans("\t\r\n", "   ")
"""What would end a value or a row is a space in the columns that are added."""


class TsvRows:
    """Lines with values between tabs; names: the line with those of the columns."""

    def __init__(self, names: bytes, found: Sequence[bytes]) -> None:
        self._names, self._lines = names, found

    def __len__(self) -> int:
        return len(self._lines)

    def values(self, column: str) -> list[Value]:
        place = names_of(self._names).index(column)
        return [_value(line, place, column) for line in self._lines]

    def written(self, added: Added, marks: Mapping[str, str]) -> bytes:
        columns = 1 + self._names.count(TAB)
        output = [TAB.join([self._names, *map(_field_of, added)])]
        for line, *values in zip(self._lines, *(column.values for column in added.values()), strict=True):
            missing = [b""] * (columns - 1 - line.count(TAB))
            output.append(TAB.join([line, *missing, *map(_field_of, values)]))
        return b"".join(chain.from_iterable((line, b"\n") for line in output))


def names_of(line: bytes) -> list[str]:
    """The names of the columns; bytes that are not UTF-8 become no name that anything else has."""
    return line.decode("utf-8", errors="surrogateescape").split("\t") if line else []


def _value(line: bytes, place: int, column: str) -> Value:
    values = line.split(TAB, place + 1)
    return decoded(values[place]) if place < len(values) else no_value(column)


def _field_of(value: str | float | None) -> bytes:
    return b"" if value is None else str(value).translate(SPACES).encode(errors="replace")


def _too_long(name: str, row: int) -> CorpusError:
    return CorpusError(f"{name}: row {row:,} has more than {MAX_VALUE_BYTES:,} bytes")


class _Check:
    """Raises CorpusError for a row that cannot be read."""

    def __init__(self, name: str) -> None:
        self._name, self._columns = name, 0

    def __call__(self, number: int, line: Line) -> None:
        if line is None:
            raise _too_long(self._name, number)
        values = 1 + line.count(TAB)
        self._columns = self._columns or values
        if values > self._columns:
            raise too_many_values(self._name, number, values, self._columns)


class _TsvReader(LineReader):
    """Reads the line of names first."""

    def __init__(self, name: str, file: IO[bytes]) -> None:
        super().__init__(name, file, self._rows_of_lines, bool)
        with naming(name):
            self._names = _first(name, self._lines)

    def _rows_of_lines(self, found: list[Line]) -> TsvRows:
        return TsvRows(self._names, [line or b"" for line in found])


def _first(name: str, found: Iterator[tuple[Line, int]]) -> bytes:
    """The line of names; an empty one of a file that has no line. Raises CorpusError."""
    line, _ = next(found, (b"", 0))
    if line is None:
        raise _too_long(name, 0)
    return line


class TabSeparated:
    """Rows of values that tabs part."""

    def check(self, name: str, file: IO[bytes], needed: Sequence[str], added: Sequence[str]) -> None:
        with naming(name):
            names = _first(name, lines(unpacked(name, file), bool))
        check_columns(name, names_of(names), needed, added)

    def cut(self, name: str, file: IO[bytes], rows: int) -> Iterator[Piece]:
        return cut_lines(name, file, rows, bool, names=True, check=_Check(name))

    def reader(self, name: str, file: IO[bytes]) -> Reader:
        return _TsvReader(name, file)
