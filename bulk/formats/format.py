"""What every format can do: cut a file into pieces, read a piece, and write it with columns added."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Protocol

from lingon.errors import CorpusError, SettingsError

MAX_VALUE_BYTES = 2**22
"""Bytes of a text or of a line, 4 MiB as the largest message of a server; a longer one is a row with an error."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A value that is no text; reason: why, for the column of errors."""

    reason: str


Value = str | None | Unreadable
"""A value of a column of texts; None is a null."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column to add; values: one for every row; numeric: whether they are numbers, not texts."""

    values: Sequence[str | float | None]
    numeric: bool = False


Added = Mapping[str, Column]
"""Columns to add, by name."""

NOT_UTF8 = Unreadable("the text is not UTF-8")
TOO_LONG = Unreadable(f"the text has more than {MAX_VALUE_BYTES:,} bytes")


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of a file that follow each other.

    first: number of the first row in the file, from 0
    offset: byte at which it begins, if a file can be read from there; else 0
    """

    first: int
    rows: int
    offset: int = 0


class Rows(Protocol):
    """The rows of a piece."""

    def __len__(self) -> int: ...

    def values(self, column: str) -> list[Value]:
        """The texts of a column."""

    def written(self, added: Added, marks: Mapping[str, str]) -> bytes:
        """The bytes of a file with these rows, unpacked, and the added columns after those that it has.

        marks: what the file says about itself, in a format that has a place for it
        """


class Reader(Protocol):
    """Reads the pieces of an open file.

    position: number of the first row that can still be read; a piece before it needs the file opened again
    """

    position: int

    def rows(self, piece: Piece) -> Rows:
        """The rows of a piece. Raises CorpusError if the file does not have them."""


class Format(Protocol):
    """A format of files. Files are opened in binary mode, at their beginning, and packed as their names say."""

    def check(self, name: str, file: IO[bytes], needed: Sequence[str], added: Sequence[str]) -> None:
        """Raise SettingsError if a file lacks a column that is needed, or has one that is to be added."""

    def cut(self, name: str, file: IO[bytes], rows: int) -> Iterator[Piece]:
        """Cut a file into pieces of this many rows; the last one has what is left. Raises CorpusError."""

    def reader(self, name: str, file: IO[bytes]) -> Reader:
        """Read a file, which stays open as long as its reader is used."""


def check_columns(name: str, existing: Sequence[str], needed: Sequence[str], added: Sequence[str]) -> None:
    """Raise SettingsError if a column that is needed does not exist, or one that is to be added does."""
    for column in needed:
        if column not in existing:
            raise SettingsError(f"{name}: has no column {column!r}; it has {', '.join(existing) or 'none'}")
    for column in added:
        if column in existing:
            raise SettingsError(f"{name}: has a column {column!r} already; choose another name")


def pieces_of(count: int, rows: int) -> Iterator[Piece]:
    """Pieces of this many rows of a file that has `count`."""
    for first in range(0, count, rows):
        yield Piece(first, min(rows, count - first))


def no_value(column: str) -> Unreadable:
    """The value of a column that a row of a table is too short for."""
    return Unreadable(f"the row has no value of the column {column!r}")


def too_many_values(name: str, row: int, values: int, columns: int) -> CorpusError:
    """The error of a row of a table that has more values than there are columns; row: its number, from 1."""
    return CorpusError(f"{name}: row {row:,} has {values} values, but there are {columns} columns")


def decoded(raw: bytes | None) -> Value:
    """The text of the bytes of a value; None is a value that was too long to be read."""
    if raw is None or len(raw) > MAX_VALUE_BYTES:
        return TOO_LONG
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return NOT_UTF8
