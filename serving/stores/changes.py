"""What all changes of glossaries and memories have in common: what refuses one, and the next version."""

from __future__ import annotations

import time
import unicodedata
from typing import Protocol

from lingon.errors import AlreadyStored, InvalidRequest, NotStored, StoredVersionChanged, StoreFull
from lingon.serving.stores.owners import OwnerFolder

MOST_LABEL = 1024  # characters


class Wanted(Protocol):
    """The part of a header of a change that says of what it is; see PutGlossaryHeader."""

    name: str
    label: str
    expected_version: int
    create: bool


def check_new(kind: str, wanted: Wanted, count: int, most: int) -> None:
    """Raise what refuses a new glossary or memory: NotStored if there should be one, StoreFull.

    kind: "glossary" or "memory"; count: those that the owner has, of at most `most`
    """
    if wanted.expected_version:
        raise not_stored(kind, wanted.name)
    if count >= most:
        plural = {"glossary": "glossaries", "memory": "memories"}[kind]
        raise StoreFull(f"you have {count:,} {plural}, and the server keeps {most:,}; remove one")


def check_earlier(kind: str, wanted: Wanted, version: int) -> None:
    """Raise what refuses a change of one that is there; version: its own. AlreadyStored or StoredVersionChanged."""
    if wanted.create:
        raise AlreadyStored(f"there is a {kind} {wanted.name} already")
    if wanted.expected_version not in (0, version):
        raise StoredVersionChanged(
            f"{kind} {wanted.name} has version {version}, not {wanted.expected_version}; read it again"
        )


def check_label(label: str) -> None:
    """Raise InvalidRequest for a label that is too long or has control characters."""
    if len(label) > MOST_LABEL or any(unicodedata.category(each) == "Cc" for each in label):
        raise InvalidRequest("header.label", f"header.label must be one line of at most {MOST_LABEL:,} characters")


def check_bytes(owner: OwnerFolder, replaced: int, new: int, most: int) -> None:
    """Raise StoreFull if so many new bytes in place of others make the owner have more than `most`."""
    size = owner.stored_bytes() - replaced + new
    if size > most:
        raise StoreFull(
            f"your glossaries and memories would have {size:,} bytes, and the server keeps {most:,}; remove some"
        )


def now() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def version_after(version: int) -> int:
    """Return the version after another one: the time, in milliseconds since 1970, or one more.

    A version therefore grows also from something that was removed to something new of its name.
    """
    return max(version + 1, now())


def not_stored(kind: str, name: str) -> NotStored:
    """Return the error of a name without a glossary or memory."""
    return NotStored(kind, name, f"there is no {kind} {name}")
