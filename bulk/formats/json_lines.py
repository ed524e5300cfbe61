"""JSON lines: a line is an object, and its keys are the columns. What a line has stays as it is, byte for byte.

Blank lines are no rows, and a byte order mark at the beginning of a file is no part of its first line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import IO, Any

from lingon.bulk.formats.format import NOT_UTF8, TOO_LONG, Added, Piece, Reader, Unreadable, Value, check_columns
from lingon.bulk.formats.line_reader import Line, LineReader, cut_lines, lines, naming
from lingon.bulk.formats.packing import unpacked
from lingon.errors import SettingsError

NO_OBJECT = Unreadable("the line is not a JSON object")
RAW = "line"
"""Key of a line that is no object, or that has an added key already, in the object that is written in its place."""


class JsonRows:
    """Lines with an object each."""

    def __init__(self, found: list[Line]) -> None:
        self._lines = found

    def __len__(self) -> int:
        return len(self._lines)

    @cached_property
    def _objects(self) -> list[dict[str, Any] | Unreadable]:
        return [_object(line) for line in self._lines]

    def values(self, column: str) -> list[Value]:
        return [each if isinstance(each, Unreadable) else _text(each, column) for each in self._objects]

    def written(self, added: Added, marks: Mapping[str, str]) -> bytes:
        values_of_rows = zip(*(column.values for column in added.values()), strict=True)
        rows = zip(self._lines, self._objects, values_of_rows, strict=True)
        return b"".join(_written(line, each, dict(zip(added, values, strict=True))) for line, each, values in rows)


def has_content(line: bytes) -> bool:
    """Whether a line is not blank."""
    return bool(line.strip())


def _object(line: Line) -> dict[str, Any] | Unreadable:
    if line is None:
        return TOO_LONG
    try:
        found = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError:
        return NOT_UTF8
    except (ValueError, RecursionError):
        return NO_OBJECT
    return found if isinstance(found, dict) else NO_OBJECT


def _text(row: dict[str, Any], column: str) -> Value:
    if column not in row:
        return Unreadable(f"the line has no key {column!r}")
    value = row[column]
    if value is not None and not isinstance(value, str):
        return Unreadable(f"the value of {column!r} is of the type {type(value).__name__}, not a string")
    try:
        (value or "").encode()
    except UnicodeEncodeError:  # JSON escapes may be half of a pair, which no request can hold
        return Unreadable(f"the value of {column!r} has half of a surrogate pair, which is no character")
    return value


def _written(line: Line, row: dict[str, Any] | Unreadable, added: dict[str, Any]) -> bytes:
    """A line with keys added before its last brace; one that is no object becomes the string of a new one."""
    more = _json_of(added)
    if isinstance(row, Unreadable):
        return _json_of({RAW: None if line is None else line.decode(errors="replace"), **added}) + b"\n"
    assert line is not None
    if not row.keys().isdisjoint(added):  # no key comes twice, and what an added one replaces is kept
        return _json_of({**row, RAW: line.decode().strip(), **added}) + b"\n"
    kept = line.rstrip()[:-1].rstrip()
    return kept + (b", " if row else b"") + more[1:] + b"\n"


def _json_of(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", errors="replace")


class JsonLines:
    """Lines of JSON objects."""

    def check(self, name: str, file: IO[bytes], needed: Sequence[str], added: Sequence[str]) -> None:
        """Check the keys of the first line: other lines may lack some, which are rows with an error."""
        with naming(name):
            found = next(lines(unpacked(name, file), has_content), None)
        if found is None:  # the file has no rows
            return
        first = _object(found[0])
        if isinstance(first, Unreadable):
            raise SettingsError(f"{name}: the first line must be a JSON object with the columns, but {first.reason}")
        check_columns(name, list(first), needed, added)

    def cut(self, name: str, file: IO[bytes], rows: int) -> Iterator[Piece]:
        return cut_lines(name, file, rows, has_content)

    def reader(self, name: str, file: IO[bytes]) -> Reader:
        return LineReader(name, file, JsonRows, has_content)
