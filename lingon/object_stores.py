"""Files of object stores, by fsspec: s3:// needs the package s3fs, gs:// gcsfs, az:// adlfs.

A setting that is a path may name a file of a store. A `Path` has no two slashes in a row, so that one made from
s3://bucket/key is s3:/bucket/key. The functions here take it as the URL.
"""

from __future__ import annotations

import errno
import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from lingon.errors import CorpusError, LingonError, SettingsError
from lingon.extras import name_missing_extra

READ_BYTES = 2**20  # bytes of a file of a store that are kept for the next lines
REQUEST_BYTES = 2**24  # bytes of a request for what follows: many in a row are nearly as fast as larger ones

# A scheme has at least two letters; one is a drive of Windows.
_URL = re.compile(r"([a-z][a-z0-9+.-]+):/+")


def is_url(path: Path | str) -> bool:
    """Return whether a path is one of an object store."""
    return _URL.match(str(path)) is not None


def url_of(path: Path | str) -> str:
    """Return the URL that a path was made from, or a path of this machine as it is."""
    return _URL.sub(r"\1://", str(path), count=1) if is_url(path) else str(path)


def store_of(url: str) -> tuple[Any, str]:
    """Return the file system of a URL or path, and the path in it. Raises SettingsError if its package is missing."""
    with name_missing_extra(f"to read {url}, Lingon", ["bulk"]):
        from fsspec.core import url_to_fs
    try:
        found: tuple[Any, str] = url_to_fs(url, use_listings_cache=False)  # other processes write there too
    except (ImportError, ValueError) as error:
        raise SettingsError(f"{url}: {error}") from None
    return found


@contextmanager
def naming_file(url: str) -> Iterator[None]:
    """Name the file in the error of a store, which has classes of its own for them."""
    try:
        yield
    except (FileNotFoundError, FileExistsError, LingonError):
        raise
    except Exception as error:
        raise LingonError(f"{url}: {getattr(error, 'strerror', None) or error}") from error


@contextmanager
def in_store(path: Path | str) -> Iterator[tuple[Any, str]]:
    """Give the file system of a file of a store, and the path in it. Errors name the file."""
    url = url_of(path)
    store, name = store_of(url)
    with naming_file(url):
        yield store, name


def open_file(path: Path | str) -> IO[bytes]:
    """Open a file for reading, here or in a store. Raises OSError, and LingonError for what a store refuses."""
    if not is_url(path):
        return Path(path).open("rb")
    with in_store(path) as (store, name):
        # Files of stores read whole lines only. A line that is too long must not be read whole.
        return io.BufferedReader(store.open(name, "rb", block_size=REQUEST_BYTES), READ_BYTES)


def open_parts(path: Path) -> IO[bytes]:
    """Open a file of a store of which parts are read: each read is a request for these bytes alone."""
    with in_store(path) as (store, name):
        found: IO[bytes] = store.open(name, "rb", cache_type="none")
        return found


def exists(path: Path) -> bool:
    """Return whether there is a file."""
    if not is_url(path):
        return path.is_file()
    with in_store(path) as (store, name):
        return bool(store.isfile(name))


def file_state(path: Path) -> tuple[int, int]:
    """Return the bytes of a file and the time of its last change in nanoseconds. Raises CorpusError if it is gone."""
    try:
        if not is_url(path):
            status = path.stat()
            return status.st_size, status.st_mtime_ns
        with in_store(path) as (store, name):
            changed = store.modified(name)
            return int(store.size(name)), round(changed.timestamp() * 1e6) * 1000
    except FileNotFoundError:
        raise CorpusError(f"{url_of(path)}: {os.strerror(errno.ENOENT)}") from None
