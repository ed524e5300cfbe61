"""Where translated files are kept until they are fetched."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from lingon.documents import SUFFIXES
from lingon.errors import SettingsError
from lingon.files import make_folders, remove_partial_files, write_new_private, write_private
from lingon.gateway.requests.problem import Problem

KEEP_SECONDS = 3600.0  # for which a file is kept that nobody fetches
MOST_BYTES = 2**28  # of all files that are kept; those of one caller have a quarter of it
LEAST_BYTES = 4096  # that a file counts
ROOM_SECONDS = 60.0  # after which a file for which there was no room is tried again
REMOVE_SECONDS = 60.0  # between two looks for old files
IDS = re.compile(r"[0-9a-f]{32}")


class KeptFiles:
    """Files in a folder, for the user of the server only: documents until they are fetched, and all for an hour.

    The names of files say nothing of what they hold. A restart forgets nothing that was finished.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder, self._clock = folder, clock
        self._owners: dict[str, str] = {}  # of the files that were written since the start, by their names
        try:
            make_folders(folder)
            folder.chmod(0o700)
            remove_partial_files(folder)
            self.remove_old()
        except OSError as error:
            raise SettingsError(f"the folder for files {folder} cannot be used: {error.strerror}") from None

    def check_room(self, owner: str, size: int) -> None:
        """Raise Problem if there is no room for a file of a caller."""
        self.remove_old()
        sizes = {path.name: max(size, LEAST_BYTES) for path, size, _ in self._files()}
        self._owners = {name: each for name, each in self._owners.items() if name in sizes}
        own = sum(sizes[name] for name, each in self._owners.items() if each == owner)
        if sum(sizes.values()) + size > MOST_BYTES or own + size > MOST_BYTES // 4:
            message = "there is no room for more files until others are fetched or an hour old; try again later"
            raise Problem(503, message, retry_after=ROOM_SECONDS)

    def keep_result(self, owner: str, name: str, content: bytes) -> str:
        """Keep a translation; returns the name to fetch it by. Raises Problem if there is no room."""
        number, suffix = secrets.token_hex(16), Path(name).suffix.lower()
        self.write_result(owner, number, suffix, content)
        return f"{number}{suffix}"

    def write_result(self, owner: str, number: str, suffix: str, content: bytes) -> None:
        """Keep the translation of a document; raises Problem if there is no room."""
        self.check_room(owner, len(content))
        name = f"{number}{suffix}"
        self._owners[name] = owner
        write_new_private(self._folder / name, content)

    def result(self, name: str) -> bytes:
        """Return a translation that was kept; raises Problem 404."""
        self.remove_old()
        path = Path(name)
        if not IDS.fullmatch(path.stem) or path.suffix not in SUFFIXES or path.name != name:
            raise Problem(404, "no such file")
        try:
            return (self._folder / name).read_bytes()
        except OSError:
            raise Problem(404, "no such file, or it was removed") from None

    def write_state(self, number: str, state: dict[str, Any]) -> None:
        """Write what is known of a document."""
        write_private(self._folder / f"{number}.json", json.dumps(state).encode())

    def read_state(self, number: str) -> dict[str, Any]:
        """Return what is known of a document; raises Problem 404."""
        self.remove_old()
        try:
            if IDS.fullmatch(number):
                found: dict[str, Any] = json.loads((self._folder / f"{number}.json").read_text(encoding="utf-8"))
                return found
        except (OSError, ValueError):
            pass
        raise Problem(404, "no such document")

    def remove(self, number: str) -> None:
        """Remove a document and its translation."""
        for path in self._folder.glob(f"{number}.*"):
            path.unlink(missing_ok=True)

    async def remove_old_ones(self) -> None:
        """Remove them from time to time, until it is cancelled."""
        while True:
            await asyncio.sleep(REMOVE_SECONDS)
            self.remove_old()

    def remove_old(self) -> None:
        """Remove the files that were kept for too long."""
        oldest = self._clock() - KEEP_SECONDS
        for path, _, changed in self._files():
            if changed < oldest:
                path.unlink(missing_ok=True)

    def _files(self) -> Iterator[tuple[Path, int, float]]:
        """Yield the files with their bytes and the times of their last change."""
        for path in self._folder.iterdir():
            with suppress(FileNotFoundError):  # another request has removed it
                status = path.stat()
                yield path, status.st_size, status.st_mtime
