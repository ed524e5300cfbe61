"""A translation memory that is open: its files are mapped, so that processes share them and nothing is loaded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein

from lingon.memories.grams import GramIndex
from lingon.memories.keys import EXACT, IN_CONTEXT, NO_CONTEXT, comparable, context_key, key_of
from lingon.memories.segment import DamagedMemory, Segment

FORMAT: Final = 1
ABOUT: Final = "about.json"
"""The file that says format and size. All others are below it in `Tables`."""

MOST_COMPARED = 500  # segments whose distance to a text is computed: about 1.5 ms
_SAME_CASE = 64  # exact matches of which one in the same case is looked for
MOST_CELLS = 1 << 26  # of the tables of those distances, in characters squared: about 3 ms


class Match(NamedTuple):
    """What a memory has for a text.

    score: 50 to 101: 100 times one minus the edit distance of the two sources in characters, divided by the length of
        the longer one, rounded down. Case and the number of blanks do not count. 100 is an exact match, 101 one whose
        neighbours are the same too
    adapted: the segment with the numbers and placeholders of the text, if they are others, see `adaptation`
    """

    segment: Segment
    score: int
    adapted: Segment | None = None

    @property
    def target(self) -> str:
        """What the memory says for the text."""
        return (self.adapted or self.segment).target


class Tables(NamedTuple):
    """The arrays of a memory of n segments, of which m have different comparable sources.

    sources, rests: (bytes,) the sources, and of each segment target, before, after and origin, in UTF-8
    source_ends: (n,) where in `sources` each source ends
    rest_ends: (n, 4) where in `rests` target, before, after and origin of each segment end
    changed: (n,) milliseconds since 1970
    identities: (n, 2) hashes of source, before and after
    keys: (n,) hashes of comparable sources, ascending
    key_rows: (n,) the segment of each key. Of the same key, the last one changed is first, else the last one stored
    contexts: (n,) hashes of the neighbours of that segment
    by_length: (m,) segments by the lengths of their comparable sources, of each key the first one
    length_ends: how many of them have at most this many characters
    rarity, begins, postings: see `GramIndex`; the texts are numbered as in `by_length`
    """

    sources: NDArray[np.uint8]
    rests: NDArray[np.uint8]
    source_ends: NDArray[np.uint64]
    rest_ends: NDArray[np.uint64]
    changed: NDArray[np.uint64]
    identities: NDArray[np.uint64]
    keys: NDArray[np.uint64]
    key_rows: NDArray[np.uint32]
    contexts: NDArray[np.uint64]
    by_length: NDArray[np.uint32]
    length_ends: NDArray[np.uint32]
    rarity: NDArray[np.uint32]
    begins: NDArray[np.uint64]
    postings: NDArray[np.uint32]


class Segments(Protocol):
    """Segments that are looked up by their sources, see `Memory`."""

    digest: str

    def find(
        self, text: str, before: str = "", after: str = "", *, min_score: int = 70, most: int = 1
    ) -> list[Match]: ...


class Memory:
    """Segments that are looked up by their sources. Safe to use from several threads."""

    def __init__(self, tables: Tables, size_bytes: int, digest: str) -> None:
        self.tables = tables
        self.digest = digest
        """A hash of all segments: memories with the same one have the same segments in the same order."""
        self.size_bytes = size_bytes
        """Of its files. What of them was looked up is in memory, which processes share."""
        self._index = GramIndex(tables.rarity, tables.begins, tables.postings)

    @classmethod
    def open(cls, folder: Path) -> Memory:
        """Open what `build` has written. Raises DamagedMemory."""
        try:
            about = json.loads((folder / ABOUT).read_bytes())
            if about["format"] != FORMAT:
                raise DamagedMemory(f"{folder}: is in format {about['format']}; this version reads {FORMAT}")
            tables = Tables(*(_checked(folder, name, about["sizes"][name]) for name in Tables._fields))
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise DamagedMemory(f"{folder}: is no translation memory that is whole: {reason}") from None
        return cls(tables, sum(about["sizes"].values()), str(about["digest"]))

    def __len__(self) -> int:
        """How many segments it has."""
        return len(self.tables.source_ends)

    def __iter__(self) -> Iterator[Segment]:
        """Yield the segments in the order in which they were stored."""
        return (self.segment(row) for row in range(len(self)))

    def find(self, text: str, before: str = "", after: str = "", *, min_score: int = 70, most: int = 1) -> list[Match]:
        """Return at most `most` matches for a text, the best first. Of equal ones, that of the same case is first, then
        the last one changed.

        before, after: the neighbours of the text in its document; empty if they are not known
        min_score: 50 to 100. Fuzzy matches are those of an index: some with a low score may be missed
        """
        form = comparable(text)
        if not form:
            return []
        found = self._exact(text, form, context_key(before, after), most)
        if len(found) < most and min_score < EXACT:
            found += self._fuzzy(form, min_score, most - len(found))
        return found

    def _exact(self, text: str, form: str, context: int, most: int) -> list[Match]:
        key = np.uint64(key_of(form))
        keys = self.tables.keys
        first = int(np.searchsorted(keys, key))
        if first == len(keys) or keys[first] != key:
            return []
        last = int(np.searchsorted(keys, key, "right"))
        rows = self.tables.key_rows[first:last]
        same = (self.tables.contexts[first:last] == np.uint64(context)) & (context != NO_CONTEXT)
        chosen = max(most, _SAME_CASE)
        matches = [Match(self.segment(row), IN_CONTEXT) for row in rows[same][:chosen].tolist()]
        matches += [Match(self.segment(row), EXACT) for row in rows[~same][:chosen].tolist()]
        # Two texts may have the same hash.
        matches = [each for each in matches if comparable(each.segment.source) == form]
        return sorted(matches, key=lambda each: (-each.score, each.segment.source != text))[:most]

    def _fuzzy(self, form: str, min_score: int, most: int) -> list[Match]:
        shortest, longest = -(-len(form) * min_score // 100), len(form) * 100 // min_score
        begin, end = self._up_to(shortest - 1), self._up_to(longest)
        compared = max(1, min(MOST_COMPARED, MOST_CELLS // len(form) ** 2))
        scored: list[tuple[int, int]] = []
        for place in self._index.candidates(form, begin, end, compared):
            row = int(self.tables.by_length[place])
            score = score_of(form, comparable(self.source(row)), min_score)
            if min_score <= score < EXACT:
                scored.append((score, row))
                if len(scored) > most:
                    scored.remove(min(scored))
                    min_score = max(min_score, min(scored)[0])
        return [Match(self.segment(row), score) for score, row in sorted(scored, reverse=True)]

    def _up_to(self, length: int) -> int:
        """Return how many different comparable sources have at most this many characters."""
        ends = self.tables.length_ends
        return int(ends[min(length, len(ends) - 1)])

    def source(self, row: int) -> str:
        """Return the source of a segment; row: in the order in which they were stored, from 0."""
        return text_at(self.tables.sources, self.tables.source_ends, row)

    def segment(self, row: int) -> Segment:
        """Return a segment; row: in the order in which they were stored, from 0."""
        begin = int(self.tables.rest_ends[row - 1, -1]) if row else 0
        parts = list[str]()
        for end in self.tables.rest_ends[row].tolist():
            parts.append(self.tables.rests[begin:end].tobytes().decode())
            begin = end
        target, before, after, origin = parts
        return Segment(self.source(row), target, before, after, origin, int(self.tables.changed[row]))


def score_of(form: str, other: str, least: int) -> int:
    """Return the score of two comparable texts, or less than `least` if it is below that."""
    longer = max(len(form), len(other))
    most = longer * (100 - least) // 100
    distance = Levenshtein.distance(form, other, score_cutoff=most)
    return 100 * (longer - distance) // longer


def file_name(table: str) -> str:
    """Return the name of the file of one of `Tables`."""
    return f"{table}.bin" if table in ("sources", "rests") else f"{table}.npy"


def map_file(folder: Path, table: str) -> NDArray[Any]:
    """Return one of `Tables`, mapped."""
    path = folder / file_name(table)
    if path.suffix == ".npy":
        return _plain(np.load(path, mmap_mode="r"))
    if not path.stat().st_size:  # cannot be mapped
        return np.empty(0, np.uint8)
    return _plain(np.memmap(path, np.uint8, "r"))


def _plain(mapped: NDArray[Any]) -> NDArray[Any]:
    """Return an array that is no numpy.memmap, each slice of which takes a microsecond more."""
    return mapped.view(np.ndarray)


def _checked(folder: Path, table: str, size: int) -> NDArray[Any]:
    """Return one of `Tables`, mapped. Raises ValueError if its file has not the size that it should have."""
    name = file_name(table)
    found = (folder / name).stat().st_size
    if found != size:
        raise ValueError(f"{name} has {found:,} bytes instead of {size:,}")
    return map_file(folder, table)


def text_at(texts: NDArray[np.uint8], ends: NDArray[np.uint64], row: int) -> str:
    """Return one of the texts that follow each other; ends: (n,) where each ends."""
    begin = int(ends[row - 1]) if row else 0
    return texts[begin : int(ends[row])].tobytes().decode()
