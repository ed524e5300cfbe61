"""The operations of every format: cut a file into pieces, read a piece, and write it with columns added.

Formats in which a line feed ends a row share how they are cut and read. Packed files are the same in every run, without
a time or a name in them.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import IO, Protocol

import pyarrow as pa

from lingon.errors import CorpusError, SettingsError
from lingon.files import READING_ERRORS, is_packed, unpacked


def packed(name: str, content: bytes) -> bytes:
    """Return the content, packed as the name of its file says."""
    if name.endswith(".gz"):
        return gzip.compress(content, 6, mtime=0)
    if name.endswith(".zst"):
        return bytes(pa.Codec("zstd").compress(content, asbytes=True))
    if name.endswith(".xz"):
        return lzma.compress(content)
    if name.endswith(".bz2"):
        return bz2.compress(content)
    return content


MAX_VALUE_BYTES = 2**22
"""Bytes of a text or of a line, 4 MiB as the largest message of a server. A longer one is a row with an error."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A value that is no text. reason: why, for the column of errors."""

    reason: str


CellValue = str | None | Unreadable
"""A value of a column of texts. None is a null."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column to add. values: one for every row; numeric: whether they are numbers, not texts."""

    values: Sequence[str | float | None]
    numeric: bool = False


Added = Mapping[str, Column]
"""Columns to add, by name."""

NOT_UTF8 = Unreadable("the text is not UTF-8")
TOO_LONG = Unreadable(f"the text has more than {MAX_VALUE_BYTES:,} bytes")


@dataclass(frozen=True, slots=True)
class FilePiece:
    """Rows of a file that follow each other.

    first: number of the first row in the file, from 0
    offset: byte at which it begins, if a file can be read from there; else 0
    """

    first: int
    rows: int
    offset: int = 0


class PieceRows(Protocol):
    """The rows of a piece."""

    def __len__(self) -> int: ...

    def values(self, column: str) -> list[CellValue]:
        """Return the texts of a column."""

    def written(self, added: Added, marks: Mapping[str, str]) -> bytes:
        """Return the bytes of a file with these rows, unpacked, and the added columns last.

        marks: metadata of the file, in a format that has some
        """


class PieceReader(Protocol):
    """A reader of the pieces of an open file.

    position: number of the first row that can still be read. A piece before it needs the file opened again
    """

    position: int

    def rows(self, piece: FilePiece) -> PieceRows:
        """Return the rows of a piece. Raise CorpusError if the file does not have them."""


class TableFormat(Protocol):
    """A format of files. Files are opened in binary mode, at their beginning, and packed as their names say."""

    def check(self, name: str, file: IO[bytes], needed: Sequence[str], added: Sequence[str]) -> None:
        """Raise SettingsError if a file lacks a column that is needed, or has one that is to be added."""

    def cut(self, name: str, file: IO[bytes], rows: int) -> Iterator[FilePiece]:
        """Cut a file into pieces of this many rows. The last one has the rest. Raise CorpusError."""

    def reader(self, name: str, file: IO[bytes]) -> PieceReader:
        """Read a file, which stays open as long as its reader is used."""


def check_columns(name: str, existing: Sequence[str], needed: Sequence[str], added: Sequence[str]) -> None:
    """Raise SettingsError if a column that is needed does not exist, or one that is to be added does."""
    for column in needed:
        if column not in existing:
            raise SettingsError(f"{name}: has no column {column!r}; it has {', '.join(existing) or 'none'}")
    for column in added:
        if column in existing:
            raise SettingsError(f"{name}: has a column {column!r} already; choose another name")


def pieces_of(count: int, rows: int) -> Iterator[FilePiece]:
    """Yield pieces of this many rows of a file that has `count`."""
    for first in range(0, count, rows):
        yield FilePiece(first, min(rows, count - first))


def no_value(column: str) -> Unreadable:
    """Return the value of a column that a row of a table is too short for."""
    return Unreadable(f"the row has no value of the column {column!r}")


def too_many_values(name: str, row: int, values: int, columns: int) -> CorpusError:
    """Return the error of a row of a table that has more values than there are columns. row: its number, from 1."""
    return CorpusError(f"{name}: row {row:,} has {values} values, but there are {columns} columns")


def decoded(raw: bytes | None) -> CellValue:
    """Return the text of the bytes of a value. None is a value that was too long to be read."""
    if raw is None or len(raw) > MAX_VALUE_BYTES:
        return TOO_LONG
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return NOT_UTF8


SKIPPED = 2**20  # bytes read at once of the rest of a line that is too long

Line = bytes | None
"""A line without its end, or None for one that is too long."""

IsRow = Callable[[bytes], object]
"""Whether a line is a row."""


def every_line(line: bytes) -> bool:
    """Return True, because a blank line is a row too."""
    return True


def lines(file: IO[bytes], is_row: IsRow = every_line, *, begun: bool = False) -> Iterator[tuple[Line, int]]:
    """Yield the lines that are rows, and the bytes of each with its end and with the other lines before it.

    begun: whether the file was read before, so that the first line is not the first of the file. A byte order mark at
    the beginning of a file is no part of its first line.
    """
    size = 0
    while (read := _line(file)) is not None:
        line, more = read
        size += more
        if line is not None and not begun:
            line = line.removeprefix(BOM_UTF8)
        begun = True
        if line is None or is_row(line):
            yield line, size
            size = 0


def _line(file: IO[bytes]) -> tuple[Line, int] | None:
    """Return the next line and its bytes with its end. None at the end of the file."""
    limit = MAX_VALUE_BYTES + 2  # with a carriage return and a line feed
    raw = file.readline(limit)
    if not raw:
        return None
    size = len(raw)
    if size < limit or raw.endswith(b"\n"):
        return raw.rstrip(b"\r\n"), size
    while (rest := file.readline(SKIPPED)) and not rest.endswith(b"\n"):
        size += len(rest)
    return None, size + len(rest)


def cut_lines(
    name: str,
    file: IO[bytes],
    rows: int,
    is_row: IsRow = every_line,
    *,
    names: bool = False,
    check: Callable[[int, Line], None] = lambda number, line: None,
) -> Iterator[FilePiece]:
    """Cut a file of lines into pieces of this many rows, each with the byte at which it begins.

    names: whether the first line has the names of the columns
    check: raises CorpusError for a row that cannot be read. Gets its number, from 1, which is 0 for the line of names
    """
    first = count = offset = begin = 0
    with naming(name):
        for count, (line, size) in enumerate(lines(unpacked(name, file), is_row), start=0 if names else 1):
            check(count, line)
            offset += size
            if count == 0:
                begin = 0 if is_packed(name) else offset
            elif count - first == rows:
                yield FilePiece(first, rows, begin)
                first, begin = count, 0 if is_packed(name) else offset
    if count > first:
        yield FilePiece(first, count - first, begin)


class LineReader:
    """A reader of the pieces of a file of lines: from their offset, or if it is packed by skipping the lines before
    them.
    """

    def __init__(
        self, name: str, file: IO[bytes], rows_of: Callable[[list[Line]], PieceRows], is_row: IsRow = every_line
    ) -> None:
        """rows_of: makes the rows of lines."""
        self._name, self._file, self._rows_of, self._is_row = name, unpacked(name, file), rows_of, is_row
        self._lines = lines(self._file, is_row)
        self.position = 0

    def rows(self, piece: FilePiece) -> PieceRows:
        with naming(self._name):
            if is_packed(self._name):
                for _ in islice(self._lines, piece.first - self.position):
                    pass
                self.position = piece.first + piece.rows
            else:
                self._file.seek(piece.offset)
                self._lines = lines(self._file, self._is_row, begun=piece.offset > 0)
            found = [line for line, _ in islice(self._lines, piece.rows)]
        if len(found) < piece.rows:
            raise changed(self._name, piece)
        return self._rows_of(found)


def changed(name: str, piece: FilePiece) -> CorpusError:
    """Return the error of a file that has fewer rows than when it was cut."""
    return CorpusError(
        f"{name}: has no row {piece.first + piece.rows:,} any more; it was changed since the plan was made"
    )


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Name the file in the error of one that cannot be read or unpacked."""
    try:
        yield
    except READING_ERRORS as error:
        raise CorpusError(f"{name}: {getattr(error, 'strerror', None) or error}") from None
