"""The file of --output: written as FILE.part and renamed at the end; a run that fails leaves FILE.part.

Unlike the temporary files of lingon.files, FILE.part has a name that you can find, grows line by line and is kept.
"""

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
from lingon.files import is_link_loop


class Lines(Protocol):
    """A binary file that lines are written to."""

    def write(self, data: bytes, /) -> object:
        """Add bytes."""

    def flush(self) -> object:
        """Make what was written visible to readers."""


class _Device:
    """A pipe or a device, which is read while it is written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with _naming(path):
            self._raw = path.open("wb")

    def write(self, data: bytes, /) -> None:
        with _naming(self._path):
            self._raw.write(data)

    def flush(self) -> None:
        with _naming(self._path):
            self._raw.flush()

    def close(self) -> None:
        with _naming(self._path):
            self._raw.close()


class _Part:
    """FILE.part: created by its first bytes, so that a run without output does not replace the part of another run.

    lines: lines written so far
    """

    def __init__(self, path: Path) -> None:
        """path: the file that the part becomes."""
        self._path, self._part = path, part_of(path)
        self._raw: IO[bytes] | None = None
        self._packed: gzip.GzipFile | None = None
        self.lines = 0

    def write(self, data: bytes, /) -> None:
        with _naming(self._path):
            raw = self._open()
            (self._packed or raw).write(data)
        self.lines += data.count(b"\n")

    def flush(self) -> None:
        with _naming(self._path):
            if self._raw is not None and self._packed is None:  # a flush of gzip makes the file larger
                self._raw.flush()

    def publish(self) -> None:
        """Rename the part to its final name, with the mode of the file that it replaces."""
        with _naming(self._path):
            self._open()
            self.close()
            if self._path.exists():
                shutil.copymode(self._path, self._part)
            self._part.replace(self._path.resolve())

    def close(self) -> None:
        """Close the part, if it was created, and sync it to disk."""
        raw, packed, self._raw, self._packed = self._raw, self._packed, None, None
        if raw is not None:
            with raw:
                if packed is not None:
                    packed.close()
                raw.flush()
                os.fsync(raw.fileno())

    def _open(self) -> IO[bytes]:
        if self._raw is None:
            self._raw = self._part.open("wb")
            if self._path.suffix == ".gz":  # without the time, so that equal lines are equal bytes
                self._packed = gzip.GzipFile("", "wb", fileobj=self._raw, mtime=0)
        return self._raw


def part_of(path: Path) -> Path:
    """The path of the part of a file."""
    real = path.resolve()
    return real.with_name(f"{real.name}.part")


def check_output(path: Path, *inputs: Path | None) -> None:
    """Raise SettingsError if a file cannot be written or is one of the inputs."""
    if is_link_loop(path):
        raise SettingsError(f"--output {path}: {os.strerror(errno.ELOOP)}")
    for each in inputs:
        if each is not None and any(_same(each, mine) for mine in (path, part_of(path))):
            raise SettingsError(f"--output {path}: is the input; choose another file")
    if path.exists() and not os.access(path, os.W_OK):
        raise SettingsError(f"--output {path}: {os.strerror(errno.EACCES)}")
    if path.is_dir():
        raise SettingsError(f"--output {path}: {os.strerror(errno.EISDIR)}")
    folder = path.resolve().parent
    if not folder.is_dir():
        raise SettingsError(f"--output {path}: {os.strerror(errno.ENOENT)}")
    if _is_plain(path) and not os.access(folder, os.W_OK | os.X_OK):
        raise SettingsError(f"--output {path}: no permission to write to its folder")


@contextmanager
def writing(path: Path | None) -> Iterator[Lines]:
    """The file to write lines to, compressed if path ends in .gz; standard output if path is None.

    path: checked by `check_output`
    A regular file appears under its name when the block ends without an error; until then an earlier file of that name
    is unchanged. After an error the lines so far are kept in FILE.part.
    """
    if path is None:
        if sys.stdout is None:
            raise LingonError("standard output is closed; give --output")
        sys.stdout.flush()
        yield sys.stdout.buffer
    elif not _is_plain(path):  # a pipe or a device cannot be replaced by a rename
        with closing(_Device(path)) as device:
            yield device
    else:
        yield from _write_part(path)


def _write_part(path: Path) -> Iterator[Lines]:
    part = _Part(path)
    try:
        yield part
        part.publish()
    except BaseException:
        with suppress(OSError):  # if the disk is full, keep what was written
            part.close()
        if part.lines:
            count = "the first line is" if part.lines == 1 else f"the first {part.lines:,} lines are"
            print_message(f"{path} is not complete; {count} in {part_of(path)}")
        raise


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # the reader has closed, as in `--output /dev/stdout | head`
        raise
    except OSError as error:
        raise LingonError(f"--output {path}: {error.strerror}") from None


def _is_plain(path: Path) -> bool:
    return path.is_file() or not path.exists()


def _same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)


def print_message(message: str) -> None:
    """Print a message for the user on standard error."""
    if sys.stderr is not None:
        sys.stderr.write(f"lingon: {message}\n")
