"""Files that are reloaded when they change. If the new content is unusable, the old one stays for a limited time."""

from __future__ import annotations

import logging
import math
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

    If a changed file does not fit the others, the change has no effect until the others have changed too.
    """

    def __init__(
        self,
        name: str,
        paths: Sequence[Path],
        parse: Callable[..., Content],
        *,
        check: Callable[[Content], None] = lambda content: None,
        interval: float = 0.0,
        grace: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read and parse the files. Raises SettingsError.

        name: the setting of the first file, for the log
        parse: takes the bytes of each file; raises SettingsError
        check: called at every check of the files; raises SettingsError if parsed content became unusable
        interval: seconds between two checks of the files
        grace: seconds for which the previous content may be used after the files became unusable
        clock: returns seconds
        """
        self.name = name
        self._paths, self._parse, self._clock = paths, parse, clock
        self._check, self._interval, self._grace = check, interval, grace
        self._lock = threading.Lock()
        self._raw = self._read()
        self.value = parse(*self._raw)
        check(self.value)
        self._problem = ""
        self._unusable_since = math.inf  # seconds of the clock
        self._expired = False
        self._next_check = clock() + interval

    @property
    def unusable(self) -> bool:
        """Whether the files were unusable at the last check."""
        return self._problem != ""

    @property
    def expired(self) -> bool:
        """Whether the files have been unusable for so long that `value` must not be used any more."""
        return self._clock() - self._unusable_since >= self._grace

    def reload_if_changed(self) -> bool:
        """Check the files, reload them if they changed, and return whether `value` is new."""
        with self._lock:
            now = self._clock()
            if now < self._next_check:
                return False
            self._next_check = now + self._interval
            try:
                # Bytes are compared, because two changes within one clock tick have the same time.
                raw = self._read()
                new = raw != self._raw
                value = self._parse(*raw) if new else self.value
                self._check(value)
            except SettingsError as error:
                self._note_problem(str(error), now)
                return False
            self._raw, self.value = raw, value
            self._note_use(new=new)
            return new

    def _read(self) -> list[bytes]:
        return [read_setting_file(path) for path in self._paths]

    def _note_problem(self, problem: str, now: float) -> None:
        """Log each problem once, and log once when the grace is over."""
        self._unusable_since = min(self._unusable_since, now)
        if problem != self._problem:
            event(logger, logging.ERROR, "files not reloaded; the previous content stays", what=self.name, why=problem)
        self._problem = problem
        if self.expired and not self._expired:
            self._expired = True
            seconds = round(now - self._unusable_since)
            event(logger, logging.ERROR, "files unusable for too long", what=self.name, seconds=seconds, why=problem)

    def _note_use(self, *, new: bool) -> None:
        """Log that the files are usable again or have new content."""
        if new:
            event(logger, logging.INFO, "files reloaded", what=self.name)
        elif self._problem:
            event(logger, logging.INFO, "files usable again; their content is the previous one", what=self.name)
        self._problem, self._unusable_since, self._expired = "", math.inf, False
