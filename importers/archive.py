"""Archives of models, unpacked into a folder that is removed afterwards."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from lingon.errors import LingonError, SourceModelError

SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2")
MOST_FILES = 10_000
MOST_BYTES = 64 * 2**30  # of all files together
_NOT_AN_ARCHIVE = (OSError, EOFError, RuntimeError, ValueError, zlib.error, zipfile.BadZipFile, tarfile.TarError)


@contextmanager
def folder_of(source: Path) -> Iterator[Path]:
    """Yield the folder of a model, unpacked if it is an archive; of an archive of one folder, that folder.

    Raises SourceModelError for what is no archive, and for one with links, names outside it or too much in it. Errors
    inside the block name the archive, not the folder that it was unpacked into.
    """
    if source.is_dir() or not source.name.endswith(SUFFIXES):
        yield source
        return
    with tempfile.TemporaryDirectory(prefix="lingon-import-") as name:
        folder = Path(name)
        try:
            unpack = _unpack_zip if source.suffix == ".zip" else _unpack_tar
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


def _unpack_zip(source: Path, folder: Path) -> None:
    with zipfile.ZipFile(source) as archive:
        entries = [entry for entry in archive.infolist() if not entry.is_dir()]
        _check(source, [(entry.filename, entry.file_size) for entry in entries])
        for entry in entries:
            with archive.open(entry) as opened:
                _write(source, folder / entry.filename, opened, entry.file_size)


def _unpack_tar(source: Path, folder: Path) -> None:
    with tarfile.open(source) as archive:
        entries = [entry for entry in archive if not entry.isdir()]
        if special := [entry.name for entry in entries if not entry.isfile()][:1]:
            raise SourceModelError(f"{source}: {special[0]} is no plain file")
        _check(source, [(entry.name, entry.size) for entry in entries])
        for entry in entries:
            opened = archive.extractfile(entry)
            assert opened is not None  # it is a plain file
            _write(source, folder / entry.name, opened, entry.size)


def _check(source: Path, entries: list[tuple[str, int]]) -> None:
    """Raise SourceModelError for names outside the archive, and for too many files or bytes."""
    if len(entries) > MOST_FILES:
        raise SourceModelError(f"{source}: must have at most {MOST_FILES:,} files, has {len(entries):,}")
    size = sum(size for _, size in entries)
    if size > MOST_BYTES:
        raise SourceModelError(f"{source}: must have at most {MOST_BYTES:,} bytes when unpacked, has {size:,}")
    for name, _ in entries:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\\" in name or not path.parts:
            raise SourceModelError(f"{source}: {name[:60]!r} is the name of a file outside the archive")


def _write(source: Path, path: Path, opened: IO[bytes], size: int) -> None:
    """Write a file of the archive, which must have the size that the archive says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as written:
        shutil.copyfileobj(opened, written)
    if (found := path.stat().st_size) != size:
        raise SourceModelError(f"{source}: {path.name} must have {size:,} bytes, has {found:,}")
