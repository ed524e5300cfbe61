"""Where files are kept until they are fetched: each belongs to the API and to the caller that sent it."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TypeVar

from lingon.errors import SettingsError
from lingon.files import make_folders, write_private
from lingon.gateway.backend import Caller, digest_of
from lingon.gateway.requests.problem import Problem

KEEP_SECONDS = 3600.0  # for which a file is kept that nobody fetches
MOST_BYTES = 2**28  # of all files that are kept; those of one caller have a quarter of it
LEAST_BYTES = 16_384  # that a file counts
ROOM_SECONDS = 60.0  # after which a file for which there was no room is tried again
REMOVE_SECONDS = 60.0  # between two looks for old files
RECORD, CONTENT = "record.json", "content"  # the files of a folder
NUMBER = re.compile(r"[0-9a-f]{32}")
TRANSLATING, TRANSLATED, ERROR = "translating", "done", "error"
logger = logging.getLogger(__name__)
Result = TypeVar("Result")


@dataclass(kw_only=True, slots=True)
class Kept:
    """A file that is kept.

    api: name of the API that it came by; owner: see Caller
    secret: digest of what its caller must show beside the key; empty if nothing
    made: time of its upload, in seconds since 1970
    status: TRANSLATING, TRANSLATED or ERROR; message: what was wrong
    suffix: of its name; characters: of its texts
    size: bytes that it counts
    """

    number: str
    api: str
    owner: str
    made: float
    secret: str = ""
    status: str = TRANSLATING
    message: str = ""
    suffix: str = ""
    characters: int = 0
    size: int = LEAST_BYTES


class KeptFiles:
    """Files in folders of their own, for the user of the server only. All are known here, so that no folder is listed.

    The names of files say nothing of what they hold. A restart forgets nothing that was finished. One thread works on
    the disk, in the order of the calls: a file is not read before it is written, nor written after it is removed.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        """Raises SettingsError for a folder that cannot be used. Files that are not whole are removed."""
        self._folder, self._clock = folder, clock
        self._disk = ThreadPoolExecutor(1, "kept-files")
        self._files: dict[str, Kept] = {}  # the oldest first
        self._bytes, self._by_owner = 0, Counter[str]()
        try:
            make_folders(folder)
            folder.chmod(0o700)
            found = {path: _read(path) for path in folder.iterdir() if NUMBER.match(path.name)}
        except OSError as error:
            raise SettingsError(f"the folder for files {folder} cannot be used: {error.strerror}") from None
        for path in [path for path, kept in found.items() if kept is None]:
            _remove(path)
        for kept in sorted(filter(None, found.values()), key=lambda kept: kept.made):
            if kept.status == TRANSLATING:
                kept.status, kept.message = ERROR, "the gateway was restarted; upload the document again"
                kept.size = LEAST_BYTES
            self._add(kept)

    async def begin(self, api: str, caller: Caller, size: int, secret: str = "") -> Kept:
        """Keep a place for the translation of a file of so many bytes; raises Problem if there is no room.

        secret: what its caller must show beside the key
        """
        size, digest = max(size, LEAST_BYTES), digest_of(secret) if secret else ""
        self._check_room(caller.owner, size)
        number = secrets.token_hex(16)
        kept = Kept(number=number, api=api, owner=caller.owner, made=self._clock(), secret=digest, size=size)
        self._add(kept)
        try:
            await self._write(kept)
        except asyncio.CancelledError:
            await self.remove(kept)
            raise
        return kept

    async def finish(self, kept: Kept, suffix: str, content: bytes, characters: int) -> None:
        """Keep a translation; raises Problem if there is no room, or if the file was removed meanwhile."""
        if kept.number not in self._files:
            raise _no_file()
        more = max(len(content), LEAST_BYTES) - kept.size
        if more > 0:
            self._check_room(kept.owner, more)
        self._resize(kept, kept.size + more)
        kept.status, kept.suffix, kept.characters = TRANSLATED, suffix, characters
        await self._write(kept, content)

    async def fail(self, kept: Kept, message: str) -> None:
        """Keep what was wrong with a file, unless it was removed meanwhile."""
        if kept.number in self._files:
            self._resize(kept, LEAST_BYTES)
            kept.status, kept.message = ERROR, message
            await self._write(kept)

    def find(self, number: str, api: str, caller: Caller, secret: str = "") -> Kept:
        """Return a file of this API and caller; raises Problem 404.

        A caller without a key, whom only a server without keys lets in, may have any.
        """
        kept = self._files.get(number)
        if (
            kept is None
            or kept.api != api
            or (caller.key is not None and kept.owner != caller.owner)
            or not secrets.compare_digest(kept.secret, digest_of(secret) if kept.secret else "")
            or self._is_old(kept)
        ):
            raise _no_file()
        return kept

    async def content(self, kept: Kept) -> bytes:
        """Return a translation; raises Problem 404."""
        try:
            return await self._on_disk((self._folder / kept.number / CONTENT).read_bytes)
        except OSError:
            raise _no_file() from None

    async def remove(self, kept: Kept) -> None:
        """Remove a file."""
        if self._files.pop(kept.number, None) is not None:
            self._count(kept, -kept.size)
            await self._on_disk(lambda: _remove(self._folder / kept.number))

    async def remove_old_ones(self) -> None:
        """Remove them from time to time, until it is cancelled."""
        while True:
            for kept in [kept for kept in self._files.values() if self._is_old(kept)]:
                await self.remove(kept)
            await asyncio.sleep(REMOVE_SECONDS)

    def _is_old(self, kept: Kept) -> bool:
        return abs(self._clock() - kept.made) > KEEP_SECONDS  # made later than now: the clock was set back

    def _add(self, kept: Kept) -> None:
        self._files[kept.number] = kept
        self._count(kept, kept.size)

    def _count(self, kept: Kept, size: int) -> None:
        self._bytes += size
        self._by_owner[kept.owner] += size
        if not self._by_owner[kept.owner]:
            del self._by_owner[kept.owner]

    def _resize(self, kept: Kept, size: int) -> None:
        self._count(kept, size - kept.size)
        kept.size = size

    def _check_room(self, owner: str, size: int) -> None:
        if self._bytes + size > MOST_BYTES or self._by_owner[owner] + size > MOST_BYTES // 4:
            raise _no_room()

    async def _write(self, kept: Kept, content: bytes | None = None) -> None:
        """Write what is known of a file, and its translation before it; raises Problem if the disk is full."""
        try:
            await self._on_disk(lambda: _write(self._folder / kept.number, kept, content))
        except OSError as error:
            logger.error("a file could not be kept: %s", error)
            await self.remove(kept)
            raise _no_room() from None

    async def _on_disk(self, work: Callable[[], Result]) -> Result:
        """Return what work on the disk returns; it is done even if the task is cancelled."""
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._disk, work))


def _no_room() -> Problem:
    message = "there is no room for more files until others are fetched or an hour old; try again later"
    return Problem(503, message, retry_after=ROOM_SECONDS)


def _no_file() -> Problem:
    return Problem(404, "no such file, or it was removed")


def _write(folder: Path, kept: Kept, content: bytes | None) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    if content is not None:
        write_private(folder / CONTENT, content)
    write_private(folder / RECORD, json.dumps(asdict(kept)).encode())


def _read(folder: Path) -> Kept | None:
    """Return the file of a folder; None if it is not whole."""
    try:
        found = json.loads((folder / RECORD).read_bytes())
        kept = Kept(**found)
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    right = all(type(getattr(kept, each.name)).__name__ == each.type for each in fields(kept))
    return kept if right and kept.number == folder.name and NUMBER.fullmatch(kept.number) else None


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
