"""What a preparation shows on standard error: a bar on a terminal, else a line every ten seconds."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

PAUSE = 10.0  # seconds between two lines


class PrepareProgress:
    """The progress of the steps of a preparation. See `lingon.training.prepare.Watch`."""

    def __init__(self, console: Console) -> None:
        self._console = console
        columns = TextColumn("[bold]{task.description}"), BarColumn(), TextColumn("{task.fields[status]}")
        self._bar = Progress(*columns, console=console, disable=not console.is_terminal, transient=True)
        self._task = self._bar.add_task("", total=None, visible=False, status="")
        self._name, self._pairs, self._done = "", 0, 0
        self._begin = self._said = time.monotonic()

    def close(self) -> None:
        """Take the bar away."""
        self._bar.stop()

    def message(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def begin_step(self, name: str, pairs: int | None) -> None:
        """Begin a step; pairs: how many it takes, if that is known."""
        self._name, self._pairs, self._done = name, pairs or 0, 0
        self._begin = self._said = time.monotonic()
        self._bar.update(self._task, description=name, total=pairs, completed=0, visible=True, status="")
        self._bar.start()

    def advance(self, pairs: int) -> None:
        """Count pairs of the step that are done."""
        self._done += pairs
        now = time.monotonic()
        of = f" of {self._pairs:,}" if self._pairs else ""
        status = f"{self._done:,}{of} pairs, {self._done / max(now - self._begin, 1e-9):,.0f} pairs/s"
        self._bar.update(self._task, completed=self._done, status=status)
        if not self._console.is_terminal and now - self._said >= PAUSE:
            self._said = now
            self.message(f"{self._name}: {status}")
