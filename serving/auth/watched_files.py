"""Files that are read again when they change; what cannot be used changes nothing and is told once."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from lingon.errors import SettingsError
from lingon.serving.observability.logs import event

logger = logging.getLogger(__name__)
Content = TypeVar("Content")


class WatchedFiles(Generic[Content]):
    """What some files say; for any thread. A change of one of them that does not fit the others yet is waited out."""

    def __init__(
        self,
        what: str,
        paths: Sequence[Path],
        parse: Callable[..., Content],
        *,
        pause: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read them; raises SettingsError where they cannot be used.

        what: their name in the log
        parse: what the bytes of each say; raises SettingsError
        pause: seconds between two looks at the files
        """
        self._what, self._paths, self._parse, self._pause, self._clock = what, paths, parse, pause, clock
        self._lock = threading.Lock()
        self._raw = self._read()
        self.value = parse(*self._raw)
        self._complaint = ""
        self._next = clock() + pause

    def look(self) -> bool:
        """Look at the files; returns whether they say something new."""
        with self._lock:
            now = self._clock()
            if now < self._next:
                return False
            self._next = now + self._pause
            try:
                # The bytes are compared, not times and sizes: two changes within a tick of the clock look like one.
                raw = self._read()
                new = raw != self._raw
                if new:
                    self.value = self._parse(*raw)
            except SettingsError as error:
                self._complain(str(error))
                return False
            self._raw, self._complaint = raw, ""
        if new:
            event(logger, logging.INFO, "read again", what=self._what)
        return new

    def _read(self) -> list[bytes]:
        return [_bytes(path) for path in self._paths]

    def _complain(self, complaint: str) -> None:
        if complaint != self._complaint:
            event(logger, logging.ERROR, "cannot be used; what was read before holds", what=self._what, why=complaint)
        self._complaint = complaint


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from None
