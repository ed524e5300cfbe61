"""Pointers of Git LFS, which a clone without Git LFS has in the place of the large files of a model."""

from __future__ import annotations

from pathlib import Path

from lingon.errors import SourceModelError

POINTER = b"version https://git-lfs.github.com/spec/"
"""How a pointer begins."""


def explained(error: SourceModelError, folder: Path) -> SourceModelError:
    """Return the error of a file in a folder, or a plainer one if that file is a pointer."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if str(error).startswith(f"{path}: ") and _is_pointer(path):
            return SourceModelError(f"{path}: is a pointer of Git LFS in the place of the file; run git lfs pull")
    return error


def _is_pointer(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(POINTER)) == POINTER
