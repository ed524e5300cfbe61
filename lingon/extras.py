"""What a plain install leaves out: finding the rooms' parts by entry point, and saying which extra is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points

from lingon.errors import LingonError


def find_entry_points(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group by name; the extra that each one needs is in its `extras`."""
    return {entry.name: entry for entry in entry_points(group=group)}


@contextmanager
def name_missing_extra(doer: str, entry: EntryPoint) -> Iterator[None]:
    """Turns a third-party module missing inside the block into one line that names the extra of the entry point.

    doer: who needs it, as a person would type it: `lingon train`
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if not module or module == "lingon" or not entry.extras:
            raise
        extra = entry.extras[0]
        raise LingonError(
            f"{doer} needs what the extra '{extra}' installs ({module} is missing): pip install 'lingon[{extra}]'"
        ) from error
