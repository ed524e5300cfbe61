"""Pieces of corpora that processes on any machine read by themselves, instead of one process that reads for all.

For lines, a first pass finds where some of them begin. It reads a file in chunks that do not wait for each other.
Parquet says by itself where its rows are. An archive and a translation memory have only one reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lingon.errors import CorpusError
from lingon.files import is_packed
from lingon.object_stores import file_state, is_url, open_file, open_parts
from lingon.training.config import Corpus
from lingon.training.parallel_text import Mark, Marks, RawBlock, input_files, names_columns, read_blocks

EVERY = 256  # lines between two whose beginnings are kept
CHUNK = 2**28  # bytes of a file that one task looks through
READ_BYTES = 2**22  # bytes that are looked through at once


@dataclass(frozen=True, slots=True)
class Piece:
    """A block of a corpus; number: of the block, from 0; rows: of a block; marks: see `read_blocks`."""

    corpus: Corpus
    number: int
    rows: int
    marks: Marks

    def read(self) -> RawBlock:
        """Return the block. Raises CorpusError."""
        for block in read_blocks(self.corpus, self.rows, self.number, self.marks):
            return block
        raise CorpusError(f"{self.corpus.files()[0]}: has changed while it was read; begin again")


def can_be_cut(corpus: Corpus) -> bool:
    """Return whether a block of a corpus can be read without those before it."""
    return corpus.form != ".tmx" and not any(is_packed(path.name) for path in input_files(corpus))


@dataclass(frozen=True, slots=True)
class _Chunk:
    """The line feeds of a part of a file; marks: the bytes before each line that follows line feed 1, 1 + EVERY, ..."""

    path: Path
    begin: int
    feeds: int
    marks: NDArray[np.int64]
    open_end: bool  # whether its last byte belongs to a line that does not end in it


def _look_through(path: Path, begin: int, end: int) -> _Chunk:
    marks, feeds, last = [], 0, b"\n"
    with open_file(path) as file:
        file.seek(begin)
        at = begin
        while at < end and (content := file.read(min(READ_BYTES, end - at))):
            found = np.flatnonzero(np.frombuffer(content, np.uint8) == ord("\n"))
            marks.append(at + 1 + found[-feeds % EVERY :: EVERY])
            at, feeds, last = at + len(content), feeds + len(found), content[-1:]
    return _Chunk(path, begin, feeds, np.concatenate([np.empty(0, np.int64), *marks]), last != b"\n")


@dataclass(frozen=True, slots=True)
class _LineIndex:
    """How many lines a file has, and the marks of some of them in ascending order: lines and bytes before each."""

    lines: int
    marked: NDArray[np.int64]
    offsets: NDArray[np.int64]

    def mark(self, line: int) -> Mark:
        """Return the last mark before a line, or of it."""
        found = int(np.searchsorted(self.marked, line, side="right")) - 1
        return (int(self.marked[found]), int(self.offsets[found])) if found >= 0 else (0, 0)


def _line_index(chunks: Iterable[_Chunk]) -> _LineIndex:
    """Return the index of a file from those of all its parts."""
    lines, open_end = 0, False
    marked, offsets = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for chunk in sorted(chunks, key=lambda chunk: chunk.begin):
        marked.append(lines + 1 + EVERY * np.arange(len(chunk.marks)))
        offsets.append(chunk.marks)
        lines, open_end = lines + chunk.feeds, chunk.open_end
    return _LineIndex(lines + open_end, np.concatenate(marked), np.concatenate(offsets))


def cut_corpora(
    corpora: Mapping[int, Corpus], rows: int, run: Callable[[Iterable[Callable[[], _Chunk]]], Iterator[_Chunk]]
) -> dict[int, list[Piece]]:
    """Return the blocks of corpora that can be cut, by their numbers.

    rows: of a block
    run: runs tasks anywhere, and yields their results in any order
    """
    paths = dict.fromkeys(path for corpus in corpora.values() for path in _line_files(corpus))
    chunks: dict[Path, list[_Chunk]] = {path: [] for path in paths}
    sizes = {path: file_state(path)[0] for path in paths}
    for chunk in run(
        partial(_look_through, path, begin, min(begin + CHUNK, size))
        for path, size in sizes.items()
        for begin in range(0, size, CHUNK)
    ):
        chunks[chunk.path].append(chunk)
    indexes = {path: _line_index(found) for path, found in chunks.items()}
    return {number: _pieces(corpus, rows, indexes) for number, corpus in corpora.items()}


def _line_files(corpus: Corpus) -> list[Path]:
    return [path for path in input_files(corpus) if corpus.form != ".parquet" or path != corpus.file]


def _pieces(corpus: Corpus, rows: int, indexes: Mapping[Path, _LineIndex]) -> list[Piece]:
    # If one file has fewer lines than another one, the piece where it ends says so when it is read.
    before = {path: int(path == corpus.file and names_columns(corpus)) for path in _line_files(corpus)}
    counts = [indexes[path].lines - header for path, header in before.items()]
    if corpus.form == ".parquet":
        counts.append(_parquet_rows(corpus))
    return [
        Piece(
            corpus, number, rows, {path: indexes[path].mark(number * rows + header) for path, header in before.items()}
        )
        for number in range(-(-max(counts) // rows))
    ]


def _parquet_rows(corpus: Corpus) -> int:
    assert corpus.file is not None
    next(read_blocks(corpus, 1), None)  # for its errors
    with open_parts(corpus.file) if is_url(corpus.file) else open_file(corpus.file) as file:
        return int(pq.ParquetFile(file).metadata.num_rows)
