"""Archives of models, unpacked into a folder that is removed afterwards."""

from __future__ import annotations

import bz2
import gzip
import lzma
import math
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from lingon.errors import LingonError, SourceModelError
from lingon.fetching.sources import ARCHIVES
from lingon.importers.files.fields import most_unpacked

ZIPS = (".zip", ".argosmodel")
MOST_FILES = 10_000  # and folders
MOST_BYTES = 64 * 2**30  # of all files together
MOST_HEADER_BYTES = 2**26  # of a tar file; a header of 1,024 bytes for each of 10,000 files takes 10 MB
PACKED_TAR: dict[bytes, Callable[[Path], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
}  # by their first bytes
_NOT_AN_ARCHIVE = (
    OSError,
    EOFError,
    RuntimeError,
    ValueError,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
    tarfile.TarError,
)


@contextmanager
def folder_of(source: Path) -> Iterator[Path]:
    """Yield the folder of a model, unpacked if it is an archive; of an archive of one folder, that folder.

    Raises SourceModelError for what is no archive, and for one with links, names outside it or too much in it. Errors
    inside the block name the archive, not the folder that it was unpacked into.
    """
    if source.is_dir() or not source.name.endswith(ARCHIVES):
        yield source
        return
    with tempfile.TemporaryDirectory(prefix="lingon-import-") as name:
        folder = Path(name)
        try:
            unpack = _unpack_zip if source.suffix in ZIPS else _unpack_tar
            unpack(source, folder)
        except _NOT_AN_ARCHIVE as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise SourceModelError(f"{source}: cannot be unpacked ({reason})") from None
        inside = list(folder.iterdir())
        model = inside[0] if len(inside) == 1 and inside[0].is_dir() else folder
        try:
            yield model
        except LingonError as error:
            error.args = (str(error).replace(str(model), str(source)),)
            raise


class _Limits:
    """What an archive may hold. Entries are added one by one, so that a packed one is not read beyond the limits."""

    def __init__(self, source: Path, folder: Path) -> None:
        self._source, self._files, self._bytes = source, 0, 0
        self._bounds = [
            (MOST_BYTES, "when unpacked"),
            (most_unpacked(source), "when unpacked, by its own size"),
            (shutil.disk_usage(folder).free, f"when unpacked, which are free in {folder.parent}"),
        ]

    def add(self, size: int) -> None:
        """Add a folder, or a file of this size. Raises SourceModelError for too many of them or of their bytes."""
        self._files, self._bytes = self._files + 1, self._bytes + size
        if self._files > MOST_FILES:
            raise SourceModelError(f"{self._source}: must have at most {MOST_FILES:,} files and folders")
        for most, what in self._bounds:
            if self._bytes > most:
                raise SourceModelError(
                    f"{self._source}: must have at most {most:,} bytes {what}, has {self._bytes:,} or more"
                )


def _check_name(source: Path, name: str) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or not path.parts:
        raise SourceModelError(f"{source}: {name[:60]!r} is the name of a file outside the archive")


def _unpack_zip(source: Path, folder: Path) -> None:
    limits = _Limits(source, folder)
    with zipfile.ZipFile(source) as archive:
        for entry in archive.infolist():
            limits.add(entry.file_size)
        entries = [entry for entry in archive.infolist() if not entry.is_dir()]
        for entry in entries:
            _check_name(source, entry.filename)
        for entry in entries:
            with archive.open(entry) as opened:
                _write(source, folder / entry.filename, opened, entry.file_size)


class _TarStream:
    """The content of a tar file, of which `left` bytes may be read: tarfile reads a header whole, whatever its size."""

    def __init__(self, content: IO[bytes]) -> None:
        self._content, self.left = content, float(MOST_HEADER_BYTES)
        self.seek, self.tell = content.seek, content.tell

    def read(self, size: int) -> bytes:
        """Return the next bytes."""
        self.left -= size
        if self.left < 0:
            raise ValueError(f"its headers have more than {MOST_HEADER_BYTES:,} bytes")
        return self._content.read(size)


def _unpack_tar(source: Path, folder: Path) -> None:
    limits, entries = _Limits(source, folder), []
    with source.open("rb") as file:
        begin = file.read(8)
    read = next((each for first, each in PACKED_TAR.items() if begin.startswith(first)), lambda path: path.open("rb"))
    with read(source) as content:
        stream = _TarStream(content)
        with tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r:") as archive:
            for entry in archive:
                limits.add(entry.size)
                if entry.isdir():
                    continue
                if not entry.isfile() or entry.issparse():
                    raise SourceModelError(f"{source}: {entry.name[:60]} is no plain file")
                _check_name(source, entry.name)
                entries.append(entry)
            stream.left = math.inf
            for entry in entries:
                opened = archive.extractfile(entry)
                assert opened is not None  # it is a plain file
                _write(source, folder / entry.name, opened, entry.size)


def _write(source: Path, path: Path, opened: IO[bytes], size: int) -> None:
    """Write a file of the archive, which must have the size that the archive says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as written:
        shutil.copyfileobj(opened, written)
    if (found := path.stat().st_size) != size:
        raise SourceModelError(f"{source}: {path.name} must have {size:,} bytes, has {found:,}")
