"""Parallel text from files of any common form, as a stream of blocks of rows.

The form is known by the name of the file: two files of lines, TSV, JSON lines, translation memories (TMX), Parquet. A
row is a line, a unit of a memory or a row of a table, and a blank line is one too. In memory are a block and some
megabytes that are read ahead.
"""

from __future__ import annotations

import json
import math
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast
from xml.parsers import expat

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lingon.errors import CorpusError, LingonError, SettingsError, first_of
from lingon.files import MAX_LINE_BYTES, READING_ERRORS, decoded_line, unpacked, unreadable
from lingon.language_tags import serves
from lingon.object_stores import is_url, open_file, open_parts
from lingon.training.config import Corpus


class RawBlock(NamedTuple):
    """Rows of a corpus that follow each other, as its files have them.

    first: number of the first row in the corpus, from 0
    sources, targets: (rows)
    links: (rows) lines of the alignment file, if the corpus names one
    scores: (rows) if the corpus names a column or a file of scores; NaN for a blank line of TSV and of JSON lines
    """

    first: int
    sources: list[str]
    targets: list[str]
    links: list[str] | None
    scores: list[float] | None


Mark = tuple[int, int]
"""A number of lines from the beginning of a file, and of their bytes."""
Marks = Mapping[Path, Mark]


def read_blocks(corpus: Corpus, rows: int, skip: int = 0, marks: Marks | None = None) -> Iterator[RawBlock]:
    """Yield the blocks of a corpus, of this many rows each. The last one has what is left. Raises CorpusError.

    skip: blocks to leave out at the beginning. Their rows are not checked
    marks: of lines that are left out, by file. What is before them is not even read
    """
    with ExitStack() as files:
        text = _FORMS[corpus.form](corpus, files)
        links = None if corpus.alignment is None else _Lines(corpus.alignment, files)
        first = skip * rows
        text.skip(first, marks or {})
        if links is not None:
            links.skip(first, marks or {})
        while True:
            sources, targets, scores = text.take(rows)
            found = None if links is None else links.take(rows)
            if links is not None:
                _check_ends(text, links)
            if sources:
                yield RawBlock(first, sources, targets, found, scores)
            if len(sources) < rows:
                return
            first += rows


def input_files(corpus: Corpus) -> list[Path]:
    """Return all files that `read_blocks` reads."""
    return [*corpus.files(), *(path for path in (corpus.scores, corpus.alignment) if path is not None)]


class _Part(Protocol):
    """What is read row by row. position: how many rows were taken or skipped."""

    @property
    def path(self) -> Path: ...

    @property
    def position(self) -> int: ...


Taken = tuple[list[str], list[str], list[float] | None]
"""Sources, targets and scores."""


class _Text(_Part, Protocol):
    """The text of a corpus."""

    def skip(self, count: int, marks: Marks) -> None:
        """Pass over the first rows. Nothing was taken before. marks: see `read_blocks`."""

    def take(self, count: int) -> Taken:
        """Return the next rows; fewer at the end."""


def _check_ends(*parts: _Part) -> None:
    """Raise CorpusError if one of them has ended before another one, all having been asked for the same rows."""
    shorter, longer = (choose(parts, key=lambda part: part.position) for choose in (min, max))
    if shorter.position < longer.position:
        raise CorpusError(f"{shorter.path}:{shorter.position + 1}: ends here, but {longer.path} goes on")


def _score(value: object, path: Path, line: int) -> float:
    """Return a score; line: its number, for the error."""
    try:
        found = float(cast(Any, value))
        if math.isfinite(found):
            return found
    except (TypeError, ValueError, OverflowError):
        pass
    raise CorpusError(f"{path}:{line}: the score must be a finite number, got {value!r:.40}")


# Files of lines.

READ_BYTES = 2**17
"""Bytes that are read at once. Decoding a million lines takes 0.22 s in pieces that the cache holds, 0.38 s in those of
1 MiB.
"""


def _opened(path: Path, files: ExitStack) -> BufferedReader:
    """Return the content of a file, unpacked. All that it may be has the method `read1`."""
    try:
        return cast(BufferedReader, files.enter_context(unpacked(path.name, files.enter_context(open_file(path)))))
    except READING_ERRORS as error:
        raise unreadable(path, 0, error) from None


class _Lines:
    """The lines of a file as `read_lines` yields them, but many at a time, which takes a third of its time.

    A byte order mark at the beginning of the file is no part of the first line.
    """

    def __init__(self, path: Path, files: ExitStack) -> None:
        self.path, self.position = path, 0
        self._decoded: list[str] = []  # lines to take
        self._number = 0  # lines that were read whole
        self._begun = b""  # of the line after these
        self._file = _opened(path, files)

    def skip(self, count: int, marks: Marks) -> None:
        """Pass over lines without decoding them; marks: see `read_blocks`."""
        goal = self.position + count
        line, offset = marks.get(self.path, (0, 0))
        if self.position + len(self._decoded) < line <= goal:
            self._file.seek(offset)
            self._decoded, self._begun = [], b""
            self._number = self.position = line
            count = goal - line
        passed = self._decoded[:count]
        del self._decoded[:count]
        self.position += len(passed)
        while self.position < goal and (raw := self._read()):
            lines = raw.count(b"\n") + (not raw.endswith(b"\n"))
            if self.position + lines <= goal:
                self._number += lines
                self.position += lines
            else:
                self._decoded = self._split(raw)[goal - self.position :]
                self.position = goal

    def take(self, count: int) -> list[str]:
        found = self._decoded
        while len(found) < count and (raw := self._read()):
            found += self._split(raw)
        self._decoded = found[count:]
        del found[count:]
        self.position += len(found)
        return found

    def _read(self) -> bytes:
        """Return the next lines, whole and with their line feeds; nothing at the end of the file."""
        begun, self._begun = self._begun, b""
        try:
            # With read1 a truncated archive is an error at the line where it ends, not at the last whole piece.
            while chunk := self._file.read1(READ_BYTES):
                end = chunk.rfind(b"\n") + 1
                if end:
                    begun, self._begun = begun + chunk[:end], chunk[end:]
                    break
                begun += chunk
                if len(begun) > MAX_LINE_BYTES + 2:
                    break
        except READING_ERRORS as error:
            raise unreadable(self.path, self._number, error) from None
        if len(begun) > MAX_LINE_BYTES:  # which only a line that is longer than a piece can cause
            decoded_line(begun[: begun.find(b"\n") + 1 or None], f"{self.path}:{self._number + 1}")
        return begun if self._number else begun.removeprefix(BOM_UTF8)

    def _split(self, raw: bytes) -> list[str]:
        try:
            lines = raw.decode("utf-8").split("\n")
        except UnicodeDecodeError:
            for number, line in enumerate(raw.split(b"\n"), start=self._number + 1):
                decoded_line(line, f"{self.path}:{number}")
            raise
        if not lines[-1]:  # after the last line feed
            lines.pop()
        self._number += len(lines)
        return [line.rstrip("\r") for line in lines] if b"\r" in raw else lines


class _LinePairs:
    """Two files whose lines belong together, and perhaps one with a score in each line."""

    def __init__(self, corpus: Corpus, files: ExitStack) -> None:
        assert corpus.source is not None
        assert corpus.target is not None
        self._sources, self._targets = _Lines(corpus.source, files), _Lines(corpus.target, files)
        self._scores = None if corpus.scores is None else _Lines(corpus.scores, files)
        self._parts = [part for part in (self._sources, self._targets, self._scores) if part is not None]
        self.path = corpus.source

    @property
    def position(self) -> int:
        return self._sources.position

    def skip(self, count: int, marks: Marks) -> None:
        for part in self._parts:
            part.skip(count, marks)
        _check_ends(*self._parts)

    def take(self, count: int) -> Taken:
        first = self.position + 1
        sources, targets = self._sources.take(count), self._targets.take(count)
        scores = None if self._scores is None else self._scores.take(count)
        _check_ends(*self._parts)
        if scores is None or self._scores is None:
            return sources, targets, None
        path = self._scores.path
        return sources, targets, [_score(each, path, line) for line, each in enumerate(scores, start=first)]


class _LineRows:
    """A file with a row in each line."""

    def __init__(self, corpus: Corpus, files: ExitStack) -> None:
        assert corpus.file is not None
        self.path, self._lines = corpus.file, _Lines(corpus.file, files)
        self._before = 0  # lines before the first row

    @property
    def position(self) -> int:
        return self._lines.position - self._before

    def skip(self, count: int, marks: Marks) -> None:
        self._lines.skip(count, marks)

    def _numbered(self, count: int) -> list[tuple[int, str]]:
        """Return the next lines with their numbers in the file, from 1."""
        first = self._lines.position + 1
        return list(enumerate(self._lines.take(count), start=first))


def names_columns(corpus: Corpus) -> bool:
    """Return whether the first line of a corpus has the names of its columns."""
    return corpus.form == ".tsv" and any(isinstance(each, str) for each in (*corpus.columns, corpus.score_column))


class _TabSeparated(_LineRows):
    """TSV. A tab ends a value, and a quotation mark is a character as any other, as most parallel corpora have it."""

    def __init__(self, corpus: Corpus, files: ExitStack) -> None:
        super().__init__(corpus, files)
        columns = [each for each in (*corpus.columns, corpus.score_column) if each is not None]
        names: list[str] = []
        if names_columns(corpus):
            self._before = 1
            names = [name for line in self._lines.take(1) for name in line.split("\t")]
        self._positions = [self._position(names, each) if isinstance(each, str) else each - 1 for each in columns]
        self._columns = max(self._positions) + 1  # that a line must have

    def _position(self, names: list[str], name: str) -> int:
        if name not in names:
            raise _no_column(self.path, name, names)
        return names.index(name)

    def take(self, count: int) -> Taken:
        numbered = self._numbered(count)
        rows = [self._values(line, number) for number, line in numbered]
        sources, targets, *scores = ([row[each] for row in rows] for each in self._positions)
        if not scores:
            return sources, targets, None
        return (
            sources,
            targets,
            [
                _score(each, self.path, number) if each or line.strip() else math.nan
                for each, (number, line) in zip(scores[0], numbered, strict=True)
            ],
        )

    def _values(self, line: str, number: int) -> list[str]:
        values = line.split("\t", self._columns)
        if len(values) >= self._columns:
            return values
        if not line.strip():
            return [""] * self._columns
        raise CorpusError(
            f"{self.path}:{number}: must have {self._columns} columns or more, separated by tabs, got {len(values)}"
        )


def _no_column(path: Path, name: str, names: list[str]) -> CorpusError:
    return CorpusError(f"{path}: has no column {name!r}; it has {first_of(names, 20) or 'none'}")


class _JsonLines(_LineRows):
    """A JSON object in each line. A key that no object has as a whole is a path, as in `translation.en`."""

    def __init__(self, corpus: Corpus, files: ExitStack) -> None:
        super().__init__(corpus, files)
        self._source, self._target = map(str, corpus.columns)
        self._score = None if corpus.score_column is None else str(corpus.score_column)

    def take(self, count: int) -> Taken:
        sources, targets, scores = list[str](), list[str](), list[float]()
        for number, line in self._numbered(count):
            row = self._object(line, number)
            sources.append("" if row is None else self._text(row, self._source, number))
            targets.append("" if row is None else self._text(row, self._target, number))
            if self._score is not None:
                score = math.nan if row is None else self._value(row, self._score, number)
                scores.append(score if row is None else _score(score, self.path, number))
            if "\\u" in line:
                self._check_characters(sources[-1] + targets[-1], number)
        return sources, targets, None if self._score is None else scores

    def _object(self, line: str, number: int) -> dict[str, Any] | None:
        """Return the object of a line, or None for a blank one."""
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            if not line.strip():
                return None
            found = None
        if not isinstance(found, dict):
            raise CorpusError(f"{self.path}:{number}: must be a JSON object, got {line:.40}")
        return found

    def _value(self, row: dict[str, Any], key: str, number: int) -> Any:
        if key in row:
            return row[key]
        found: Any = row
        for part in key.split("."):
            if not isinstance(found, dict) or part not in found:
                raise CorpusError(
                    f"{self.path}:{number}: has no key {key!r}; it has {first_of(list(row), 20) or 'none'}"
                )
            found = found[part]
        return found

    def _text(self, row: dict[str, Any], key: str, number: int) -> str:
        value = self._value(row, key, number)
        if value is None:
            return ""
        if isinstance(value, str):
            return value
        raise CorpusError(f"{self.path}:{number}: {key!r} must be a string or null, got {value!r:.40}")

    def _check_characters(self, text: str, number: int) -> None:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise CorpusError(
                f"{self.path}:{number}: has half of a surrogate pair, which is no character, among its escapes"
            ) from None


# Translation memories.

CODES = frozenset(("bpt", "ept", "it", "ph", "ut"))
"""Inline elements that hold codes of a document, such as its tags. Others hold text."""
LANGUAGE = "http://www.w3.org/XML/1998/namespace lang"
MOST_LANGUAGES = 1000  # that are remembered: a memory has some tens


class _Memory:
    """A translation memory. Each unit is a row, with its first text in each of the two languages.

    A language that a unit lacks is an empty text: then the filters count the pair, and a unit is the same row for every
    pair of languages.
    """

    def __init__(self, corpus: Corpus, files: ExitStack) -> None:
        from lingon.documents import xml_tree  # 0.3 s, which other forms do not need

        assert corpus.file is not None
        if corpus.source_language is None or corpus.target_language is None:
            raise SettingsError(f"{corpus.file}: a translation memory needs source_language and target_language")
        self.path, self.position = corpus.file, 0
        self._languages = corpus.source_language, corpus.target_language
        self._sides: dict[str, int | None] = {}  # of the languages of the file
        self._found = set[int | None]()  # of these
        self._parser = xml_tree.guarded_parser()
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._most_depth, self._most_tag_bytes = xml_tree.MOST_DEPTH, xml_tree.MOST_TAG_BYTES
        self._bytes, self._depth = 0, 0  # that were read, and of the open elements
        self._pairs: list[list[str]] = []  # to take
        self._pair = ["", ""]  # of the open unit
        self._side: int | None = None  # of the open variant
        self._kept: list[bool] = []  # whether text belongs to the segment, for each of its open elements
        self._texts: list[str] = []  # of the open segment
        self._size = 0  # of these, in characters
        self._file, self._ended = _opened(self.path, files), False

    def skip(self, count: int, marks: Marks) -> None:
        while count and (passed := len(self.take(min(count, BATCH))[0])):
            count -= passed

    def take(self, count: int) -> Taken:
        while len(self._pairs) < count and not self._ended:
            self._parse()
        found = self._pairs[:count]
        del self._pairs[:count]
        self.position += len(found)
        return [source for source, _ in found], [target for _, target in found], None

    def _parse(self) -> None:
        """Parse the next piece of the file."""
        try:
            piece = self._file.read1(READ_BYTES)
            self._bytes += len(piece)
            self._parser.Parse(piece, not piece)
            if self._bytes - self._parser.CurrentByteIndex > self._most_tag_bytes:
                raise self._error(f"the XML has a tag of more than {self._most_tag_bytes:,} bytes")
        except READING_ERRORS as error:
            raise unreadable(self.path, self._parser.CurrentLineNumber - 1, error) from None
        except expat.ExpatError as error:
            raise self._error(f"the XML is not well-formed: {expat.ErrorString(error.code)}") from None
        except CorpusError:
            raise
        except (LingonError, LookupError, ValueError) as error:  # of the guard, and for an unknown encoding
            raise self._error(str(error)) from None
        if not piece:
            self._ended = True
            self._check_languages()

    def _error(self, message: str) -> CorpusError:
        return CorpusError(f"{self.path}:{self._parser.CurrentLineNumber}: {message}")

    def _check_languages(self) -> None:
        """Raise CorpusError if there are units, but none is in one of the languages."""
        for side, language in enumerate(self._languages):
            if self.position + len(self._pairs) and side not in self._found:
                found = first_of([repr(each[:40]) for each in self._sides], 20)
                raise CorpusError(f"{self.path}: has no text in {language!r}; its languages are {found or 'none'}")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        local = name.rpartition(" ")[2] if " " in name else name
        if self._kept:
            self._kept.append(self._kept[-1] and local not in CODES)
        elif local == "seg":
            if self._side is not None and not self._pair[self._side]:
                self._kept.append(True)
                self._parser.CharacterDataHandler = self._add
        elif local == "tuv":
            language = attributes.get(LANGUAGE) or attributes.get("lang", "")  # the second one until TMX 1.3
            self._side = self._sides[language] if language in self._sides else self._side_of(language)
        elif local == "tu":
            self._pair, self._side = ["", ""], None
        elif self._depth == 1 and local != "tmx":
            raise self._error(f"must be a translation memory, whose root is tmx, got {local:.40}")
        if self._depth > self._most_depth:
            raise self._error(f"the XML has elements in more than {self._most_depth} others")

    def _end(self, name: str) -> None:
        self._depth -= 1
        if self._kept:
            self._kept.pop()
            if not self._kept and self._side is not None:
                self._pair[self._side] = self._segment()
        elif name[-3:] in ("tu", " tu"):
            self._pairs.append(self._pair)

    def _add(self, text: str) -> None:
        if self._kept[-1]:
            self._texts.append(text)
            self._size += len(text)
            if self._size > MAX_LINE_BYTES:  # before it fills the memory
                raise self._error(f"a segment has more than {MAX_LINE_BYTES:,} bytes")

    def _segment(self) -> str:
        """Return the text of the segment that ends."""
        self._parser.CharacterDataHandler = None
        text, self._texts, self._size = "".join(self._texts), [], 0
        if 4 * len(text) > MAX_LINE_BYTES and len(text.encode()) > MAX_LINE_BYTES:
            raise self._error(f"a segment has more than {MAX_LINE_BYTES:,} bytes")
        return text

    def _side_of(self, language: str) -> int | None:
        """Return 0 for a variety of the source language, 1 of the target language, the nearer one if of both."""
        served = [side for side, each in enumerate(self._languages) if serves(each, language)]
        side = max(served, key=lambda side: len(self._languages[side]), default=None)
        self._found.add(side)
        if len(self._sides) < MOST_LANGUAGES:
            self._sides[language] = side
        return side


# Parquet.

BATCH = 8192  # rows that are decoded at once


class _Parquet:
    """A table of Parquet. A column that it does not have as a whole is a path, as in `translation.en`."""

    def __init__(self, corpus: Corpus, files: ExitStack) -> None:
        assert corpus.file is not None
        self.path, self.position = corpus.file, 0
        self._columns = [str(each) for each in (*corpus.columns, corpus.score_column) if each is not None]
        self._lists: list[list[Any]] = [[] for _ in self._columns]  # to take
        self._decoded = 0  # rows that were decoded or skipped
        with self._naming():
            # Only with both options is a group of rows, which may be all of them, not read as a whole.
            file = files.enter_context(open_parts(self.path)) if is_url(self.path) else self.path
            self._file = files.enter_context(pq.ParquetFile(file, buffer_size=READ_BYTES, pre_buffer=False))
            self._schema = self._file.schema_arrow
        for column in self._columns[:2]:
            if not _is_text(kind := self._type_of(column)):
                raise CorpusError(f"{self.path}: the column {column!r} must be of the type string, got {kind}")
        for column in self._columns[2:]:
            self._type_of(column)
        self._batches = self._batches_from(0)

    def _type_of(self, column: str) -> pa.DataType:
        found: Any = self._schema
        for name in self._path(column):
            if not (found is self._schema or pa.types.is_struct(found)) or found.get_field_index(name) < 0:
                raise _no_column(self.path, column, self._schema.names)
            found = found.field(name).type
        return found

    def _path(self, column: str) -> list[str]:
        """Return the names that lead to a column, from the table to the field."""
        return [column] if column in self._schema.names else column.split(".")

    def _batches_from(self, group: int) -> Iterator[pa.RecordBatch]:
        groups = range(group, self._file.num_row_groups)
        return cast(Iterator[pa.RecordBatch], self._file.iter_batches(BATCH, list(groups), self._columns))

    def skip(self, count: int, marks: Marks) -> None:
        """Pass over rows; whole groups of them are not even read."""
        group = 0
        while group < self._file.num_row_groups and self.position + self._rows_of(group) <= count:
            self.position += self._rows_of(group)
            group += 1
        self._decoded, self._batches = self.position, self._batches_from(group)
        while self.position < count and (batch := self._next()) is not None:
            passed = min(batch.num_rows, count - self.position)
            self._decoded, self.position = self._decoded + passed, self.position + passed
            self._add(batch.slice(passed))

    def _rows_of(self, group: int) -> int:
        return int(self._file.metadata.row_group(group).num_rows)

    def _add(self, batch: pa.RecordBatch) -> None:
        """Decode rows that are to be taken."""
        for values, column in zip(self._lists, self._columns, strict=True):
            values += self._values(batch, column)
        self._decoded += batch.num_rows

    def take(self, count: int) -> Taken:
        while len(self._lists[0]) < count and (batch := self._next()) is not None:
            self._add(batch)
        sources, targets, *scores = (values[:count] for values in self._lists)
        for values in self._lists:
            del values[:count]
        first = self.position + 1
        self.position += len(sources)
        if not scores:
            return sources, targets, None
        return sources, targets, [_score(each, self.path, row) for row, each in enumerate(scores[0], start=first)]

    def _next(self) -> pa.RecordBatch | None:
        with self._naming():
            return next(self._batches, None)

    def _values(self, batch: pa.RecordBatch, column: str) -> list[Any]:
        first, *fields = self._path(column)
        array = batch.column(first)
        for name in fields:
            array = pc.struct_field(array, name)
        return self._texts(array, column) if _is_text(array.type) else cast(list[Any], array.to_pylist())

    def _texts(self, array: pa.Array, column: str) -> list[str]:
        """Return texts. A null is an empty one."""
        texts = array.cast(pa.large_string()).fill_null("")
        too_long = pc.index(pc.greater(pc.binary_length(texts), MAX_LINE_BYTES), True).as_py()
        if too_long >= 0:
            raise CorpusError(
                f"{self.path}:{self._decoded + too_long + 1}: {column!r} has more than {MAX_LINE_BYTES:,} bytes"
            )
        try:
            return cast(list[str], texts.to_pylist())
        except UnicodeDecodeError:  # a file may claim that a text is UTF-8 and be wrong
            for row, raw in enumerate(texts.cast(pa.large_binary()).to_pylist(), start=self._decoded + 1):
                decoded_line(raw, f"{self.path}:{row}", b"")
            raise

    @contextmanager
    def _naming(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            raise CorpusError(
                f"{self.path}: {getattr(error, 'strerror', None) or str(error).splitlines()[0]}"
            ) from None


def _is_text(kind: pa.DataType) -> bool:
    """Return whether the values of a column are texts; a column of nulls alone has none."""
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return str(kind) in ("string", "large_string", "string_view", "null")


_FORMS: Mapping[str | None, Callable[[Corpus, ExitStack], _Text]] = {
    None: _LinePairs,
    ".tsv": _TabSeparated,
    ".jsonl": _JsonLines,
    ".tmx": _Memory,
    ".parquet": _Parquet,
}
"""By `Corpus.form`."""
