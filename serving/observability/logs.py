"""Log lines for people or machines. Every event is one line, even if its values contain line breaks.

No line ever holds a text, a translation, or the message of a foreign error, because such messages may quote their
input.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
import traceback
from datetime import UTC, datetime
from typing import Any, TextIO

from lingon.line_limit import LineLimit
from lingon.text import printable

LOGGED_CODES = {
    "UNKNOWN",
    "INTERNAL",
    "UNAVAILABLE",
    "DEADLINE_EXCEEDED",
    "RESOURCE_EXHAUSTED",
    "UNAUTHENTICATED",
    "PERMISSION_DENIED",
}
"""Codes of calls that failed because of the server or of a limit. Other codes are mistakes of callers."""

_BARE = re.compile(r'[^\s"=\\]+')

_logger = logging.getLogger(__name__)


def configure(form: str, level: str) -> None:
    """Log to standard error; form: console or json; level: as in `logging`."""
    logging.basicConfig(level=level.upper(), handlers=[log_handler(form, sys.stderr)], force=True)


def log_handler(form: str, stream: TextIO) -> logging.Handler:
    """Return a handler that writes lines for operators to a stream; form: console or json."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if form == "json" else ConsoleFormatter())
    handler.addFilter(_is_for_operators)
    return handler


def _is_for_operators(record: logging.LogRecord) -> bool:
    """Return False for two kinds of lines of gRPC.

    One kind quotes metadata that gRPC cannot decode, and metadata holds API keys. The other kind is a traceback about a
    reply or a status that cannot be sent, because its caller disconnected. Such calls are counted as CANCELLED.
    """
    left_out = ("Invalid encoding", "ExecuteBatchError raised in core")
    return not (record.name.startswith("grpc.") and any(each in str(record.msg) for each in left_out))


def event(logger: logging.Logger, level: int, message: str, **fields: Any) -> None:
    """Log a fixed message with named values."""
    logger.log(level, message, extra={"fields": fields})


def fault(logger: logging.Logger, message: str, error: BaseException, **fields: Any) -> None:
    """Log an unexpected error with its type and traceback, but without its message, which may quote a text."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames]
    event(logger, logging.ERROR, message, **fields, error=type(error).__name__, traceback=lines)


def unexpected(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Handle an exception of an event loop. The default handler would log the message of the error."""
    message, error = "an error reached the event loop", context.get("exception")
    if error is None:
        event(_logger, logging.ERROR, message)
    else:
        fault(_logger, message, error)


class CallLog:
    """A log of calls: at debug every call, at info those with one of LOGGED_CODES, up to a limit per second.

    In a burst of failures, the next line has the number of skipped lines. The metrics count all calls.
    """

    def __init__(self, logger: logging.Logger, limit: LineLimit | None = None) -> None:
        """limit: bound of the lines with the same code."""
        self._logger, self._limit = logger, limit or LineLimit()

    def record(self, code: str, **fields: Any) -> None:
        """Log a call that ended with a code."""
        if self._logger.isEnabledFor(logging.DEBUG):
            event(self._logger, logging.INFO if code in LOGGED_CODES else logging.DEBUG, "call", code=code, **fields)
        elif code in LOGGED_CODES:
            left_out = self._limit.left_out(code)
            if left_out is not None:
                more = {"left_out": left_out} if left_out else {}
                event(self._logger, logging.INFO, "call", code=code, **fields, **more)


class ConsoleFormatter(logging.Formatter):
    """The format of one line: time, level, message, values."""

    def format(self, record: logging.LogRecord) -> str:
        clock = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        values = "".join(f" {name}={_shown(value)}" for name, value in _fields(record).items())
        return f"{clock} {record.levelname.lower()} {printable(record.getMessage())}{values}"


class JsonFormatter(logging.Formatter):
    """The format of one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        # ASCII only, so that other line separators (U+2028) and lone surrogates are escaped.
        return json.dumps({**line, **_fields(record)}, default=str).replace("\x7f", "\\u007f")


def _shown(value: Any) -> str:
    """Return a value on one line, in quotation marks if it contains spaces, quotation marks or =."""
    if isinstance(value, list | tuple):  # str() quotes and escapes their strings
        return printable(str(value))
    text = str(value)
    return printable(text if _BARE.fullmatch(text) else json.dumps(text, ensure_ascii=False))


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields = dict(getattr(record, "fields", {}))
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        fields["error"] = type(error).__name__
        frames = traceback.extract_tb(error.__traceback__)
        fields["traceback"] = [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames]
    return fields
