"""What the stores of glossaries and of translation memories have in common: names, versions, how a change arrives."""

from __future__ import annotations

import time
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from lingon.errors import (
    AlreadyStored,
    InvalidRequest,
    NotStored,
    StoredDamaged,
    StoredVersionChanged,
    StoreFull,
    Unsupported,
)
from lingon.files import remove_file
from lingon.serving.stores.data_dir import DataDir
from lingon.serving.stores.messages_file import Spool
from lingon.serving.stores.owners import OwnerFolder, check_name, file_name, name_of, not_stored

MOST_LABEL = 1024  # characters


class Wanted(Protocol):
    """The part of a header of a change that says of what it is; see PutGlossaryHeader."""

    name: str
    label: str
    expected_version: int
    create: bool


class StoredHeader(Protocol):
    """What is known of a glossary or a memory without its items; created: milliseconds since 1970."""

    @property
    def label(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def created(self) -> int: ...

    def message(self) -> Any:
        """Return the message of the API."""


HeaderT = TypeVar("HeaderT", bound=StoredHeader)
Message = TypeVar("Message")


class Store(ABC, Generic[HeaderT, Message]):
    """All that the owners have of a kind, a file for each with its name. Belongs to the event loop.

    Its methods take the caller of a call, see `owner_of`. Without a folder all raise Unsupported.

    kind, folder, suffix: word for one in messages; name of the folder of an owner, and end of the files in it
    several: words for several in messages; message_type: makes a message with a name alone
    """

    kind: ClassVar[str]
    folder: ClassVar[str]
    suffix: ClassVar[str]
    several: ClassVar[str]
    message_type: Callable[..., Message]

    def __init__(self, data_dir: DataDir | None) -> None:
        self._data_dir = data_dir

    async def get(self, caller: str, name: str) -> Message:
        """Return one without its items. Raises NotStored."""
        path = self._path(self._opened().owner(caller), check_name(name, "name"))
        return await self._opened().run(lambda: self._header(path, name).message())

    async def all(self, caller: str) -> list[Message]:
        """Return all of the owner without their items, sorted by name. A damaged one has its name alone."""
        owner = self._opened().owner(caller)
        return await self._opened().run(lambda: list(self._all(owner)))

    @abstractmethod
    def _header(self, path: Path, name: str) -> HeaderT:
        """Return the header of one. Raises NotStored or StoredDamaged."""

    async def _receive(
        self,
        caller: str,
        parts: AsyncIterator[Any],
        check: Callable[[OwnerFolder], object],
        append: Callable[[Spool, Any], None],
        store: Callable[[OwnerFolder, Spool], Message],
    ) -> Message:
        """Store what the messages of a change have, once all have arrived, and return what `store` returns.

        check: raises what refuses the change before the messages arrive, which may take long; `store` checks it again
        append: adds a message to those that have arrived
        """
        data_dir, owner = self._opened(), self._opened().owner(caller)
        async with data_dir.receiving(caller):
            await data_dir.run(partial(check, owner))
            async with data_dir.spool(owner) as spool:
                async for part in parts:
                    await data_dir.run(partial(append, spool, part))
                return await data_dir.change(caller, partial(store, owner, spool))

    def _opened(self) -> DataDir:
        """Return the folder. Raises Unsupported if there is none."""
        if self._data_dir is None:
            raise Unsupported(f"this server keeps no {self.several}; start it with --data-dir")
        return self._data_dir

    def _path(self, owner: OwnerFolder, name: str) -> Path:
        return owner.folder(self.folder) / f"{file_name(name)}{self.suffix}"

    def _all(self, owner: OwnerFolder) -> Iterator[Message]:
        files = owner.files(self.folder, self.suffix)
        for name in sorted(name_of(path.name.removesuffix(self.suffix)) for path in files):
            try:
                yield self._header(self._path(owner, name), name).message()
            except NotStored:  # removed meanwhile
                continue
            except StoredDamaged:
                yield self.message_type(name=name)

    def _before(self, owner: OwnerFolder, wanted: Wanted, most: int) -> HeaderT | None:
        """Return the header of what is to be changed, or None for a new one. Raises what refuses the change.

        most: that an owner may have

        Raises NotStored, AlreadyStored, StoredVersionChanged or StoreFull.
        """
        try:
            header = self._header(self._path(owner, wanted.name), wanted.name)
        except NotStored:
            if wanted.expected_version:
                raise
            count = sum(1 for _ in owner.files(self.folder, self.suffix))
            if count >= most:
                raise StoreFull(
                    f"you have {count:,} {self.folder}, and the server keeps {most:,}; remove one"
                ) from None
            return None
        if wanted.create:
            raise AlreadyStored(f"there is a {self.kind} {wanted.name} already")
        if wanted.expected_version not in (0, header.version):
            raise StoredVersionChanged(
                f"{self.kind} {wanted.name} has version {header.version}, not {wanted.expected_version}; read it again"
            )
        return header

    def _check_bytes(self, owner: OwnerFolder, replaced: int, new: int) -> None:
        """Raise StoreFull if so many new bytes in place of others make the owner have too many."""
        size, most = owner.stored_bytes() - replaced + new, self._opened().limits.max_stored_bytes
        if size > most:
            raise StoreFull(
                f"your glossaries and memories would have {size:,} bytes, and the server keeps {most:,}; remove some"
            )

    def _remove(self, owner: OwnerFolder, name: str) -> None:
        """Raises NotStored. Blocks."""
        with owner.changing():
            try:
                remove_file(self._path(owner, name))
            except FileNotFoundError:
                raise not_stored(self.kind, name) from None
            self._removed(owner)

    def _removed(self, owner: OwnerFolder) -> None:
        """Called after a file was removed, with the lock of the owner."""


def check_label(label: str) -> None:
    """Raise InvalidRequest for a label that is too long or has control characters."""
    if len(label) > MOST_LABEL or any(unicodedata.category(each) == "Cc" for each in label):
        raise InvalidRequest("header.label", f"header.label must be one line of at most {MOST_LABEL:,} characters")


def next_version(before: StoredHeader | None, label: str) -> dict[str, Any]:
    """Return what the header of the next version has anew: label, version, created and changed.

    A version is the time, in milliseconds since 1970, or one more than the version before. It therefore grows also
    from something that was removed to something new of its name.

    label: empty leaves the one before
    """
    now = time.time_ns() // 1_000_000
    if before is None:
        return {"label": label, "version": max(1, now), "created": now, "changed": now}
    version = max(before.version + 1, now)
    return {"label": label or before.label, "version": version, "created": before.created, "changed": now}
