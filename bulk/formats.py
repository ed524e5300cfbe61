"""The formats of bulk files by their names, and those whose rows are lines: plain text, TSV and JSON lines.

Rows of TSV and of JSON lines keep their content byte for byte, and their blank lines are no rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import IO, Any

from lingon.bulk.format import (
    MAX_VALUE_BYTES,
    NOT_UTF8,
    TOO_LONG,
    Added,
    CellValue,
    FilePiece,
    Line,
    LineReader,
    PieceReader,
    TableFormat,
    Unreadable,
    check_columns,
    cut_lines,
    decoded,
    lines,
    naming,
    no_value,
    too_many_values,
)
from lingon.bulk.tables import Parquet, Table
from lingon.errors import CorpusError, SettingsError
from lingon.files import PACKINGS, unpacked, without_packing

COLUMN = "text"


class TextRows:
    """Lines of text."""

    def __init__(self, lines: list[Line]) -> None:
        self._lines = lines

    def __len__(self) -> int:
        return len(self._lines)

    def values(self, column: str) -> list[CellValue]:
        return [decoded(line) for line in self._lines]

    def written(self, added: Added, marks: Mapping[str, str]) -> bytes:
        """Return the first added column. A value that is missing is a blank line, and line breaks are spaces."""
        translations = next(iter(added.values())).values
        return "".join(f"{' '.join(str(each or '').split())}\n" for each in translations).encode()


class LineFormat:
    """Lines of UTF-8: a line is a row, and its only column is the text. The output has the translations alone."""

    def check(self, name: str, file: IO[bytes], needed: Sequence[str], added: Sequence[str]) -> None:
        check_columns(name, [COLUMN], needed, added)

    def cut(self, name: str, file: IO[bytes], rows: int) -> Iterator[FilePiece]:
        return cut_lines(name, file, rows)

    def reader(self, name: str, file: IO[bytes]) -> PieceReader:
        return LineReader(name, file, TextRows)


TAB = b"\t"
SPACES = str.maketrans("\t\r\n", "   ")
"""Characters that would end a value or a row are spaces in the columns that are added."""


class TsvRows:
    """Lines with values between tabs. names: the line with the names of the columns."""

    def __init__(self, names: bytes, found: Sequence[bytes]) -> None:
        self._names, self._lines = names, found

    def __len__(self) -> int:
        return len(self._lines)

    def values(self, column: str) -> list[CellValue]:
        position = names_of(self._names).index(column)
        return [_value(line, position, column) for line in self._lines]

    def written(self, added: Added, marks: Mapping[str, str]) -> bytes:
        columns = 1 + self._names.count(TAB)
        output = [TAB.join([self._names, *map(_field_of, added)])]
        for line, *values in zip(self._lines, *(column.values for column in added.values()), strict=True):
            missing = [b""] * (columns - 1 - line.count(TAB))
            output.append(TAB.join([line, *missing, *map(_field_of, values)]))
        return b"".join(chain.from_iterable((line, b"\n") for line in output))


def names_of(line: bytes) -> list[str]:
    """Return the names of the columns. Bytes that are not UTF-8 become no name that anything else has."""
    return line.decode("utf-8", errors="surrogateescape").split("\t") if line else []


def _value(line: bytes, position: int, column: str) -> CellValue:
    values = line.split(TAB, position + 1)
    return decoded(values[position]) if position < len(values) else no_value(column)


def _field_of(value: str | float | None) -> bytes:
    return b"" if value is None else str(value).translate(SPACES).encode(errors="replace")


def _too_long(name: str, row: int) -> CorpusError:
    return CorpusError(f"{name}: row {row:,} has more than {MAX_VALUE_BYTES:,} bytes")


class _Check:
    """A check that raises CorpusError for a row that cannot be read."""

    def __init__(self, name: str) -> None:
        self._name, self._columns = name, 0

    def __call__(self, number: int, line: Line) -> None:
        if line is None:
            raise _too_long(self._name, number)
        values = 1 + line.count(TAB)
        self._columns = self._columns or values
        if values > self._columns:
            raise too_many_values(self._name, number, values, self._columns)


class _TsvReader(LineReader):
    """A reader that reads the line of names first."""

    def __init__(self, name: str, file: IO[bytes]) -> None:
        super().__init__(name, file, self._rows_of_lines, bool)
        with naming(name):
            self._names = _first(name, self._lines)

    def _rows_of_lines(self, found: list[Line]) -> TsvRows:
        return TsvRows(self._names, [line or b"" for line in found])


def _first(name: str, found: Iterator[tuple[Line, int]]) -> bytes:
    """Return the line of names; an empty one of a file that has no line. Raise CorpusError."""
    line, _ = next(found, (b"", 0))
    if line is None:
        raise _too_long(name, 0)
    return line


class TabSeparated:
    """Lines below one of names: a tab ends a value, and a quotation mark is a character as any other.

    Most parallel corpora are written like this. By the rules of CSV one quotation mark too many would join rows without
    an error.
    """

    def check(self, name: str, file: IO[bytes], needed: Sequence[str], added: Sequence[str]) -> None:
        with naming(name):
            names = _first(name, lines(unpacked(name, file), bool))
        check_columns(name, names_of(names), needed, added)

    def cut(self, name: str, file: IO[bytes], rows: int) -> Iterator[FilePiece]:
        return cut_lines(name, file, rows, bool, names=True, check=_Check(name))

    def reader(self, name: str, file: IO[bytes]) -> PieceReader:
        return _TsvReader(name, file)


NO_OBJECT = Unreadable("the line is not a JSON object")
RAW = "line"
"""Key of a line that is no object, or that has an added key already, in the object that is written instead."""


class JsonRows:
    """Lines with an object each."""

    def __init__(self, found: list[Line]) -> None:
        self._lines = found

    def __len__(self) -> int:
        return len(self._lines)

    @cached_property
    def _objects(self) -> list[dict[str, Any] | Unreadable]:
        return [_object(line) for line in self._lines]

    def values(self, column: str) -> list[CellValue]:
        return [each if isinstance(each, Unreadable) else _text(each, column) for each in self._objects]

    def written(self, added: Added, marks: Mapping[str, str]) -> bytes:
        values_of_rows = zip(*(column.values for column in added.values()), strict=True)
        rows = zip(self._lines, self._objects, values_of_rows, strict=True)
        return b"".join(_written(line, each, dict(zip(added, values, strict=True))) for line, each, values in rows)


def has_content(line: bytes) -> bool:
    """Return whether a line is not blank."""
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


def _text(row: dict[str, Any], column: str) -> CellValue:
    if column not in row:
        return Unreadable(f"the line has no key {column!r}")
    value = row[column]
    if value is not None and not isinstance(value, str):
        return Unreadable(f"the value of {column!r} is of the type {type(value).__name__}, not a string")
    try:
        (value or "").encode()
    except UnicodeEncodeError:  # A JSON escape may be a lone surrogate, which no request can hold.
        return Unreadable(f"the value of {column!r} has half of a surrogate pair, which is no character")
    return value


def _written(line: Line, row: dict[str, Any] | Unreadable, added: dict[str, Any]) -> bytes:
    """Return a line with keys added before its last brace. One that is no object becomes the string of a new one."""
    more = _json_of(added)
    if isinstance(row, Unreadable):
        return _json_of({RAW: None if line is None else line.decode(errors="replace"), **added}) + b"\n"
    assert line is not None
    if not row.keys().isdisjoint(added):  # No key comes twice, and a replaced value is kept.
        return _json_of({**row, RAW: line.decode().strip(), **added}) + b"\n"
    kept = line.rstrip()[:-1].rstrip()
    return kept + (b", " if row else b"") + more[1:] + b"\n"


def _json_of(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", errors="replace")


class JsonLines:
    """Lines of JSON objects, whose keys are the columns.

    A byte order mark at the beginning of a file is no part of its first line.
    """

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

    def cut(self, name: str, file: IO[bytes], rows: int) -> Iterator[FilePiece]:
        return cut_lines(name, file, rows, has_content)

    def reader(self, name: str, file: IO[bytes]) -> PieceReader:
        return LineReader(name, file, JsonRows, has_content)


FORMATS: dict[str, TableFormat] = {
    ".parquet": Parquet(),
    ".jsonl": JsonLines(),
    ".csv": Table(","),
    ".tsv": TabSeparated(),
    ".txt": LineFormat(),
}
"""By the suffix of a file, without the suffix of its packing."""

QUOTED_TSV = Table("\t")
"""TSV by the rules of CSV."""


def suffix_of(name: str) -> str | None:
    """Return the suffix of a file that can be translated, as .jsonl or .jsonl.gz, or None if its format is not
    known.
    """
    stem = without_packing(name)
    packing = name.removeprefix(stem)
    suffix = next((each for each in FORMATS if stem.endswith(each)), None)
    if suffix is None or (packing and suffix == ".parquet"):  # Parquet packs its columns itself
        return None
    return suffix + packing


def format_of(name: str, *, quoted_tsv: bool = False) -> TableFormat:
    """Return the format of a file by its name. Raise SettingsError for one that is not known.

    quoted_tsv: whether quotation marks have their meaning of CSV in TSV
    """
    suffix = suffix_of(name)
    if suffix is None:
        known = ", ".join(FORMATS)
        *packings, last = PACKINGS
        raise SettingsError(
            f"{name}: the format is not known; a name ends in {known}, or in one of them and {', '.join(packings)} or "
            f"{last}"
        )
    kind = "." + suffix.split(".")[1]
    return QUOTED_TSV if quoted_tsv and kind == ".tsv" else FORMATS[kind]
