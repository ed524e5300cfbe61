"""Segments of files, read and written one after another: TMX 1.4b, XLIFF 1.2 and 2, CSV and TSV.

A table has the columns source and target, and if its first row names them, also before, after, origin and changed
(milliseconds since 1970). Without names in the first row, the first two columns are source and target.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any
from xml.sax.saxutils import escape, quoteattr

from lingon.errors import CorpusError
from lingon.files import (
    MAX_LINE_BYTES,
    READING_ERRORS,
    decoded_line,
    replacing_file,
    unpacked,
    unreadable,
    without_packing,
)
from lingon.language_tags import is_same_language, is_same_tag
from lingon.memories.segment import MOST_ORIGIN, Segment, SegmentError, check_segment
from lingon.memories.units import ANY, Unit, UnitError, Variant, read_units

XML_SUFFIXES = (".tmx", ".xliff", ".xlf", ".sdlxliff")
TABLE_SUFFIXES = (".csv", ".tsv")
SUFFIXES = (*XML_SUFFIXES, *TABLE_SUFFIXES)
"""The endings of the names of files that are read."""
WRITTEN = (".tmx", ".xliff", ".xlf", *TABLE_SUFFIXES)
"""The endings of the names of files that are written."""

_COLUMNS = ("source", "target", "before", "after", "origin", "changed")
_SHOWN = 10  # languages that an error names


def read_segments(file: Path | bytes, source: str = "", target: str = "", *, name: str = "") -> Iterator[Segment]:
    """Yield the segments of a file, plain or packed. Raises CorpusError, which names the file and the unit or line.

    file: its path or its content; name: of a content, which says by its ending what it is
    source, target: languages, BCP-47. Empty: the source language that the file says, else that of the first text of a
        unit, and the first other one. A table has no languages

    Units that lack one of the languages, or a text in it, are left out. It is an error if all do.
    """
    name = name or (file.name if isinstance(file, Path) else "")
    suffix = suffix_of(name)
    shown = str(file) if isinstance(file, Path) else name
    with _opened(file, name, shown) as content:
        found = _of_units(content, source, target) if suffix in XML_SUFFIXES else _of_table(content, shown, suffix)
        number = 0
        try:
            for number, segment in enumerate(found, start=1):
                check_segment(segment, number)
                yield segment
        except (UnitError, SegmentError) as error:
            raise CorpusError(f"{shown}: {error}") from None


def suffix_of(name: str, known: Sequence[str] = SUFFIXES) -> str:
    """Return the ending of the name of a file, without that of its packing. Raises CorpusError if it is not known."""
    suffix = Path(without_packing(name.lower())).suffix
    if suffix not in known:
        raise CorpusError(f"{name}: a translation memory must end in {', '.join(known)}, got {suffix or 'no ending'}")
    return suffix


@contextmanager
def _opened(file: Path | bytes, name: str, shown: str) -> Iterator[IO[bytes]]:
    try:
        with file.open("rb") if isinstance(file, Path) else io.BytesIO(file) as opened:
            yield unpacked(name.lower(), opened)
    except READING_ERRORS as error:
        raise unreadable(Path(shown), 0, error) from None


def _of_units(file: IO[bytes], source: str, target: str) -> Iterator[Segment]:
    languages = dict[str, None]()
    units = found = 0
    for unit in read_units(file):
        units += 1
        pair = _pair(unit, source, target)
        if pair is None:
            languages |= {each.language: None for each in unit.variants if len(languages) <= _SHOWN}
            continue
        found += 1
        first, second = pair
        origin = (second.origin or first.origin)[:MOST_ORIGIN]
        yield Segment(first.text, second.text, unit.before, unit.after, origin, second.changed or first.changed)
    if units and not found:
        wanted = " and ".join(filter(None, (source, target))) or "two languages"
        has = ", ".join(repr(each[:40]) for each in list(languages)[:_SHOWN])
        raise UnitError(f"no unit has texts in {wanted}; there are {has}")


def _pair(unit: Unit, source: str, target: str) -> tuple[Variant, Variant] | None:
    """Return the two texts of a unit, or None if it lacks one."""
    texts = [each for each in unit.variants if each.text]
    said = unit.source_language if unit.source_language.lower() != ANY else ""
    first = _in_language(texts, source or said)
    if first is None:
        return None
    others = [each for each in texts if each is not first]
    second = _in_language(others, target)
    return None if second is None or (not target and is_same_tag(first.language, second.language)) else (first, second)


def _in_language(texts: Sequence[Variant], language: str) -> Variant | None:
    """Return the text of this tag, else the first one of the language, else None. Empty: the first one.

    A text whose language the file does not say is of any.
    """
    if not language:
        return next(iter(texts), None)
    same = (each for each in texts if is_same_tag(each.language, language))
    similar = (each for each in texts if not each.language or is_same_language(each.language, language))
    return next(chain(same, similar), None)


def _of_table(file: IO[bytes], shown: str, suffix: str) -> Iterator[Segment]:
    lines = (
        decoded_line(raw, f"{shown}:{number}", b"")
        for number, raw in enumerate(iter(partial(file.readline, MAX_LINE_BYTES + 3), b""), start=1)
    )
    first = next(lines, "").removeprefix("\ufeff")
    rows = _rows(chain([first], lines), _delimiter(first, suffix), suffix)
    columns = {"source": 0, "target": 1}
    for number, (line, row) in enumerate(rows):
        names = [cell.strip().lower() for cell in row]
        if number == 0 and {"source", "target"} <= set(names):
            columns = {name: names.index(name) for name in _COLUMNS if name in names}
            continue
        if not any(names):
            continue
        if len(row) <= max(columns["source"], columns["target"]):
            raise CorpusError(f"{shown}:{line}: the row has {len(row)} columns; source and target are at least 2")
        yield _segment(row, columns, f"{shown}:{line}")


def _delimiter(first: str, suffix: str) -> str:
    return "\t" if suffix == ".tsv" else max(",;\t", key=first.count)


def _rows(lines: Iterator[str], delimiter: str, suffix: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a table with the numbers of their last lines. A cell of a TSV is as it is."""
    if suffix == ".tsv":
        for number, line in enumerate(lines, start=1):
            yield number, line.rstrip("\r\n").split(delimiter)
        return
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise UnitError(f"line {reader.line_num}: {error}") from None


def _segment(row: Sequence[str], columns: dict[str, int], where: str) -> Segment:
    cells = {name: row[place] for name, place in columns.items() if place < len(row)}
    changed = cells.pop("changed", "").strip()
    if changed and not (changed.isascii() and changed.isdecimal() and len(changed) < 20):
        raise CorpusError(f"{where}: changed must be milliseconds since 1970, got {changed[:40]!r}")
    return Segment(**cells, changed=int(changed or 0))


def write_segments(path: Path, segments: Iterable[Segment], source: str, target: str) -> int:
    """Write segments to a file, which is replaced when all are written; returns their number.

    Raises CorpusError for an ending that is not known, and SegmentError for what a TSV cannot hold: tabs and line ends.
    source, target: languages, BCP-47, for TMX and XLIFF. XLIFF has no place for neighbours and times
    """
    suffix = suffix_of(path.name, WRITTEN)
    writers: dict[str, Callable[[IO[str], Iterator[Segment], str, str], None]]
    writers = {".tmx": _write_tmx, ".csv": _write_csv, ".tsv": _write_tsv}
    count = 0

    def counted() -> Iterator[Segment]:
        nonlocal count
        for count, segment in enumerate(segments, start=1):
            check_segment(segment, count)
            yield segment

    with replacing_file(path) as file, io.TextIOWrapper(file, "utf-8", newline="") as text:
        writers.get(suffix, _write_xliff)(text, counted(), source, target)
    return count


def _write_tmx(file: IO[str], segments: Iterator[Segment], source: str, target: str) -> None:
    tool = 'creationtool="Lingon" creationtoolversion="1" segtype="sentence" o-tmf="Lingon" adminlang="en"'
    file.write('<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4">\n')
    file.write(f'<header {tool} srclang={quoteattr(source)} datatype="plaintext"/>\n<body>\n')
    for each in segments:
        said = f" changeid={quoteattr(each.origin)}" if each.origin else ""
        said += f' changedate="{_time(each.changed)}"' if each.changed else ""
        context = (("x-context-pre", each.before), ("x-context-post", each.after))
        props = "".join(f'<prop type="{kind}">{_escaped(text)}</prop>' for kind, text in context if text)
        texts = "".join(
            f"<tuv xml:lang={quoteattr(language)}><seg>{_escaped(text)}</seg></tuv>"
            for language, text in ((source, each.source), (target, each.target))
        )
        file.write(f"<tu{said}>{props}{texts}</tu>\n")
    file.write("</body>\n</tmx>\n")


def _time(changed: int) -> str:
    """Return milliseconds since 1970 as a time of TMX, which has whole seconds and four figures for the year."""
    return datetime.fromtimestamp(min(changed // 1000, _LAST_SECOND), UTC).strftime("%Y%m%dT%H%M%SZ")


_LAST_SECOND = 253_402_300_799  # of the year 9999


def _write_xliff(file: IO[str], segments: Iterator[Segment], source: str, target: str) -> None:
    file.write('<?xml version="1.0" encoding="UTF-8"?>\n')
    file.write('<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">\n')
    languages = f"source-language={quoteattr(source)} target-language={quoteattr(target)}"
    file.write(f'<file original="memory" datatype="plaintext" {languages}>\n<body>\n')
    for number, each in enumerate(segments, start=1):
        texts = f"<source>{_escaped(each.source)}</source><target>{_escaped(each.target)}</target>"
        file.write(f'<trans-unit id="{number}">{texts}</trans-unit>\n')
    file.write("</body>\n</file>\n</xliff>\n")


def _escaped(text: str) -> str:
    return escape(text, {"\r": "&#13;"})


def _write_csv(file: IO[str], segments: Iterator[Segment], source: str, target: str) -> None:
    writer = csv.writer(file)
    writer.writerow(_COLUMNS)
    writer.writerows(map(_cells, segments))


def _write_tsv(file: IO[str], segments: Iterator[Segment], source: str, target: str) -> None:
    file.write("\t".join(_COLUMNS) + "\n")
    for number, each in enumerate(segments, start=1):
        cells = [str(cell) for cell in _cells(each)]
        for name, cell in zip(_COLUMNS, cells, strict=True):
            if any(sign in cell for sign in "\t\r\n"):
                raise SegmentError(number, f"the {name} has a tab or a line end, which a .tsv cannot hold")
        file.write("\t".join(cells) + "\n")


def _cells(segment: Segment) -> list[Any]:
    return [getattr(segment, name) or "" for name in _COLUMNS]
