"""The file of --output: written beside its name, which it takes when all is there; a run that fails leaves its part."""

from __future__ import annotations

import errno
import gzip
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO, Protocol

from lingon.errors import LingonError, SettingsError


class Lines(Protocol):
    """Where lines go."""

    def write(self, data: bytes, /) -> object:
        """Add bytes."""

    def flush(self) -> object:
        """Let others see what was added."""


class _Device:
    """A file that others read as it is written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with _named(path):
            self._raw = path.open("wb")

    def write(self, data: bytes, /) -> None:
        with _named(self._path):
            self._raw.write(data)

    def flush(self) -> None:
        with _named(self._path):
            self._raw.flush()

    def close(self) -> None:
        with _named(self._path):
            self._raw.close()


class _Part:
    """A file that is begun with its first bytes, so that a run without any leaves the part of another run alone.

    lines: how many were written
    """

    def __init__(self, path: Path) -> None:
        """path: whose name it takes in the end."""
        self._path, self._part = path, part_of(path)
        self._raw: IO[bytes] | None = None
        self._packed: gzip.GzipFile | None = None
        self.lines = 0

    def write(self, data: bytes, /) -> None:
        with _named(self._path):
            raw = self._begun()
            (self._packed or raw).write(data)
        self.lines += data.count(b"\n")

    def flush(self) -> None:
        with _named(self._path):
            if self._raw is not None and self._packed is None:  # a pause in gzip costs some of what it saves
                self._raw.flush()

    def become(self) -> None:
        """Be whole: take the name, and the mode of what had it."""
        with _named(self._path):
            self._begun()
            self.close()
            if self._path.exists():
                shutil.copymode(self._path, self._part)
            self._part.replace(self._path.resolve())

    def close(self) -> None:
        """End the file, where it was begun."""
        raw, packed, self._raw, self._packed = self._raw, self._packed, None, None
        if raw is not None:
            with raw:
                if packed is not None:
                    packed.close()
                raw.flush()
                os.fsync(raw.fileno())

    def _begun(self) -> IO[bytes]:
        if self._raw is None:
            self._raw = self._part.open("wb")
            self._packed = gzip.GzipFile("", "wb", fileobj=self._raw) if self._path.suffix == ".gz" else None
        return self._raw


def part_of(path: Path) -> Path:
    """Where the lines of a file are until it is whole."""
    real = path.resolve()
    return real.with_name(f"{real.name}.part")


def check_output(path: Path, *inputs: Path | None) -> None:
    """Raises SettingsError where a file cannot be written, or is an input."""
    for each in inputs:
        if each is not None and any(_same(each, mine) for mine in (path, part_of(path))):
            raise SettingsError(f"--output {path}: is the input")
    if path.exists() and not os.access(path, os.W_OK):
        raise SettingsError(f"--output {path}: {os.strerror(errno.EACCES)}")
    if path.is_dir():
        raise SettingsError(f"--output {path}: {os.strerror(errno.EISDIR)}")
    folder = path.resolve().parent
    if not folder.is_dir():
        raise SettingsError(f"--output {path}: {os.strerror(errno.ENOENT)}")
    if _is_plain(path) and not os.access(folder, os.W_OK | os.X_OK):
        raise SettingsError(f"--output {path}: its folder cannot be written to")


@contextmanager
def writing(path: Path | None) -> Iterator[Lines]:
    """The file to write to, whole at the end and packed where it is .gz; or standard output.

    path: as `check_output` lets it pass
    A file of that name stays as it is until then; what was written before an error is kept as NAME.part.
    """
    if path is None:
        if sys.stdout is None:
            raise LingonError("standard output is closed; give --output")
        sys.stdout.flush()
        yield sys.stdout.buffer
    elif not _is_plain(path):  # a pipe or a device: there is no name to take
        with closing(_Device(path)) as device:
            yield device
    else:
        yield from _aside(path)


def _aside(path: Path) -> Iterator[Lines]:
    part = _Part(path)
    try:
        yield part
        part.become()
    except BaseException:
        with suppress(OSError):  # the disk is full: what fitted is there
            part.close()
        if part.lines:
            count = "the first line is" if part.lines == 1 else f"the first {part.lines:,} lines are"
            say(f"{path} is not complete; {count} in {part_of(path)}")
        raise


@contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # who read it has read enough, as in `--output /dev/stdout | head`
        raise
    except OSError as error:
        raise LingonError(f"--output {path}: {error.strerror}") from None


def _is_plain(path: Path) -> bool:
    return path.is_file() or not path.exists()


def _same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)


def say(message: str) -> None:
    """Tell a person, beside what is written."""
    if sys.stderr is not None:
        sys.stderr.write(f"lingon: {message}\n")
