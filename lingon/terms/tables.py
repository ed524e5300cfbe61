"""Terms in tables: TSV and CSV with and without a row of names, in the forms that translation services read.

Without a row of names a row is a source and a target, and DeepL's form adds the languages of both. A row of names has
the words source and target, or languages as Google's form has them. Lingon's own form has the columns of COLUMNS; one
of a term with several variants, or several forbidden translations, is there several times.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice

from lingon.errors import CorpusError
from lingon.language_tags import has_two_letters, is_same_language, is_same_tag
from lingon.terms.term import Term, TermError, shown

SOURCES = ("source", "source term", "source text", "original")
TARGETS = ("target", "target term", "target text", "translation")
VARIANT, CASE, FORBID, STEMS = COLUMNS = ("variant", "case", "forbid", "stems")
"""The names of the further columns of Lingon's own form."""

EXACT, YES = "exact", "yes"
"""What the columns of case and of stems have for a term whose case counts, and for one that is found by stems."""

OTHERS = ("id", "term_id", "pos", "description", "comment", "note", "notes")
"""Names of columns that files have beside languages, and that say nothing about a translation."""

_SHOWN = 10  # columns that an error names
_DELIMITERS = ",;\t"
ROWS_TRIED = 100  # by which the delimiter of CSV is told
_STATED = re.compile(r"sep=(.)\r?\n")  # the first line that Excel writes and reads


@dataclass(frozen=True, slots=True)
class TermColumns:
    """The numbers of the columns of a table, from 0.

    languages: of the columns that say the languages of source and target; empty if there are none
    count: of all columns
    """

    source: int
    target: int
    count: int
    variants: tuple[int, ...] = ()
    case: int | None = None
    forbid: tuple[int, ...] = ()
    stems: int | None = None
    languages: tuple[int, ...] = ()


def read_table(name: str, text: str, source: str, target: str, *, tabs: bool) -> Iterator[tuple[int, Term]]:
    """Yield the terms of a table with their numbers, unchecked. Blank rows do not count, nor does a row of names.

    name: of the file, for the errors; source, target: BCP-47, empty if they are not known
    tabs: whether cells have tabs between them and no quotation marks; else it is CSV
    Raises TermError, and CorpusError for a table without the columns.
    """
    rows = _lines(text) if tabs else _quoted_rows(name, text)
    first = next(rows, None)
    if first is None:
        return
    named = _named_columns(name, first, source, target)
    pairs = set[tuple[str, ...]]()
    for number, row in enumerate(rows if named else chain([first], rows), start=1):
        columns = named or _columns_of(number, row)
        pairs.add(tuple(row[at].strip().lower() for at in columns.languages))
        if len(pairs) > 1 and not (source and target):
            raise TermError(number, f"{shown(row[0])} is of other languages than those before; say which to take")
        if (term := _term(number, row, columns, source, target)) is not None:
            yield number, term


def _lines(text: str) -> Iterator[list[str]]:
    for line in io.StringIO(text, newline="\n"):
        row = line.rstrip("\r\n").split("\t")
        if any(map(str.strip, row)):
            yield row


def _quoted_rows(name: str, text: str) -> Iterator[list[str]]:
    """Yield the rows of CSV, which are not blank."""
    stated = _STATED.match(text)
    delimiter = stated[1] if stated else _delimiter(text)
    text = text[stated.end() :] if stated else text
    number = 0
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))  # of this process; a long term is named as such
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        for row in reader:
            if any(map(str.strip, row)):
                number += 1
                yield row
    except csv.Error as error:
        raise CorpusError(f"{name}: row {number + 1:,} is no CSV: {error}") from None


def _delimiter(text: str) -> str:
    """Return the first delimiter by which the first rows have two columns or more, and all as many."""
    for delimiter in _DELIMITERS:
        with suppress(csv.Error):
            rows = islice(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), ROWS_TRIED)
            widths = {len(row) for row in rows if any(map(str.strip, row))}
            if len(widths) == 1 and widths != {1}:
                return delimiter
    return max(_DELIMITERS, key=text.partition("\n")[0].count)


def _named_columns(name: str, row: Sequence[str], source: str, target: str) -> TermColumns | None:
    """Return the columns by their names, or None if a row is no row of names."""
    if not _is_row_of_names(row, source, target):
        return None
    names = [each.strip().lower() for each in row]
    first = next((at for at, each in enumerate(names) if each in SOURCES), None)
    second = next((at for at, each in enumerate(names) if each in TARGETS), None)
    if first is None or second is None:
        tags = [at for at, each in enumerate(names) if _is_language(each, source, target)]
        first, second = (_column_of(name, each, names) if each else None for each in (source, target))
        # A language that is not known is that of the first column beside the other one.
        first = next(at for at in tags if at != second) if first is None else first
        second = next(at for at in tags if at != first) if second is None else second
    if first == second:
        raise CorpusError(f"{name}: source and target are both in the column {row[first].strip()}")
    return TermColumns(
        first,
        second,
        len(names),
        tuple(at for at, each in enumerate(names) if each == VARIANT),
        names.index(CASE) if CASE in names else None,
        tuple(at for at, each in enumerate(names) if each == FORBID),
        names.index(STEMS) if STEMS in names else None,
    )


def _is_row_of_names(row: Sequence[str], source: str, target: str) -> bool:
    names = [each.strip().lower() for each in row]
    if any(each in SOURCES for each in names) and any(each in TARGETS for each in names):
        return True
    others = [each for each in names if not _is_language(each, source, target)]
    return len(names) - len(others) >= 2 and all(each in OTHERS for each in others)


def _is_language(text: str, source: str, target: str) -> bool:
    """Return whether a name of a column is a language: one of the two, or a code of two letters."""
    asked = any(language and is_same_language(text, language) for language in (source, target))
    return asked or has_two_letters(text)


def _column_of(name: str, language: str, names: Sequence[str]) -> int:
    """Return the column of a language. Raises CorpusError if there is none."""
    for is_it in (is_same_tag, is_same_language):
        for at, each in enumerate(names):
            if is_it(each, language):
                return at
    listed = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    raise CorpusError(f"{name}: has no column {language}; its columns are {listed}")


def _columns_of(number: int, row: Sequence[str]) -> TermColumns:
    """Return the columns of a row of a table without names."""
    count = len(row)
    while count > 2 and not row[count - 1].strip():  # as Excel writes the end of a row that is shorter than others
        count -= 1
    if count == 4 and all(has_two_letters(each.strip()) for each in row[2:4]):
        return TermColumns(0, 1, len(row), languages=(2, 3))
    if count != 2:
        columns = "column" if count == 1 else "columns"
        raise TermError(number, f"{shown(row[0])} has {count} {columns}; it must have 2, a source and a target")
    return TermColumns(0, 1, len(row))


def _term(number: int, row: list[str], columns: TermColumns, source: str, target: str) -> Term | None:
    """Return the term of a row, or None for one of other languages."""
    if len(row) > columns.count:
        raise TermError(number, f"{shown(row[0])} has {len(row)} columns; there are names for {columns.count}")
    cells = [*row, *[""] * (columns.count - len(row))]
    pairs = zip(columns.languages, (source, target), strict=False)
    if not all(not language or is_same_language(cells[at].strip(), language) for at, language in pairs):
        return None
    forbid = tuple(filter(str.strip, (cells[at] for at in columns.forbid)))
    if not cells[columns.target].strip() and not columns.forbid:
        raise TermError(number, f"{shown(cells[columns.source])} has no target")
    return Term(
        source=cells[columns.source],
        target=cells[columns.target],
        variants=tuple(filter(str.strip, (cells[at] for at in columns.variants))),
        exact=_flag(number, CASE, columns.case, cells, EXACT, ("", "smart")),
        forbid=forbid,
        stems=_flag(number, STEMS, columns.stems, cells, YES, ("", "no")),
    )


def _flag(number: int, name: str, column: int | None, cells: Sequence[str], on: str, off: Sequence[str]) -> bool:
    value = "" if column is None else cells[column].strip().lower()
    if value != on and value not in off:
        raise TermError(
            number, f"the column {name} must be {' or '.join(filter(None, (*off, on)))}, got {shown(value)}"
        )
    return value == on
