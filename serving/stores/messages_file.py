"""Protobuf messages one after another in a file, each after its length; and a file of them while they arrive."""

from __future__ import annotations

import tempfile
import threading
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, TypeVar

from google.protobuf.message import DecodeError, Message

LENGTH_BYTES = 4  # bytes of a length, the highest first

Kind = TypeVar("Kind", bound=Message)


class Damaged(Exception):
    """The bytes of a file are not those that were written. Its readers name the file."""


def write_message(file: IO[bytes], message: Message) -> bytes:
    """Write a message, and return the bytes that were written."""
    content = message.SerializeToString()
    framed = len(content).to_bytes(LENGTH_BYTES, "big") + content
    file.write(framed)
    return framed


def read_messages(file: IO[bytes], kind: type[Kind], size: int, checksum: int | None = None) -> Iterator[Kind]:
    """Yield messages of so many bytes from the position of a file. Raises Damaged.

    checksum: CRC-32 of the bytes, which is checked after the last message; None without a check
    """
    left, found = size, 0
    while left:
        length = file.read(LENGTH_BYTES)
        content = file.read(min(int.from_bytes(length, "big"), left))
        left -= len(length) + len(content)
        if len(length) < LENGTH_BYTES or len(content) < int.from_bytes(length, "big") or left < 0:
            raise Damaged("it ends early")
        found = zlib.crc32(content, zlib.crc32(length, found))
        try:
            yield kind.FromString(content)
        except DecodeError:
            raise Damaged("a part of it cannot be parsed") from None
    if checksum is not None and found != checksum:
        raise Damaged("its checksum differs")


class Spool:
    """Messages that arrive, in a file without a name, because those of one call may be larger than the memory.

    Nothing of it is left after the end of the process. Safe to close while another thread uses it.
    """

    def __init__(self) -> None:
        self.size = 0  # bytes
        self._file: IO[bytes] | None = None
        self._closed, self._lock = False, threading.Lock()

    def open(self, folder: Path) -> None:
        """Make the file; folder: on the disk for it. Has no effect after `close`."""
        with self._lock:
            if not self._closed:
                self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115, closed by `close`

    def append(self, message: Message) -> None:
        """Add a message. Raises ValueError after `close`."""
        with self._lock:
            file = self._opened()
            self.size += len(write_message(file, message))
            file.flush()

    def messages(self, kind: type[Kind]) -> Iterator[Kind]:
        """Yield all messages from the first one on. Raises ValueError after `close`."""
        file = self._opened()
        file.seek(0)
        return read_messages(file, kind, self.size)

    def close(self) -> None:
        """Remove the file."""
        with self._lock:
            self._closed = True
            if self._file is not None:
                with suppress(OSError):  # what could not be written is given up
                    self._file.close()

    def _opened(self) -> IO[bytes]:
        if self._file is None:
            raise ValueError("the file is closed")
        return self._file
