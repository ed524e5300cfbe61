"""Log lines for people or machines.

No line ever holds a text, a translation, or the message of an error that is not ours: such messages may quote what
they choked on.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any


def configure(form: str, level: str) -> None:
    """Log to standard error: form is console or json, level as in `logging`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else ConsoleFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def event(logger: logging.Logger, level: int, message: str, **fields: Any) -> None:
    """Log a fixed message with values beside it."""
    logger.log(level, message, extra={"fields": fields})


def fault(logger: logging.Logger, message: str, error: BaseException, **fields: Any) -> None:
    """Log an error that nobody expected: its kind and where it arose, but not its message."""
    frames = traceback.extract_tb(error.__traceback__)
    where = [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames]
    event(logger, logging.ERROR, message, **fields, error=type(error).__name__, traceback=where)


class ConsoleFormatter(logging.Formatter):
    """One line: time, level, message, values."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        clock = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        values = "".join(f" {name}={value}" for name, value in _fields(record).items())
        return f"{clock} {record.levelname.lower()} {record.getMessage()}{values}"


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
        return json.dumps({**line, **_fields(record)}, ensure_ascii=False, default=str)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields = dict(getattr(record, "fields", {}))
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        fields["error"] = type(error).__name__
        frames = traceback.extract_tb(error.__traceback__)
        fields["traceback"] = [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames]
    return fields
