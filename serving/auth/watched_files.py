"""Files that are reloaded when they change. If the new content is invalid, the old one stays and one line is logged."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from lingon.errors import SettingsError
from lingon.files import read_setting_file
from lingon.serving.observability.logs import event

logger = logging.getLogger(__name__)
Content = TypeVar("Content")


class WatchedFiles(Generic[Content]):
    """The parsed content of files that belong together, such as a certificate and its key. Safe for any thread.

    A change of one file that does not fit the others yet has no effect until they have changed too.
    """

    def __init__(
        self,
        name: str,
        paths: Sequence[Path],
        parse: Callable[..., Content],
        *,
        interval: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read and parse the files; raises SettingsError.

        name: of the files, for the log
        parse: takes the bytes of each file; raises SettingsError
        interval: seconds between two checks of the files
        """
        self._name, self._paths, self._parse, self._interval, self._clock = name, paths, parse, interval, clock
        self._lock = threading.Lock()
        self._raw = self._read()
        self.value = parse(*self._raw)
        self._last_problem = ""
        self._next_check = clock() + interval

    def reload_if_changed(self) -> bool:
        """Check the files and reload them if they changed; returns whether `value` is new."""
        with self._lock:
            now = self._clock()
            if now < self._next_check:
                return False
            self._next_check = now + self._interval
            try:
                # Bytes are compared, not times and sizes: two changes within one clock tick have the same time.
                raw = self._read()
                new = raw != self._raw
                if new:
                    self.value = self._parse(*raw)
            except SettingsError as error:
                self._log_once(str(error))
                return False
            self._raw, self._last_problem = raw, ""
        if new:
            event(logger, logging.INFO, "files reloaded", what=self._name)
        return new

    def _read(self) -> list[bytes]:
        return [read_setting_file(path) for path in self._paths]

    def _log_once(self, problem: str) -> None:
        if problem != self._last_problem:
            event(logger, logging.ERROR, "files not reloaded; the previous content stays", what=self._name, why=problem)
        self._last_problem = problem
