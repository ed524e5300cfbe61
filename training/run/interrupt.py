"""Signals during a run: the first one asks the run to save and stop."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass


@dataclass(slots=True)
class Interrupt:
    """Whether a signal has asked the run to stop, and which one."""

    requested: bool = False
    signal_number: int = signal.SIGINT

    def install_handlers(self) -> None:
        """Make SIGINT and SIGTERM request the stop; a second signal of either kind ends the process at once."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._request)

    def _request(self, number: int, frame: object) -> None:
        self.requested, self.signal_number = True, number
        for other in (signal.SIGINT, signal.SIGTERM):
            signal.signal(other, signal.SIG_DFL)
        # The message comes now, because reading text may take minutes. print is not safe here: the signal may have
        # interrupted another print. The write fails if the same signal ended the reader, as in `lingon train | tee`.
        with contextlib.suppress(OSError):
            os.write(2, b"stops and saves after the next update; a second signal ends it at once\n")
