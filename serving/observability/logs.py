"""Log lines for people or machines: one event, one line, whatever stands in its values.

No line ever holds a text, a translation, or the message of an error that is not ours: such messages may quote what
they choked on.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

TOLD = {
    "UNKNOWN",
    "INTERNAL",
    "UNAVAILABLE",
    "DEADLINE_EXCEEDED",
    "RESOURCE_EXHAUSTED",
    "UNAUTHENTICATED",
    "PERMISSION_DENIED",
}
"""Codes of calls that were not served as their callers had a right to hope; what else fails is a caller's mistake."""

MOST = 10  # lines a second of calls that ended with the same code
_BARE = re.compile(r'[^\s"=\\]+')

_logger = logging.getLogger(__name__)


def configure(form: str, level: str) -> None:
    """Log to standard error: form is console or json, level as in `logging`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else ConsoleFormatter())
    handler.addFilter(_is_ours)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether a line quotes no caller: gRPC shows metadata that it cannot decode, keys among it."""
    return not (record.name.startswith("grpc.") and "Invalid encoding" in str(record.msg))


def event(logger: logging.Logger, level: int, message: str, **fields: Any) -> None:
    """Log a fixed message with values beside it."""
    logger.log(level, message, extra={"fields": fields})


def fault(logger: logging.Logger, message: str, error: BaseException, **fields: Any) -> None:
    """Log an error that nobody expected: its kind and where it arose, but not its message."""
    frames = traceback.extract_tb(error.__traceback__)
    where = [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames]
    event(logger, logging.ERROR, message, **fields, error=type(error).__name__, traceback=where)


def unexpected(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What an event loop calls where nobody catches an error; its own way is to log the message of the error."""
    message, error = "an error reached the event loop", context.get("exception")
    if error is None:
        event(_logger, logging.ERROR, message)
    else:
        fault(_logger, message, error)


class CallLog:
    """A line for every call: at the level debug all, at info those that were not served, of each code so many a second.

    A storm of refusals is told by its first lines and by how many were left out; the counters have them all.
    """

    def __init__(self, logger: logging.Logger, most: int = MOST, clock: Callable[[], float] = time.monotonic) -> None:
        """most: lines a second; clock: tells seconds."""
        self._logger, self._most, self._clock = logger, most, clock
        self._second: dict[str, int] = {}  # of the last line, by code
        self._lines: dict[str, int] = {}  # in that second

    def tell(self, code: str, **fields: Any) -> None:
        """Log a call that ended with this code."""
        if self._logger.isEnabledFor(logging.DEBUG):
            event(self._logger, logging.INFO if code in TOLD else logging.DEBUG, "call", code=code, **fields)
        elif code in TOLD:
            left_out = self._count(code, int(self._clock()))
            if left_out is not None:
                more = {"left_out": left_out} if left_out else {}
                event(self._logger, logging.INFO, "call", code=code, **fields, **more)

    def _count(self, code: str, second: int) -> int | None:
        """Lines left out before this one; None where this one is left out as well."""
        lines, left_out = self._lines.get(code, 0), 0
        if self._second.get(code) != second:
            lines, left_out = 0, max(lines - self._most, 0)
        self._second[code], self._lines[code] = second, lines + 1
        return left_out if lines < self._most else None


class ConsoleFormatter(logging.Formatter):
    """One line: time, level, message, values."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        clock = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        values = "".join(f" {name}={_shown(value)}" for name, value in _fields(record).items())
        return f"{clock} {record.levelname.lower()} {_escaped(record.getMessage())}{values}"


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        # ASCII, since what stands for a new line elsewhere (U+2028) or is a lone half of a character is escaped then.
        return json.dumps({**line, **_fields(record)}, default=str).replace("\x7f", "\\u007f")


def _shown(value: Any) -> str:
    """A value on one line; in quotation marks where it could be taken for more than one."""
    if isinstance(value, list | tuple):  # whose strings are quoted and escaped already
        return _escaped(str(value))
    text = str(value)
    return _escaped(text if _BARE.fullmatch(text) else json.dumps(text, ensure_ascii=False))


def _escaped(text: str) -> str:
    """The same without a character that moves the cursor, ends the line or turns the direction of writing."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields = dict(getattr(record, "fields", {}))
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        fields["error"] = type(error).__name__
        frames = traceback.extract_tb(error.__traceback__)
        fields["traceback"] = [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames]
    return fields
