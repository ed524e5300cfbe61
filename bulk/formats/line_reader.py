"""Files in which a line feed ends a row: cutting them, and reading a piece of them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import IO

from lingon.bulk.formats.format import MAX_VALUE_BYTES, Piece, Rows
from lingon.bulk.formats.packing import is_packed, unpacked
from lingon.errors import CorpusError

SKIPPED = 2**20  # bytes read at once of the rest of a line that is too long


def lines(file: IO[bytes]) -> Iterator[tuple[bytes | None, int]]:
    """The lines of a file without their ends, and the bytes of each with its end; None for one that is too long."""
    limit = MAX_VALUE_BYTES + 2  # with a carriage return and a line feed
    while raw := file.readline(limit):
        size = len(raw)
        if size < limit or raw.endswith(b"\n"):
            yield raw.rstrip(b"\r\n"), size
            continue
        while (rest := file.readline(SKIPPED)) and not rest.endswith(b"\n"):
            size += len(rest)
        yield None, size + len(rest)


def cut_lines(name: str, file: IO[bytes], rows: int) -> Iterator[Piece]:
    """Cut a file of lines into pieces of this many, each with the byte at which it begins."""
    first = count = offset = begin = 0
    with naming(name):
        for count, (_, size) in enumerate(lines(unpacked(name, file)), start=1):
            offset += size
            if count - first == rows:
                yield Piece(first, rows, begin)
                first, begin = count, 0 if is_packed(name) else offset
    if count > first:
        yield Piece(first, count - first, begin)


class LineReader:
    """Reads pieces of a file of lines: from their offset, or if it is packed by skipping the lines before them."""

    def __init__(self, name: str, file: IO[bytes], rows_of: Callable[[list[bytes | None]], Rows]) -> None:
        """rows_of: makes the rows of lines."""
        self._name, self._file, self._rows_of = name, unpacked(name, file), rows_of
        self.position = 0

    def rows(self, piece: Piece) -> Rows:
        with naming(self._name):
            if is_packed(self._name):
                _skip(self._file, piece.first - self.position)
                self.position = piece.first + piece.rows
            else:
                self._file.seek(piece.offset)
            found = [line for line, _ in islice(lines(self._file), piece.rows)]
        if len(found) < piece.rows:
            raise changed(self._name, piece)
        return self._rows_of(found)


def _skip(file: IO[bytes], count: int) -> None:
    for _ in islice(lines(file), count):
        pass


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
