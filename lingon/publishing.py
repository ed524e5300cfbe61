"""The folder of a bundle, which appears whole or not at all; what goes wrong meanwhile is one line that names it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lingon.errors import BundleError
from lingon.files import published


@contextmanager
def publishing(folder: Path) -> Iterator[Path]:
    """A folder to lay files down in; on leaving without an error it is the one of a bundle.

    Otherwise nothing stays, of the folders above it neither that were not there. Raises BundleError where there is a
    bundle already, or where files cannot be written.
    """
    missing = [above for above in folder.parents if not above.exists()]  # the innermost first
    try:
        with published(folder) as part:
            yield part
    except BaseException as error:
        for above in missing:
            with suppress(OSError):  # it is not empty, or was never made
                above.rmdir()
        if isinstance(error, FileExistsError) and folder.exists():
            raise BundleError(f"{folder}: is there already; a published version never changes") from None
        if isinstance(error, OSError):
            raise BundleError(f"{folder}: cannot be written ({error.strerror or error})") from None
        raise


def lay_down(folder: Path, files: dict[str, bytes]) -> None:
    """Write files by their paths within folder."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
