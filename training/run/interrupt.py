"""SIGINT and SIGTERM during a run: save, then end."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass


@dataclass(slots=True)
class Interrupt:
    """Whether a person or the system requested the run to stop; it then saves and ends."""

    requested: bool = False

    def install_handlers(self) -> None:
        """Ask on SIGINT and SIGTERM; a second signal, of either kind, ends the process at once."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: object) -> None:
        self.requested = True
        for other in (signal.SIGINT, signal.SIGTERM):
            signal.signal(other, signal.SIG_DFL)
        # Reading text may go on for minutes. Not by print, which the signal may have cut short in the middle.
        with contextlib.suppress(
            OSError
        ):  # nobody reads any more: what ends us may have ended them, as in `lingon train | tee`
            os.write(2, b"stops and saves after the next update; a second signal ends it at once\n")
