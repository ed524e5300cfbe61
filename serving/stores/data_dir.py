"""The folder of everything that a server keeps for its callers, its limits, and the threads that work on it."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from lingon.errors import SettingsError
from lingon.files import lock_path, make_folders
from lingon.serving.stores.memory_file import KIND as MEMORIES
from lingon.serving.stores.memory_file import remove_unnamed
from lingon.serving.stores.messages_file import Spool
from lingon.serving.stores.owners import PRIVATE, OwnerFolder, disk_errors, owner_of, remove_partial
from lingon.serving.threads import ShortTurns

Result = TypeVar("Result")

THREADS = 4  # threads for all owners: a disk that hangs then stops these alone
RECEIVED_AT_ONCE = 4  # changes of one owner whose data arrives at the same time; others wait


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreLimits:
    """What is kept for one owner. The fields are those of the settings."""

    max_glossary_entries: int = 100_000
    max_glossaries: int = 1000
    max_memories: int = 100
    max_stored_bytes: int = 1 << 30


class DataDir:
    """The folder. Belongs to the event loop, but for `owner`."""

    def __init__(self, path: Path, limits: StoreLimits) -> None:
        """Make the folder if there is none, and remove what killed processes have left in it. Raises SettingsError."""
        self.path, self.limits = path, limits
        try:
            make_folders(path, PRIVATE)
            if not os.access(path, os.W_OK | os.X_OK):
                raise SettingsError(f"data_dir: {path}: this process may not write there")
            _check_locks(path)
            for owner in filter(Path.is_dir, path.iterdir()):
                remove_left_overs(owner)
        except OSError as error:
            raise SettingsError(f"data_dir: {path}: {error.strerror}") from None
        self._threads = ThreadPoolExecutor(THREADS, "stores")
        self._turns = weakref.WeakValueDictionary[str, asyncio.Lock]()
        self._rooms = weakref.WeakValueDictionary[str, asyncio.Semaphore]()

    def owner(self, caller: str) -> OwnerFolder:
        """Return the folder of the owner that a caller belongs to."""
        return OwnerFolder(self.path, owner_of(caller))

    async def run(self, work: Callable[[], Result]) -> Result:
        """Run blocking work on a thread. It continues if the caller of this is cancelled."""
        with ShortTurns():
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    @asynccontextmanager
    async def spool(self, owner: OwnerFolder) -> AsyncIterator[Spool]:
        """Give a file for messages of an owner. A thread may still use it when the caller of this is cancelled."""
        spool = Spool()
        try:
            await self.run(partial(_open, spool, owner))
            yield spool
        finally:
            try:
                self._threads.submit(spool.close)
            except RuntimeError:  # the threads have ended
                spool.close()

    @asynccontextmanager
    async def receiving(self, caller: str) -> AsyncIterator[None]:
        """Wait until less than RECEIVED_AT_ONCE other calls of the owner receive data, which fills the disk."""
        owner = owner_of(caller)
        room = self._rooms.get(owner)
        if room is None:
            room = self._rooms[owner] = asyncio.Semaphore(RECEIVED_AT_ONCE)
        async with room:
            yield

    async def change(self, caller: str, work: Callable[[], Result]) -> Result:
        """Run a change of an owner's data on a thread, after its other changes, so that they occupy no other thread."""
        owner = owner_of(caller)
        turn = self._turns.get(owner)
        if turn is None:
            turn = self._turns[owner] = asyncio.Lock()
        async with turn:
            return await self.run(work)

    def close(self) -> None:
        """End the threads once their work is done."""
        self._threads.shutdown(wait=False)


def _check_locks(folder: Path) -> None:
    """Raise SettingsError for a folder on a file system without locks, on which two servers could change one file."""
    with suppress(BlockingIOError), lock_path(folder) as locked:
        if not locked:
            raise SettingsError(f"data_dir: {folder}: its file system has no locks; choose a folder on another one")


def _open(spool: Spool, owner: OwnerFolder) -> None:
    with disk_errors():
        owner.make()
        spool.open(owner.path)


def remove_left_overs(owner: Path) -> None:
    """Remove what killed processes have left in the folder of an owner, unless a living one changes something there."""
    remove_partial(owner)
    if (owner / MEMORIES).is_dir():
        with suppress(OSError), lock_path(owner / "lock"):
            remove_unnamed(owner / MEMORIES)
