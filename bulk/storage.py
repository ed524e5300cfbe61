"""Files here and in object stores: listing the input, and a folder for the output whose files appear whole."""

from __future__ import annotations

import hashlib
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from fsspec.implementations.local import LocalFileSystem

from lingon.bulk.formats import suffix_of
from lingon.errors import LingonError, SettingsError
from lingon.files import make_folders, read_plain_file, remove_partial_files, write_bytes, write_new
from lingon.object_stores import naming_file, open_file, store_of

VERSIONS = ("ETag", "etag", "md5Hash", "mtime")
"""Fields of a store that change with the content of a file. The first one that a store has counts."""


class Folder(Protocol):
    """A folder of output. Names have / between their parts."""

    url: str

    def read(self, name: str, most: int) -> bytes:
        """Return the bytes of a file. Raise FileNotFoundError, and LingonError for one with more than `most` bytes."""

    def sizes(self, below: str) -> dict[str, int]:
        """Return the bytes of each file in a folder below this one, by its name there, empty if there is none."""

    def remove(self, name: str) -> None:
        """Remove a file."""

    def write(self, name: str, content: bytes) -> None:
        """Write a file whole, replacing an earlier one."""

    def create(self, name: str, content: bytes) -> None:
        """Write a new file whole. Raise FileExistsError if there is one."""


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file of the input.

    version: changes with its content: the tag of an object, the time of the last change of a file here
    """

    url: str
    size: int
    version: str


def input_files(pattern: str) -> list[InputFile]:
    """Return the files of a path, a pattern or a folder, in the order of their names.

    In a folder, files are left out whose names begin with a dot or an underscore, or have no suffix of a known format.
    Raise SettingsError if there is none.
    """
    store, path = store_of(pattern)
    with naming_file(pattern):
        if any(each in path for each in "*?["):
            found = store.glob(path, detail=True)
        elif store.isdir(path):
            found = {name: info for name, info in store.find(path, detail=True).items() if _is_data(name, path)}
        elif store.exists(path):
            found = {path: store.info(path)}
        else:
            found = {}
    files = {name: info for name, info in sorted(found.items()) if info["type"] == "file"}
    if not files:
        raise SettingsError(f"{pattern}: there is no such file")
    return [InputFile(_url(store, name), info["size"], _version(info)) for name, info in files.items()]


def _is_data(name: str, folder: str) -> bool:
    parts = name.removeprefix(folder).strip("/").split("/")
    return suffix_of(name) is not None and not any(part.startswith((".", "_")) for part in parts)


def _version(info: dict[str, Any]) -> str:
    return str(next((info[name] for name in VERSIONS if info.get(name)), ""))


def opened(url: str) -> IO[bytes]:
    """Open a file of the input for reading."""
    with naming_file(url):
        return open_file(url)


def open_folder(url: str) -> Folder:
    """Return the folder of the output, which is created when its first file is written."""
    store, path = store_of(url)
    return LocalFolder(Path(path)) if isinstance(store, LocalFileSystem) else StoreFolder(store, path)


class LocalFolder:
    """A folder of this machine, or of a file system that is mounted here."""

    def __init__(self, folder: Path) -> None:
        self.url, self.path = str(folder), folder

    def read(self, name: str, most: int) -> bytes:
        try:
            return read_plain_file(self.path, name, most)
        except FileNotFoundError:
            raise
        except NotADirectoryError:
            raise LingonError(f"{self.path}: is a file, or below one; choose a folder for the output") from None
        except OSError as error:
            raise LingonError(f"{self.path / name}: {error.strerror}") from None

    def sizes(self, below: str) -> dict[str, int]:
        folder = self.path / below
        if not folder.is_dir():
            return {}
        status = {each.name: each.lstat() for each in folder.iterdir()}  # a link is no file of a run
        return {name: each.st_size for name, each in status.items() if stat.S_ISREG(each.st_mode)}

    def remove(self, name: str) -> None:
        (self.path / name).unlink()

    def write(self, name: str, content: bytes) -> None:
        try:
            write_bytes(self._made(name), content)
        except IsADirectoryError:
            raise LingonError(f"{self.path / name}: must be a file, is a folder") from None

    def create(self, name: str, content: bytes) -> None:
        write_new(self._made(name), content)

    def remove_partial_files(self) -> None:
        """Remove partial files of killed processes."""
        for folder in (self.path, *self.path.glob("_lingon"), *self.path.glob("_lingon/*/")):
            with suppress(OSError):
                remove_partial_files(folder)

    def _made(self, name: str) -> Path:
        path = self.path / name
        try:
            make_folders(path.parent)
        except OSError as error:
            raise SettingsError(f"{path.parent}: {error.strerror}") from None
        return path


class StoreFolder:
    """A folder of an object store, in which an object appears whole or not at all."""

    def __init__(self, store: Any, path: str) -> None:
        self.url, self._store, self._path = _url(store, path), store, path.rstrip("/")

    def read(self, name: str, most: int) -> bytes:
        with naming_file(f"{self.url}/{name}"):
            content = bytes(self._store.cat_file(f"{self._path}/{name}", start=0, end=most + 1))
        if len(content) > most:
            raise LingonError(f"{self.url}/{name}: must have at most {most:,} bytes")
        return content

    def sizes(self, below: str) -> dict[str, int]:
        folder = f"{self._path}/{below}".rstrip("/")
        with naming_file(self.url):
            try:
                found = self._store.ls(folder, detail=True)
            except FileNotFoundError:
                return {}
        return {info["name"].rsplit("/", 1)[-1]: info["size"] for info in found if info["type"] == "file"}

    def remove(self, name: str) -> None:
        with naming_file(f"{self.url}/{name}"):
            self._store.rm_file(f"{self._path}/{name}")

    def write(self, name: str, content: bytes) -> None:
        with naming_file(f"{self.url}/{name}"):
            self._store.pipe_file(f"{self._path}/{name}", content)

    def create(self, name: str, content: bytes) -> None:
        with naming_file(f"{self.url}/{name}"):
            self._store.pipe_file(f"{self._path}/{name}", content, mode="create")


def digest(content: bytes) -> str:
    """Return the SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def file_digest(url: str) -> str:
    """Return the SHA-256 of a file, in hexadecimal. Raise FileNotFoundError."""
    with opened(url) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # it has readinto


def _url(store: Any, path: str) -> str:
    return path if isinstance(store, LocalFileSystem) else str(store.unstrip_protocol(path))
