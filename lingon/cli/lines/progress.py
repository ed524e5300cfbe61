"""The progress bar of a verb: lines done, rate and time left, on standard error."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

Advance = Callable[[int, int], None]
"""Called with the lines and the bytes of input that were done since the last call."""

DELAY = 1.0  # seconds before the bar appears, so that a short run prints nothing


def wants_progress(typed: bool, output: Path | None) -> bool:
    """Whether to show a bar: standard error is a terminal, results go to a file, and the lines are not typed.

    On a terminal the printed results show the progress themselves, and a pipe often ends in a pager on the same
    terminal: in both cases a bar would disturb the lines.
    """
    return not typed and sys.stderr is not None and sys.stderr.isatty() and _is_file(output)


def _is_file(output: Path | None) -> bool:
    if output is not None:
        return output.is_file() or not output.exists()
    return sys.stdout is not None and stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)


@contextmanager
def progress_bar(size: int | None, shown: bool, unit: str = "lines") -> Iterator[Advance]:
    """A bar for an input of this size in bytes (None: unknown), if it is to be shown; unit: what is counted."""
    if not shown:
        yield lambda lines, read: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    # Standard output holds results only; messages on standard error are printed above the bar.
    columns = (BarColumn(), TextColumn("{task.description}"))
    bar = Progress(*columns, console=Console(stderr=True), redirect_stdout=False)
    begin = time.monotonic()
    task = bar.add_task("", total=size)
    lines_done = bytes_done = 0

    def advance(lines: int, read: int) -> None:
        nonlocal lines_done, bytes_done
        lines_done, bytes_done = lines_done + lines, bytes_done + read
        seconds = time.monotonic() - begin
        bar.update(task, completed=bytes_done, description=summary(lines_done, seconds, bytes_done, size, unit))
        if seconds >= DELAY:
            bar.start()

    try:
        yield advance
    finally:
        bar.stop()


def summary(lines: int, seconds: float, read: int, size: int | None, unit: str = "lines") -> str:
    """The text of the bar: lines done, lines a second, and the time left if the size of the input is known."""
    parts = [f"{lines:,} {unit}", f"{lines / max(seconds, 1e-9):,.1f} {unit}/s"]
    if size is not None and read:
        left = seconds * max(size - read, 0) / read
        parts.append(f"{timedelta(seconds=round(left))} left")
    return ", ".join(parts)
