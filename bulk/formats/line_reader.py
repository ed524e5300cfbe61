"""Files in which a line feed ends a row: cutting them, and reading a piece of them."""

from __future__ import annotations

import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import IO

from lingon.bulk.formats.format import MAX_VALUE_BYTES, Piece, Rows
from lingon.bulk.formats.packing import is_packed, unpacked
from lingon.errors import CorpusError

SKIPPED = 2**20  # bytes read at once of the rest of a line that is too long

Line = bytes | None
"""A line without its end; None for one that is too long."""

IsRow = Callable[[bytes], object]
"""Whether a line is a row."""


def every_line(line: bytes) -> bool:
    """True: a blank line is a row too."""
    return True


def lines(file: IO[bytes], is_row: IsRow = every_line, *, begun: bool = False) -> Iterator[tuple[Line, int]]:
    """The lines that are rows, and the bytes of each with its end and with the other lines before it.

    begun: whether the file was read before, so that the first line is not that of the file. A byte order mark at the
    beginning of a file is no part of its first line.
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
    """The next line and its bytes with its end; None at the end of the file."""
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
) -> Iterator[Piece]:
    """Cut a file of lines into pieces of this many rows, each with the byte at which it begins.

    names: whether the first line has the names of the columns
    check: raises CorpusError for a row that cannot be read; gets its number, from 1, which is 0 for the line of names
    """
    first = count = offset = begin = 0
    with naming(name):
        for count, (line, size) in enumerate(lines(unpacked(name, file), is_row), start=0 if names else 1):
            check(count, line)
            offset += size
            if count == 0:
                begin = 0 if is_packed(name) else offset
            elif count - first == rows:
                yield Piece(first, rows, begin)
                first, begin = count, 0 if is_packed(name) else offset
    if count > first:
        yield Piece(first, count - first, begin)


class LineReader:
    """Reads pieces of a file of lines: from their offset, or if it is packed by skipping the lines before them."""

    def __init__(
        self, name: str, file: IO[bytes], rows_of: Callable[[list[Line]], Rows], is_row: IsRow = every_line
    ) -> None:
        """rows_of: makes the rows of lines."""
        self._name, self._file, self._rows_of, self._is_row = name, unpacked(name, file), rows_of, is_row
        self._lines = lines(self._file, is_row)
        self.position = 0

    def rows(self, piece: Piece) -> Rows:
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


def changed(name: str, piece: Piece) -> CorpusError:
    """The error of a file that has fewer rows than when it was cut."""
    return CorpusError(
        f"{name}: has no row {piece.first + piece.rows:,} any more; it was changed since the plan was made"
    )


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Name the file in the error of one that cannot be read or unpacked."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise CorpusError(f"{name}: {getattr(error, 'strerror', None) or error}") from None
