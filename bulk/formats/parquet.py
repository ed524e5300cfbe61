"""Parquet: other columns, their types and the metadata of the schema stay as they are."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from lingon.bulk.formats.format import Added, Piece, Reader, Value, check_columns, decoded, pieces_of
from lingon.bulk.formats.line_reader import changed
from lingon.errors import CorpusError, SettingsError

COMPRESSION = "zstd"
BATCH = 65_536  # rows that are decoded at once
MARK = "lingon."
"""Before the names of the marks in the metadata of a file."""


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type has texts."""
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    return any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_null)) or (
        str(kind) == "string_view"
    )


def texts_of(column: pa.ChunkedArray) -> list[Value]:
    """The values of a column of texts."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_null(column.type):
        return [None] * len(column)
    binary = column.cast(pa.large_binary())  # a file may claim that a text is UTF-8 and be wrong
    return [None if each is None else decoded(each) for each in binary.to_pylist()]


def with_columns(table: pa.Table, added: Added) -> pa.Table:
    """A table with columns of texts and of numbers after those that it has."""
    for name, column in added.items():
        table = table.append_column(name, pa.array(column.values, pa.float64() if column.numeric else pa.string()))
    return table


class ParquetRows:
    """Rows of a table."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def values(self, column: str) -> list[Value]:
        return texts_of(self._table[column])

    def written(self, added: Added, marks: Mapping[str, str]) -> bytes:
        table = with_columns(self._table, added)
        own = {f"{MARK}{name}": value for name, value in marks.items()}
        table = table.replace_schema_metadata({**(table.schema.metadata or {}), **own})
        output = io.BytesIO()
        pq.write_table(table, output, compression=COMPRESSION, row_group_size=max(1, table.num_rows))
        return output.getvalue()


class _ParquetReader:
    """Reads any rows, of which whole row groups are fetched but only what is needed is decoded."""

    position = 0

    def __init__(self, name: str, file: IO[bytes]) -> None:
        self._name = name
        with _naming(name):
            self._file = pq.ParquetFile(file)

    def rows(self, piece: Piece) -> ParquetRows:
        with _naming(self._name):
            groups, before = self._groups(piece)
            batches = self._file.iter_batches(batch_size=BATCH, row_groups=groups)
            table = pa.Table.from_batches(_taken(batches, piece.first - before, piece.rows), self._file.schema_arrow)
        if table.num_rows < piece.rows:
            raise changed(self._name, piece)
        return ParquetRows(table)

    def _groups(self, piece: Piece) -> tuple[list[int], int]:
        """The row groups that have rows of a piece, and the number of rows before them."""
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
    """Rows of batches: `count` of them after those that are skipped."""
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

    def cut(self, name: str, file: IO[bytes], rows: int) -> Iterator[Piece]:
        with _naming(name):
            count = pq.read_metadata(file).num_rows
        yield from pieces_of(count, rows)

    def reader(self, name: str, file: IO[bytes]) -> Reader:
        return _ParquetReader(name, file)


@contextmanager
def _naming(name: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise CorpusError(f"{name}: {str(error).splitlines()[0]}") from None
