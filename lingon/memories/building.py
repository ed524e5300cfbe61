"""Writing of a translation memory: a new folder that is there whole or not at all."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from lingon.files import publish_folder, write_json
from lingon.memories.grams import build_index
from lingon.memories.keys import comparable, context_key, identity, key_of
from lingon.memories.memory import ABOUT, FORMAT, Memory, Tables, file_name, map_file, text_at
from lingon.memories.segment import Segment, check_segment

_COPIED = 1 << 24  # bytes of a text file that are copied at once

Integers = NDArray[np.uint64]


def build(folder: Path, segments: Iterable[Segment], *, base: Memory | None = None) -> None:
    """Write a new memory of the segments of another one and new ones.

    A segment replaces an earlier one with the same source, before and after. A segment takes about 350 bytes of memory
    while the memory is built. A kill at any moment leaves at most a hidden folder beside it, which the next attempt
    removes.

    folder: must not exist, else FileExistsError
    segments: each is checked, see `check_segment`, which raises SegmentError
    base: its segments come first
    """
    with publish_folder(folder) as part:
        with _Writer(part) as writer:
            if base is not None:
                writer.copy(base)
            for number, segment in enumerate(segments, start=1):
                check_segment(segment, number)
                writer.add(segment)
        rows = writer.rows()
        kept = _last_of_each(rows.identities)
        if not kept.all():
            rows = _only(kept, rows, part)
        _write_tables(part, rows)


class _Rows(NamedTuple):
    """What is known of each of n segments, in the order in which they are stored; see `Tables`.

    keys, contexts: here in the order of the segments, too
    """

    source_ends: Integers
    rest_ends: Integers
    changed: Integers
    identities: Integers
    keys: Integers
    contexts: Integers


class _Writer:
    """The texts of segments, which are written as the segments come, and what is known of the segments."""

    def __init__(self, folder: Path) -> None:
        self._files = ExitStack()
        self._sources: IO[bytes] = self._files.enter_context((folder / file_name("sources")).open("wb"))
        self._rests: IO[bytes] = self._files.enter_context((folder / file_name("rests")).open("wb"))
        self._source_end = self._rest_end = 0  # bytes that were written
        self._columns = [array("Q") for _ in _Rows._fields]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._files.close()

    def copy(self, base: Memory) -> None:
        """Add the segments of a memory."""
        tables = base.tables
        for file, copied in ((self._sources, tables.sources), (self._rests, tables.rests)):
            for at in range(0, len(copied), _COPIED):
                file.write(copied[at : at + _COPIED].tobytes())
        self._source_end, self._rest_end = len(tables.sources), len(tables.rests)
        by_row = np.argsort(tables.key_rows)
        columns = [tables.source_ends, tables.rest_ends, tables.changed, tables.identities]
        columns += [tables.keys[by_row], tables.contexts[by_row]]
        for column, added in zip(self._columns, columns, strict=True):
            column.frombytes(added.tobytes())

    def add(self, segment: Segment) -> None:
        """Add a segment."""
        source_ends, rest_ends, changed, identities, keys, contexts = self._columns
        self._source_end += self._sources.write(segment.source.encode())
        source_ends.append(self._source_end)
        for text in (segment.target, segment.before, segment.after, segment.origin):
            self._rest_end += self._rests.write(text.encode())
            rest_ends.append(self._rest_end)
        changed.append(segment.changed)
        identities.frombytes(identity(segment.source, segment.before, segment.after))
        keys.append(key_of(comparable(segment.source)))
        contexts.append(context_key(segment.before, segment.after))

    def rows(self) -> _Rows:
        """Return what is known of the segments."""
        source_ends, rest_ends, changed, identities, keys, contexts = (
            np.frombuffer(column, np.uint64) for column in self._columns
        )
        return _Rows(source_ends, rest_ends.reshape(-1, 4), changed, identities.reshape(-1, 2), keys, contexts)


def _last_of_each(identities: Integers) -> NDArray[np.bool_]:
    """Return which rows of (n, 2) are the last ones that are equal to them."""
    order = np.lexsort((identities[:, 1], identities[:, 0]))  # stable
    ordered = identities[order]
    kept = np.ones(len(order), np.bool_)
    kept[order[:-1]] = (ordered[:-1] != ordered[1:]).any(axis=1)
    return kept


def _only(kept: NDArray[np.bool_], rows: _Rows, folder: Path) -> _Rows:
    """Remove the segments that are not kept from the texts; returns the rows of the others."""
    source_ends = _copy_kept(folder, "sources", kept, rows.source_ends[:, None])
    rest_ends = _copy_kept(folder, "rests", kept, rows.rest_ends)
    return _Rows(source_ends[:, 0], rest_ends, *(column[kept] for column in rows[2:]))


def _copy_kept(folder: Path, name: str, kept: NDArray[np.bool_], ends: Integers) -> Integers:
    """Remove texts from a file.

    ends: (n, parts) where in the file the parts of each row end

    Returns (kept rows, parts): where they end then.
    """
    path, copy = folder / file_name(name), folder / f"{name}.copy"
    texts, begins = map_file(folder, name), np.concatenate([[0], ends[:-1, -1]]).astype(np.uint64)
    with copy.open("wb") as file:
        for first, last in _runs(kept):
            begin, end = int(begins[first]), int(ends[last - 1, -1])
            for at in range(begin, end, _COPIED):
                file.write(texts[at : min(at + _COPIED, end)].tobytes())
    copy.replace(path)
    left_out = np.where(kept, 0, ends[:, -1] - begins).cumsum(dtype=np.uint64)
    moved: Integers = (ends - left_out[:, None])[kept]
    return moved


def _runs(kept: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Yield where runs of rows that are kept begin and end."""
    changes = np.flatnonzero(np.diff(np.concatenate([[False], kept, [False]]))).tolist()
    return zip(changes[::2], changes[1::2], strict=True)


def _write_tables(folder: Path, rows: _Rows) -> None:
    """Write all files but the texts; see `Tables`."""
    sources, count = map_file(folder, "sources"), len(rows.keys)

    def form(row: int) -> str:
        return comparable(text_at(sources, rows.source_ends, row))

    key_rows = np.lexsort((-np.arange(count), -rows.changed.astype(np.int64), rows.keys))
    keys = rows.keys[key_rows]
    first_of_key = key_rows[np.concatenate([[True], keys[1:] != keys[:-1]])[:count]]
    lengths = np.fromiter((len(form(row)) for row in first_of_key), np.int64, len(first_of_key))
    by_length = first_of_key[np.argsort(lengths, kind="stable")]
    index = build_index(len(by_length), lambda numbers: [form(by_length[number]) for number in numbers])
    tables = {
        "source_ends": rows.source_ends,
        "rest_ends": rows.rest_ends,
        "changed": rows.changed,
        "identities": rows.identities,
        "keys": keys,
        "key_rows": key_rows.astype(np.uint32),
        "contexts": rows.contexts[key_rows],
        "by_length": by_length.astype(np.uint32),
        "length_ends": np.bincount(lengths, minlength=1).cumsum(dtype=np.uint32),
        "rarity": index.rarity,
        "begins": index.begins,
        "postings": index.postings,
    }
    for name, table in tables.items():
        np.save(folder / file_name(name), table)
    sizes = {name: (folder / file_name(name)).stat().st_size for name in Tables._fields}
    digest = _digest([sources, map_file(folder, "rests"), rows.source_ends, rows.rest_ends, rows.changed])
    write_json(folder / ABOUT, {"format": FORMAT, "digest": digest, "sizes": sizes})


def _digest(arrays: Iterable[NDArray[Any]]) -> str:
    """Return a hash of what all segments have, as 32 hexadecimal figures."""
    found = blake2b(digest_size=16)
    for each in arrays:
        found.update(np.ascontiguousarray(each).reshape(-1).view(np.uint8).data)
    return found.hexdigest()
