"""The formats of tables: CSV with a line of names, and Parquet.

In CSV every value is text and stays so. A value that needs quotation marks gets them. In Parquet other columns, their
types and the metadata of the schema stay as they are.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from lingon.bulk.format import (
    MAX_VALUE_BYTES,
    Added,
    CellValue,
    FilePiece,
    PieceReader,
    changed,
    check_columns,
    decoded,
    naming,
    no_value,
    pieces_of,
    too_many_values,
)
from lingon.errors import CorpusError, SettingsError
from lingon.files import unpacked

KEPT = "surrogateescape"
"""Bytes that are not UTF-8 are written as they were read."""

BREAK = "\r\n"
"""Ends a row for csv.writer, which puts a value in quotation marks if it has one of these two characters."""


class TableRows:
    """Rows of a table. names: of its columns."""

    def __init__(self, names: list[str], rows: list[list[str]], separator: str) -> None:
        self._names, self._rows, self._separator = names, rows, separator

    def __len__(self) -> int:
        return len(self._rows)

    def values(self, column: str) -> list[CellValue]:
        position = self._names.index(column)
        return [_value(row, position, column) for row in self._rows]

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
    """A target of csv.writer, which takes rows. Each ends in BREAK, which becomes a line feed."""

    def __init__(self) -> None:
        self.written: list[str] = []

    def write(self, row: str) -> None:
        self.written.append(row.removesuffix(BREAK) + "\n")


def _value(row: list[str], position: int, column: str) -> CellValue:
    if position >= len(row):
        return no_value(column)
    return decoded(row[position].encode(errors=KEPT))


class _UnclosedText(io.TextIOWrapper):
    """Text of a file that is closed where it was opened, and not with a wrapper to which nothing refers any more."""

    def close(self) -> None:
        with suppress(ValueError):  # it is detached already
            self.detach()


class _TableReader:
    """A reader of a table from its beginning: a line feed between quotation marks ends no row."""

    def __init__(self, name: str, file: IO[bytes], separator: str) -> None:
        self._name, self._separator = name, separator
        self.names, self._found = open_table(name, file, separator)
        self.position = 0

    def rows(self, piece: FilePiece) -> TableRows:
        with naming(self._name):
            for _ in islice(self._found, piece.first - self.position):
                pass
            found = list(islice(self._found, piece.rows))
        self.position = piece.first + len(found)
        if len(found) < piece.rows:
            raise changed(self._name, piece)
        return TableRows(self.names, found, self._separator)


def open_table(name: str, file: IO[bytes], separator: str) -> tuple[list[str], Iterator[list[str]]]:
    """Return the names of the columns and the rows, of which blank lines are none. Raise CorpusError."""
    csv.field_size_limit(MAX_VALUE_BYTES)
    text = _UnclosedText(unpacked(name, file), encoding="utf-8-sig", errors=KEPT, newline="")
    rows = _checked(name, csv.reader(text, delimiter=separator))
    return next(rows, []), rows


def _checked(name: str, rows: Iterator[list[str]]) -> Iterator[list[str]]:
    """Yield the rows that are not blank. Raise CorpusError for one with more values than there are columns."""
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

    def cut(self, name: str, file: IO[bytes], rows: int) -> Iterator[FilePiece]:
        with naming(name):
            _, found = self._open(name, file)
            first = 0
            while count := sum(1 for _ in islice(found, rows)):
                yield FilePiece(first, count)
                first += count

    def reader(self, name: str, file: IO[bytes]) -> PieceReader:
        return _TableReader(name, file, self._separator)


COMPRESSION = "zstd"
BATCH = 65_536  # rows that are decoded at once
MARK = "lingon."
"""Before the names of the marks in the metadata of a file."""


def is_text(kind: pa.DataType) -> bool:
    """Return whether a column of this type has texts."""
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    return any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_null)) or (
        str(kind) == "string_view"
    )


def texts_of(column: pa.ChunkedArray) -> list[CellValue]:
    """Return the values of a column of texts."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_null(column.type):
        return [None] * len(column)
    binary = column.cast(pa.large_binary())  # a file may claim that a text is UTF-8 and be wrong
    return [None if each is None else decoded(each) for each in binary.to_pylist()]


def with_columns(table: pa.Table, added: Added) -> pa.Table:
    """Return a table with columns of texts and of numbers added."""
    for name, column in added.items():
        table = table.append_column(name, pa.array(column.values, pa.float64() if column.numeric else pa.string()))
    return table


class ParquetRows:
    """Rows of a table."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def values(self, column: str) -> list[CellValue]:
        return texts_of(self._table[column])

    def written(self, added: Added, marks: Mapping[str, str]) -> bytes:
        table = with_columns(self._table, added)
        own = {f"{MARK}{name}": value for name, value in marks.items()}
        table = table.replace_schema_metadata({**(table.schema.metadata or {}), **own})
        output = io.BytesIO()
        pq.write_table(table, output, compression=COMPRESSION, row_group_size=max(1, table.num_rows))
        return output.getvalue()


class _ParquetReader:
    """A reader of any rows. Whole row groups are fetched, and only the needed rows are decoded."""

    position = 0

    def __init__(self, name: str, file: IO[bytes]) -> None:
        self._name = name
        with _naming(name):
            self._file = pq.ParquetFile(file)

    def rows(self, piece: FilePiece) -> ParquetRows:
        with _naming(self._name):
            groups, before = self._groups(piece)
            batches = self._file.iter_batches(batch_size=BATCH, row_groups=groups)
            table = pa.Table.from_batches(_taken(batches, piece.first - before, piece.rows), self._file.schema_arrow)
        if table.num_rows < piece.rows:
            raise changed(self._name, piece)
        return ParquetRows(table)

    def _groups(self, piece: FilePiece) -> tuple[list[int], int]:
        """Return the row groups that have rows of a piece, and the number of rows before them."""
        found: list[int] = []
        first = begin = 0
        for number in range(self._file.metadata.num_row_groups):
            rows = self._file.metadata.row_group(number).num_rows
            if first < piece.first + piece.rows and first + rows > piece.first:
                begin = begin if found else first
                found.append(number)
            first += rows
        return found, begin


def _taken(batches: Iterator[pa.RecordBatch], skipped: int, count: int) -> Iterator[pa.RecordBatch]:
    """Yield `count` rows of batches, after the skipped ones."""
    for batch in batches:
        begin = min(skipped, batch.num_rows)
        part = batch.slice(begin, count)
        skipped, count = skipped - begin, count - part.num_rows
        if part.num_rows:
            yield part
        if not count:
            return


class Parquet:
    """Files of Apache Parquet."""

    def check(self, name: str, file: IO[bytes], needed: Sequence[str], added: Sequence[str]) -> None:
        with _naming(name):
            schema = pq.read_schema(file)
        check_columns(name, schema.names, needed, added)
        for column in needed:
            if not is_text(kind := schema.field(column).type):
                raise SettingsError(f"{name}: the column {column!r} is of the type {kind}, not string")

    def cut(self, name: str, file: IO[bytes], rows: int) -> Iterator[FilePiece]:
        with _naming(name):
            count = pq.read_metadata(file).num_rows
        yield from pieces_of(count, rows)

    def reader(self, name: str, file: IO[bytes]) -> PieceReader:
        return _ParquetReader(name, file)


@contextmanager
def _naming(name: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise CorpusError(f"{name}: {str(error).splitlines()[0]}") from None
