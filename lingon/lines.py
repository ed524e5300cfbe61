"""Lines of text from files, plain or gzip'ed, and from standard input; every error names file and line."""

from __future__ import annotations

import gzip
import io
import select
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from lingon.errors import CorpusError


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file, plain or .gz, without their ends; only a line feed ends a line."""
    number = 0
    try:
        with _open(path) as file:
            for number, raw in enumerate(file, start=1):  # noqa: B007 - the errors name it
                yield raw.rstrip(b"\r\n").decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path}:{number}: not UTF-8 ({error.reason} at byte {error.start} of the line)") from None
    except (OSError, EOFError, zlib.error) as error:
        where = f"{path}:{number + 1}" if number else str(path)
        raise CorpusError(f"{where}: {getattr(error, 'strerror', None) or error}") from None


def read_parallel(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    """Line by line the texts of two files that must have as many lines."""
    sources, targets = read_lines(source), read_lines(target)
    number = 0
    for number, line in enumerate(sources, start=1):
        other = next(targets, None)
        if other is None:
            raise CorpusError(f"{target}:{number}: ends here, but {source} goes on")
        yield line, other
    if next(targets, None) is not None:
        raise CorpusError(f"{source}:{number + 1}: ends here, but {target} goes on")


def standard_input() -> Iterator[str]:
    """The lines of standard input; may be read on a thread that nobody waits for."""
    if sys.stdin is None:  # its number is another file's by now
        raise CorpusError("standard input: is closed")
    try:
        # Not its buffer: where a thread waits in its buffer while Python ends, Python aborts.
        with io.FileIO(0, closefd=False) as file:
            for number, raw in enumerate(_split(file), start=1):
                try:
                    yield raw.rstrip(b"\r\n").decode("utf-8")
                except UnicodeDecodeError as error:
                    reason = f"not UTF-8 ({error.reason} at byte {error.start} of the line)"
                    raise CorpusError(f"standard input:{number}: {reason}") from None
    except OSError as error:
        raise CorpusError(f"standard input: {error.strerror}") from None


def _split(file: io.FileIO) -> Iterator[bytes]:
    """The lines of a file without their line feeds, each as soon as it is there."""
    begun: list[bytes] = []
    while (chunk := file.read(2**16)) != b"":
        if chunk is None:  # it was made not to wait, by whoever shares it
            select.select([file], [], [])
            continue
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            yield b"".join([*begun, line])
            begun = []
        begun.append(rest)
    if last := b"".join(begun):
        yield last


def _open(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]
