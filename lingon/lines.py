"""Reads lines of text from files, plain or .gz, and from standard input; every error names file and line."""

from __future__ import annotations

import errno
import gzip
import io
import os
import select
import sys
import zlib
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

from lingon.errors import CorpusError

MAX_LINE_BYTES = 2**22
"""Bytes of a line, 4 MiB as the largest message of a server; a longer one has lost its line feeds."""


LINE_END = b"\r\n"
"""The bytes that are left out at the end of a line."""


class TranslatedLines(NamedTuple):
    """The translations of lines, and the language that they are in."""

    lines: list[str]
    language: str


def read_lines(path: Path, line_end: bytes = LINE_END) -> Iterator[str]:
    """The lines of a UTF-8 file, plain or .gz, without line ends; only a line feed ends a line."""
    number = 0
    try:
        with _open(path) as file:
            for number, raw in enumerate(iter(partial(file.readline, MAX_LINE_BYTES + 3), b""), start=1):
                yield _decoded(raw, f"{path}:{number}", line_end)
    except (OSError, EOFError, zlib.error) as error:
        where = f"{path}:{number + 1}" if number else str(path)
        raise CorpusError(f"{where}: {getattr(error, 'strerror', None) or error}") from None


def check_files(paths: Iterable[Path]) -> None:
    """Raise CorpusError for the first path that cannot be read, without reading any: some work takes long to begin."""
    for path in paths:
        if not path.exists():
            raise CorpusError(f"{path}: {os.strerror(errno.ENOENT)}")
        if path.is_dir():
            raise CorpusError(f"{path}: {os.strerror(errno.EISDIR)}")
        if not os.access(path, os.R_OK):
            raise CorpusError(f"{path}: {os.strerror(errno.EACCES)}")


def read_parallel(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    """Pairs of lines of two files, which must have the same number of lines."""
    sources, targets = read_lines(source), read_lines(target)
    number = 0
    for number, line in enumerate(sources, start=1):
        other = next(targets, None)
        if other is None:
            raise CorpusError(f"{target}:{number}: ends here, but {source} goes on")
        yield line, other
    if next(targets, None) is not None:
        raise CorpusError(f"{source}:{number + 1}: ends here, but {target} goes on")


def standard_input(line_end: bytes = LINE_END) -> Iterator[str]:
    """The lines of standard input; safe to read on a daemon thread."""
    if sys.stdin is None:  # file descriptor 0 may belong to another file by now
        raise CorpusError("standard input: is closed")
    try:
        # Not sys.stdin.buffer: Python aborts if it exits while a thread waits in that buffer.
        with io.FileIO(0, closefd=False) as file:
            for number, raw in enumerate(_split_lines(file), start=1):
                yield _decoded(raw, f"standard input:{number}", line_end)
    except OSError as error:
        raise CorpusError(f"standard input: {error.strerror}") from None


def _split_lines(file: io.FileIO) -> Iterator[bytes]:
    """The lines of a file without their line feeds, each as soon as it is complete.

    A line that is too long is the last one, cut where that is known: it could fill the memory.
    """
    started: list[bytes] = []
    size = 0  # of the line that has been started
    while (chunk := file.read(2**16)) != b"":
        if chunk is None:  # non-blocking: another process that shares the file has set it so
            select.select([file], [], [])
            continue
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            yield b"".join([*started, line])
            started, size = [], 0
        started.append(rest)
        size += len(rest)
        if size > MAX_LINE_BYTES + 1:  # with a carriage return
            break
    if last := b"".join(started):
        yield last


def _decoded(raw: bytes, where: str, line_end: bytes) -> str:
    """The text of a line; where: its file and number, for the errors."""
    cut, raw = len(raw) > MAX_LINE_BYTES + 2, raw.rstrip(line_end)
    if cut or len(raw) > MAX_LINE_BYTES:
        raise CorpusError(f"{where}: has more than {MAX_LINE_BYTES:,} bytes without a line feed; split the line")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorpusError(f"{where}: not UTF-8 ({error.reason} at byte {error.start} of the line)") from None


def _open(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]
