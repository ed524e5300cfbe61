"""Files that are there whole or not at all: written aside, synced, then renamed; and read only where they are plain."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def published(folder: Path) -> Iterator[Path]:
    """A new folder to fill; on leaving without an error it appears as `folder`, complete and on disk.

    A kill at any moment leaves at most a hidden `.NAME.part` beside it, which the next attempt removes.
    Raises FileExistsError where folder is there already: what was published never changes.
    """
    if folder.exists():
        raise FileExistsError(f"{folder} exists already")
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        yield part
        for path in [*part.rglob("*"), part]:
            _sync(path)
        try:
            os.rename(part, folder)
        except OSError:  # another process was faster
            if folder.exists():
                raise FileExistsError(f"{folder} exists already") from None
            raise
        _sync(folder.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Replace a small text file in one move."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    _sync(part)
    os.replace(part, path)


def write_json(path: Path, value: Any) -> None:
    """Replace a small JSON file in one move."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_plainly(folder: Path, name: str, most: int) -> bytes:
    """The bytes of a file below folder that no link leads to; name has / between its parts.

    Raises OSError, whose strerror is for people, where it is no plain file or has more than `most` bytes.
    """
    *parents, last = name.split("/")
    handles = [os.open(folder, os.O_RDONLY | os.O_DIRECTORY)]
    try:
        for parent in parents:
            handles.append(os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=handles[-1]))
        # Without O_NONBLOCK a pipe that lies there would keep us until somebody writes into it.
        handles.append(os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=handles[-1]))
        status = os.fstat(handles[-1])
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "is not a plain file")
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if status.st_size > min(most, memory):
            raise OSError(errno.EFBIG, f"has {status.st_size:,} bytes; {min(most, memory):,} are the most")
        with os.fdopen(handles.pop(), "rb") as file:
            return file.read(status.st_size)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "is a link") from None
        raise
    finally:
        for handle in handles:
            os.close(handle)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
