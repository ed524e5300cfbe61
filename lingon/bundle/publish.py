"""The folder of a bundle, which appears whole or not at all; what goes wrong meanwhile is one line that names it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lingon.errors import BundleError
from lingon.files import publish_folder


@contextmanager
def publish_bundle(folder: Path) -> Iterator[Path]:
    """A folder to lay files down in; on leaving without an error it is the one of a bundle.

    Otherwise nothing stays, of the folders above it neither that were not there. Raises BundleError where there is a
    bundle already, or where files cannot be written.
    """
    missing = [above for above in folder.parents if not above.exists()]  # the innermost first
    inner: BaseException | None = None  # what happens in between has its own words
    try:
        with publish_folder(folder) as part:
            try:
                yield part
            except BaseException as error:
                inner = error
                raise
    except BaseException as error:
        for above in missing:
            with suppress(OSError):  # it is not empty, or was never made
                above.rmdir()
        if error is inner:
            raise
        if isinstance(error, FileExistsError) and folder.exists():
            raise BundleError(f"{folder}: is there already; a published version never changes") from None
        if isinstance(error, OSError):
            raise _unwritten(folder, error) from None
        raise


def write_files(part: Path, files: dict[str, bytes], folder: Path) -> None:
    """Write files by their paths within part, the folder that is to be `folder`; raises BundleError."""
    try:
        for name, content in files.items():
            (part / name).parent.mkdir(parents=True, exist_ok=True)
            (part / name).write_bytes(content)
    except OSError as error:
        raise _unwritten(folder, error) from None


def _unwritten(folder: Path, error: OSError) -> BundleError:
    return BundleError(f"{folder}: cannot be written ({error.strerror or error})")
