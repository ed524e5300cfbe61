"""The files of a prepared corpus by their paths, here or in an object store, where each appears whole too."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lingon import files
from lingon.errors import CorpusError, SettingsError
from lingon.object_stores import exists, in_store, is_url, open_file, url_of
from lingon.text import Tokenizer

READERS = 16  # files of a store that are read at once
Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def alone_in(folder: Path, work: str) -> Iterator[None]:
    """Make a folder and the one of its work, and refuse a second preparation in it at the same time.

    A store has no lock: two preparations write the same bytes there, and the slower one fails at its end.
    """
    with ExitStack() as stack:
        if not is_url(folder):
            try:
                files.make_folders(folder / work)
                stack.enter_context(files.lock_path(folder))
            except BlockingIOError:
                raise SettingsError(f"{folder}: another process prepares this corpus") from None
            except OSError as error:
                raise SettingsError(f"{folder}: {error.strerror}") from None
            files.remove_partial_files(folder)
            files.remove_partial_files(folder / work)
        yield


def make_folder(folder: Path) -> None:
    """Make a folder, which in a store is there with its first file."""
    if not is_url(folder):
        files.make_folders(folder)


def names_in(folder: Path) -> set[str]:
    """Return the names of the files in a folder, none if it is not there."""
    if not is_url(folder):
        return {path.name for path in folder.iterdir() if path.is_file()} if folder.is_dir() else set()
    with in_store(folder) as (store, name):
        try:
            found = store.ls(name, detail=True)
        except FileNotFoundError:
            return set()
    return {info["name"].rsplit("/", 1)[-1] for info in found if info["type"] == "file"}


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file. Raises FileNotFoundError."""
    if not is_url(path):
        return path.read_bytes()
    with in_store(path) as (store, name):
        return bytes(store.cat_file(name))


def read_json(path: Path) -> Any:
    """Return the value of a JSON file."""
    return json.loads(read_bytes(path))


def read_array(path: Path) -> NDArray[Any]:
    """Return the array of a file, mapped if it is on this machine."""
    found: NDArray[Any] = np.load(BytesIO(read_bytes(path)) if is_url(path) else path, None if is_url(path) else "r")
    return found


def read_tokenizer(folder: Path) -> Tokenizer:
    """Return the tokenizer in a folder. Raises BundleError."""
    if not is_url(folder):
        return Tokenizer.read(folder)
    names = Tokenizer.JOINT if exists(folder / Tokenizer.JOINT[0]) else Tokenizer.SEPARATE
    return Tokenizer(*(read_bytes(folder / name) for name in names))


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Write a file whole, replacing an earlier one."""
    if not is_url(path):
        files.write_bytes(path, content)
        return
    with in_store(path) as (store, name):
        store.pipe_file(name, bytes(content))


def write_text(path: Path, text: str) -> None:
    """Write a text file whole, in UTF-8."""
    write_bytes(path, text.encode("utf-8"))


def write_array(path: Path, array: NDArray[Any]) -> None:
    """Write an array whole."""
    file = BytesIO()
    np.save(file, array)
    write_bytes(path, file.getbuffer())


def remove(path: Path) -> None:
    """Remove a file, if it is there."""
    if not is_url(path):
        path.unlink(missing_ok=True)
    elif exists(path):
        with in_store(path) as (store, name):
            store.rm_file(name)


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that it has. It may be gone, or go meanwhile."""
    if not is_url(folder):
        shutil.rmtree(folder, ignore_errors=True)
        return
    with in_store(folder) as (store, name), suppress(FileNotFoundError):
        store.rm(name, recursive=True)


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal. Raises CorpusError if it cannot be read."""
    try:
        with open_file(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # it has readinto
    except OSError as error:
        raise CorpusError(f"{url_of(path)}: {error.strerror}") from None


def each_of(folder: Path, read: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield what `read` returns for each item, in their order; from a store, many are read at once."""
    if not is_url(folder):
        yield from map(read, items)
        return
    with ThreadPoolExecutor(READERS) as pool:
        yield from pool.map(read, items)
