"""Lines of text from files, plain or gzip'ed; every error names file and line."""

from __future__ import annotations

import gzip
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


def _open(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]
