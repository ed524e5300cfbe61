"""What is loaded of the files of stores, kept in memory while the files are unchanged."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import partial
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from lingon.serving.stores.data_dir import DataDir

Value = TypeVar("Value")


class Stamp(NamedTuple):
    """What differs between two versions of a file: each one is a new file under the same name."""

    inode: int
    changed: int  # nanoseconds
    size: int  # bytes


def stamp_of(path: Path) -> Stamp | None:
    """Return the stamp of a file, or None if there is none. It takes 2 us on a local disk."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return Stamp(status.st_ino, status.st_mtime_ns, status.st_size)


class _Entry(NamedTuple, Generic[Value]):
    stamp: Stamp
    value: Value
    size: int


class Loaded(Generic[Value]):
    """Values by key, each loaded of one version of a file. Above a size the least recently used leave.

    Belongs to the event loop.
    """

    def __init__(self, data_dir: DataDir, most_bytes: int) -> None:
        """most_bytes: of all values; the latest one stays even if it is larger."""
        self._data_dir, self._most = data_dir, most_bytes
        self._entries: OrderedDict[Hashable, _Entry[Value]] = OrderedDict()
        self._loading: dict[tuple[Hashable, Stamp], asyncio.Future[Value]] = {}
        self.size = 0  # bytes

    async def get(self, key: Hashable, stamp: Stamp, load: Callable[[], tuple[Value, int]]) -> Value:
        """Return the value for a stamp. If it is not there it is loaded once on a thread, for all that wait for it.

        load: returns the value and its size in bytes
        """
        entry = self._entries.get(key)
        if entry is not None and entry.stamp == stamp:
            self._entries.move_to_end(key)
            return entry.value
        loading = self._loading.get((key, stamp))
        if loading is None:
            loading = asyncio.ensure_future(self._load(key, stamp, load))
            self._loading[key, stamp] = loading
            loading.add_done_callback(partial(self._ended, (key, stamp)))
        return await asyncio.shield(loading)  # one of those that wait for it may be cancelled

    def _ended(self, key: tuple[Hashable, Stamp], loading: asyncio.Future[Value]) -> None:
        del self._loading[key]
        if not loading.cancelled():
            loading.exception()  # all that waited for it may have been cancelled

    async def _load(self, key: Hashable, stamp: Stamp, load: Callable[[], tuple[Value, int]]) -> Value:
        value, size = await self._data_dir.run(load)
        self._discard(key)
        self._entries[key] = _Entry(stamp, value, size)
        self.size += size
        while self.size > self._most and len(self._entries) > 1:
            self._discard(next(iter(self._entries)))
        return value

    def _discard(self, key: Hashable) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.size -= entry.size
