"""Entry points of installed packages, and the error for a package that an extra would install."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points

from lingon.errors import LingonError


def find_entry_points(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group by name; `extras` of each names the extra that it needs."""
    return {entry.name: entry for entry in entry_points(group=group)}


@contextmanager
def name_missing_extra(user: str, extras: Sequence[str]) -> Iterator[None]:
    """Turn a third-party module that is missing inside the block into an error of one line that names the extra.

    user: what needs the module, as a person would type it: `lingon train`
    extras: the extra that installs the module comes first; without any, the ModuleNotFoundError is not changed
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if not module or module == "lingon" or not extras:
            raise
        extra = extras[0]
        raise LingonError(
            f"{user} needs what the extra '{extra}' installs ({module} is missing): pip install 'lingon[{extra}]'"
        ) from error
