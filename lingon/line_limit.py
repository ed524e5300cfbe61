"""How many lines a second a log has of one kind, so that callers cannot fill a disk with it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

LINES_PER_SECOND = 10  # of one kind


class LineLimit:
    """A counter of the lines of each kind in each second. Kinds come from a small set."""

    def __init__(self, most: int = LINES_PER_SECOND, clock: Callable[[], float] = time.monotonic) -> None:
        """most: lines of a kind in a second; clock: returns seconds."""
        self._most, self._clock = most, clock
        self._second: dict[str, int] = {}  # time of the last line, by kind
        self._lines: dict[str, int] = {}  # lines in that second, by kind

    def left_out(self, kind: str) -> int | None:
        """Count a line and return how many lines were left out before it, or None if it is to be left out too."""
        second, lines, left_out = int(self._clock()), self._lines.get(kind, 0), 0
        if self._second.get(kind) != second:
            lines, left_out = 0, max(lines - self._most, 0)
        self._second[kind], self._lines[kind] = second, lines + 1
        return left_out if lines < self._most else None


class LimitedLines(logging.Filter):
    """A filter of loggers whose lines callers can cause. The kind of a line is its message without its values."""

    def __init__(self, limit: LineLimit | None = None) -> None:
        super().__init__()
        self._limit = limit or LineLimit()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the line is logged. It then says how many were left out before it."""
        left_out = self._limit.left_out(f"{record.name} {record.msg}")
        if left_out:
            record.fields = {**getattr(record, "fields", {}), "left_out": left_out}
        return left_out is not None
