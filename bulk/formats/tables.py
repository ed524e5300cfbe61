"""CSV with a line of names: every value is text and stays so; a value that needs quotation marks gets them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
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
from lingon.bulk.formats.line_reader import changed, naming
from lingon.bulk.formats.packing import unpacked
from lingon.errors import CorpusError

KEPT = "surrogateescape"
"""Bytes that are not UTF-8 are written as they were read."""

BREAK = "\r\n"
"""Ends a row for csv.writer, which puts a value in quotation marks if it has one of these two characters."""


class TableRows:
    """Rows of a table; names: of its columns."""

    def __init__(self, names: list[str], rows: list[list[str]], separator: str) -> None:
        self._names, self._rows, self._separator = names, rows, separator

    def __len__(self) -> int:
        return len(self._rows)

    def values(self, column: str) -> list[Value]:
        place = self._names.index(column)
        return [_value(row, place, column) for row in self._rows]

    def written(self, added: Added, marks: Mapping[str, str]) -> bytes:
        lines = _Lines()
        write = csv.writer(lines, delimiter=self._separator, lineterminator=BREAK).writerow
        write([*self._names, *added])
        values_of_rows = zip(*(column.values for column in added.values()), strict=True)
        for row, values in zip(self._rows, values_of_rows, strict=True):
            missing = [""] * (len(self._names) - len(row))
            write([*row, *missing, *("" if each is None else each for each in values)])
        return "".join(lines.written).encode(errors=KEPT)


class _Lines:
    """Takes rows as csv.writer writes them; each ends in BREAK, which becomes a line feed."""

    def __init__(self) -> None:
        self.written: list[str] = []

    def write(self, row: str) -> None:
        self.written.append(row.removesuffix(BREAK) + "\n")


def _value(row: list[str], place: int, column: str) -> Value:
    if place >= len(row):
        return no_value(column)
    return decoded(row[place].encode(errors=KEPT))


class _Text(io.TextIOWrapper):
    """Text of a file that is closed where it was opened, and not with a wrapper to which nothing refers any more."""

    def close(self) -> None:
        with suppress(ValueError):  # it is detached already
            self.detach()


class _TableReader:
    """Reads a table from its beginning: a line feed between quotation marks ends no row."""

    def __init__(self, name: str, file: IO[bytes], separator: str) -> None:
        self._name, self._separator = name, separator
        self.names, self._found = open_table(name, file, separator)
        self.position = 0

    def rows(self, piece: Piece) -> TableRows:
        with naming(self._name):
            for _ in islice(self._found, piece.first - self.position):
                pass
            found = list(islice(self._found, piece.rows))
        self.position = piece.first + len(found)
        if len(found) < piece.rows:
            raise changed(self._name, piece)
        return TableRows(self.names, found, self._separator)


def open_table(name: str, file: IO[bytes], separator: str) -> tuple[list[str], Iterator[list[str]]]:
    """The names of the columns and the rows, of which blank lines are none. Raises CorpusError."""
    csv.field_size_limit(MAX_VALUE_BYTES)
    text = _Text(unpacked(name, file), encoding="utf-8-sig", errors=KEPT, newline="")
    rows = _checked(name, csv.reader(text, delimiter=separator))
    return next(rows, []), rows


def _checked(name: str, rows: Iterator[list[str]]) -> Iterator[list[str]]:
    """The rows that are not blank; raises CorpusError for one with more values than there are columns."""
    number, columns = 0, 0
    try:
        for row in filter(None, rows):
            columns = columns or len(row)
            if len(row) > columns:
                raise too_many_values(name, number, len(row), columns)
            yield row
            number += 1
    except csv.Error as error:
        raise CorpusError(f"{name}: row {number:,}: {error}") from None


class Table:
    """Rows of values that a separator parts, with the quotation marks of CSV."""

    def __init__(self, separator: str) -> None:
        self._open = partial(open_table, separator=separator)
        self._separator = separator

    def check(self, name: str, file: IO[bytes], needed: Sequence[str], added: Sequence[str]) -> None:
        with naming(name):
            names, _ = self._open(name, file)
        check_columns(name, names, needed, added)

    def cut(self, name: str, file: IO[bytes], rows: int) -> Iterator[Piece]:
        with naming(name):
            _, found = self._open(name, file)
            first = 0
            while count := sum(1 for _ in islice(found, rows)):
                yield Piece(first, count)
                first += count

    def reader(self, name: str, file: IO[bytes]) -> Reader:
        return _TableReader(name, file, self._separator)
