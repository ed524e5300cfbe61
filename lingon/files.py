"""Files that are either there whole or not at all: written aside, synced, then renamed."""

from __future__ import annotations

import json
import os
import shutil
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


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
