"""Publishes the folder of a bundle atomically; every failure to write is a BundleError that names the folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from mmap import mmap
from pathlib import Path

from lingon.errors import BundleError
from lingon.files import publish_folder

Content = bytes | mmap
"""Of a file; one that is mapped into memory takes none until it is read."""


@contextmanager
def publish_bundle(folder: Path) -> Iterator[Path]:
    """A temporary folder to write files in; if the block ends without an error it becomes `folder`.

    After an error nothing stays, not even parent folders that this call made. Raises BundleError if the folder exists
    or if files cannot be written.
    """
    missing = [above for above in folder.parents if not above.exists()]  # innermost first
    inner: BaseException | None = None  # an error of the block is raised unchanged
    try:
        with publish_folder(folder) as part:
            try:
                yield part
            except BaseException as error:
                inner = error
                raise
    except BaseException as error:
        for above in missing:
            with suppress(OSError):  # it is not empty or was not made
                above.rmdir()
        if error is inner:
            raise
        if isinstance(error, FileExistsError) and folder.exists():
            raise BundleError(f"{folder}: is there already; a published version never changes") from None
        if isinstance(error, OSError):
            raise _cannot_write(folder, error) from None
        raise


def write_files(part: Path, files: Mapping[str, Content], folder: Path) -> None:
    """Write files by their paths below part, the temporary folder of `folder`. Raises BundleError."""
    try:
        for name, content in files.items():
            (part / name).parent.mkdir(parents=True, exist_ok=True)
            (part / name).write_bytes(content)
    except OSError as error:
        raise _cannot_write(folder, error) from None


def _cannot_write(folder: Path, error: OSError) -> BundleError:
    return BundleError(f"{folder}: cannot be written ({error.strerror or error})")
