"""The signals that stop a run or a preparation after the work in hand."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass


@dataclass(slots=True)
class Interrupt:
    """Whether a signal has asked to stop, and which one."""

    requested: bool = False
    signal_number: int = signal.SIGINT
    after: str = "the next update"  # what is still done

    def stop_signal(self) -> int:
        """Return the number of the signal that has asked to stop, or 0."""
        return self.signal_number if self.requested else 0

    def install_handlers(self) -> None:
        """Make SIGINT and SIGTERM request the stop. A second signal of either kind ends the process at once."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._request)

    def _request(self, number: int, frame: object) -> None:
        self.requested, self.signal_number = True, number
        for other in (signal.SIGINT, signal.SIGTERM):
            signal.signal(other, signal.SIG_DFL)
        # The message comes now, because reading text may take minutes. print is not safe here: the signal may have
        # interrupted another print. The write fails if the same signal ended the reader, as in `lingon train | tee`.
        with contextlib.suppress(OSError):
            os.write(2, f"stops and saves after {self.after}; a second signal ends it at once\n".encode())
