"""The folders of owners: which one belongs to a caller, the names of files in it, its size, and the lock of changes.

    data_dir/
        OWNER/                  a folder for each owner, whose name is a hash
            owner               its identity, for people
            lock                held by the process that changes something
            glossaries/         NAME.glossary
            memories/           NAME.memory, and a folder for the segments of each

An owner is an API key or a client certificate. On a server without keys all callers are one owner.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lingon.errors import DiskFull, InvalidRequest, NotStored, StoreBusy
from lingon.files import IS_PART, make_folders, remove_partial_files, write_text

NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
OWNERS = ("key/", "certificate/")  # prefixes of the callers that own something by themselves; see serving.auth.callers
KINDS = ("glossaries", "memories")
PRIVATE = 0o700  # mode of the folders, because terms and segments may be confidential
PRIVATE_FILE = 0o600
LOCK_SECONDS = 30.0  # seconds that a change waits for those of other processes
LOCK_INTERVAL = 0.02  # seconds between two tries to take the lock, which has no fair queue
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the last one is a limit of the process


def owner_of(caller: str) -> str:
    """Return the owner of what a caller stores: itself if it has a key or a certificate, else "" for everyone.

    caller: see `serving.auth.callers.caller_of`, or an owner
    """
    return caller if caller.startswith(OWNERS) else ""


def check_name(name: str, field: str) -> str:
    """Return a name. Raises InvalidRequest, which names the field."""
    if not NAME.fullmatch(name):
        raise InvalidRequest(field, f"{field} must be 1 to 64 letters, figures and the signs . _ -, got {name[:80]!r}")
    return name


def not_stored(kind: str, name: str) -> NotStored:
    """Return the error of a name without a glossary or memory."""
    return NotStored(kind, name, f"there is no {kind} {name}")


def file_name(name: str) -> str:
    """Return the name of a file for a name, so that A and a are two files also where the system takes them for one."""
    return re.sub("[A-Z]", lambda letter: f"+{letter[0].lower()}", name)


def name_of(file: str) -> str:
    """Return the name that `file_name` made the name of a file from."""
    return re.sub(r"\+([a-z])", lambda letter: letter[1].upper(), file)


class OwnerFolder:
    """The folder of one owner. It exists once something is stored. Its methods block."""

    def __init__(self, data_dir: Path, owner: str) -> None:
        """owner: see `owner_of`."""
        self._owner = owner
        self.path = data_dir / hashlib.sha256(owner.encode()).hexdigest()[:32]

    def folder(self, kind: str) -> Path:
        """Return the folder of "glossaries" or "memories"."""
        return self.path / kind

    def files(self, kind: str, suffix: str) -> Iterator[Path]:
        """Yield the files of a kind. The name of one may begin with a dot, but no temporary file has this suffix."""
        try:
            yield from (path for path in self.folder(kind).iterdir() if path.name.endswith(suffix))
        except FileNotFoundError:  # nothing was stored yet
            return

    def stored_bytes(self) -> int:
        """Return the size of all glossaries and memories, without what is being written."""
        return sum(bytes_in(self.folder(kind)) for kind in KINDS)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Make the folders, and keep all other processes from changes of this owner during the block.

        Raises StoreBusy if one holds the lock for LOCK_SECONDS, and DiskFull if the block finds no room on the disk.
        """
        with disk_errors():
            self.make()
            handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
            try:
                _lock(handle)
                yield
            finally:
                os.close(handle)

    def make(self) -> None:
        """Make the folders."""
        if (self.path / "owner").exists():
            return
        make_folders(self.path, PRIVATE)
        for kind in KINDS:
            make_folders(self.folder(kind), PRIVATE)
        write_text(self.path / "owner", f"{self._owner or 'everyone'}\n")


def bytes_in(folder: Path) -> int:
    """Return the size of the files in a folder and below, without temporary ones."""
    size = 0
    for path in folder.iterdir():
        if IS_PART.fullmatch(path.name):
            continue
        with suppress(FileNotFoundError):  # another process has replaced it
            size += bytes_in(path) if path.is_dir() else path.stat().st_size
    return size


def _lock(handle: int) -> None:
    """Lock a file. Raises StoreBusy."""
    end = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > end:
                raise StoreBusy("another change of your glossaries or memories takes long; try again") from None
            time.sleep(LOCK_INTERVAL)


@contextmanager
def disk_errors() -> Iterator[None]:
    """Raise DiskFull in place of the error of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.errno in _NO_ROOM:  # NumPy gives an incomplete write no number
            raise DiskFull("the server's disk is full; nothing was changed") from None
        raise


def remove_partial(owner: Path) -> None:
    """Remove files that killed processes were writing in the folder of an owner. Those of living ones stay."""
    for folder in (owner, *(owner / kind for kind in KINDS)):
        if folder.is_dir():
            remove_partial_files(folder)
