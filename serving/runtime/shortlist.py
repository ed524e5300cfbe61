"""The vocabulary shortlist: which target pieces the pieces of a source sentence make likely, and sets of a batch.

The set of a sentence is `always` united with the candidates of each of its source pieces. A lane that uses shortlists
computes the output layer for the union of its sentences' sets, and lets every sentence choose from its own set alone.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lingon.errors import BundleError
from lingon.text import EOS, FORBIDDEN

COLUMN_MULTIPLE = 64
"""Unions are padded to a multiple of this, so that graphs meet few shapes."""

MAX_BYTES = 2**27
"""Of all arrays: 100 candidates for each of 300,000 pieces. A file may unpack to a thousand times its size."""

_UNREADABLE = (ValueError, OSError, EOFError, KeyError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True, slots=True, eq=False)
class Shortlist:
    """Candidates by source piece, int32 each.

    always: ids that every sentence may use, the end token among them, ascending
    offsets: (source_vocab + 1)
    pieces: the candidates of source piece s are pieces[offsets[s] : offsets[s + 1]]
    """

    always: NDArray[np.int32]
    offsets: NDArray[np.int32]
    pieces: NDArray[np.int32]

    def select(self, source_ids: Sequence[int]) -> NDArray[np.int64]:
        """The target pieces that a source sentence of these ids may be translated with, ascending, each once."""
        ids = np.asarray(source_ids, np.int64)
        begins, ends = self.offsets[ids].tolist(), self.offsets[ids + 1].tolist()
        sets = [self.pieces[begin:end] for begin, end in zip(begins, ends, strict=True)]
        allowed = np.sort(np.concatenate([self.always, *sets]))
        first = np.append(True, allowed[1:] != allowed[:-1])
        chosen: NDArray[np.int64] = allowed[first].astype(np.int64)
        return chosen

    def to_bytes(self) -> bytes:
        """An npz file; the same arrays always give the same bytes."""
        content = io.BytesIO()
        np.savez_compressed(content, always=self.always, offsets=self.offsets, pieces=self.pieces)
        return content.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes, origin: Path, source_vocab: int, target_vocab: int) -> Shortlist:
        """The shortlist that was written, checked; origin is named in errors."""
        shortlist = cls(**_read(content, origin))
        if problem := shortlist._problem(source_vocab, target_vocab):
            raise BundleError(f"{origin}: {problem}")
        return shortlist

    def _problem(self, source_vocab: int, target_vocab: int) -> str | None:
        """What makes this shortlist useless for vocabularies of these sizes, if anything does."""
        for name, array in (("always", self.always), ("offsets", self.offsets), ("pieces", self.pieces)):
            if array.dtype != np.int32 or array.ndim != 1:
                return f"{name} must be int32 in one dimension, is {array.dtype} in {array.ndim}"
        if len(self.offsets) != source_vocab + 1:
            return f"offsets must be {source_vocab + 1} long for {source_vocab} source pieces, is {len(self.offsets)}"
        if self.offsets[0] != 0 or self.offsets[-1] != len(self.pieces) or (np.diff(self.offsets) < 0).any():
            return f"offsets must rise from 0 to {len(self.pieces)}, the length of pieces"
        if EOS not in self.always or (np.diff(self.always) <= 0).any():
            return f"always must rise and hold the end token, {EOS}"
        for name, array in (("always", self.always), ("pieces", self.pieces)):
            wrong = array[(array < 0) | (array >= target_vocab) | np.isin(array, FORBIDDEN)]
            if len(wrong):
                return f"{name} holds {wrong[0]}, which is no piece to say of a vocabulary of {target_vocab}"
        return None


@dataclass(frozen=True, slots=True, eq=False)
class ShortlistUnion:
    """The sets of several sentences as one.

    piece_ids: (union) int64, ascending, then the end token until the length is a multiple of COLUMN_MULTIPLE
    allowed: (sentences, union), which columns each sentence may say; the columns of padding none of them
    """

    piece_ids: NDArray[np.int64]
    allowed: NDArray[np.bool_]


def unite(sets: Sequence[NDArray[np.int64]]) -> ShortlistUnion:
    """The union of the sets of sentences, each as `Shortlist.select` gives it; an empty set is a free slot."""
    pieces = np.concatenate([np.empty(0, np.int64), *sets])
    # A place for every id: sorting the 9,600 ids of 32 sentences of 300 takes ten times as long.
    seen = np.zeros(int(pieces.max(initial=EOS)) + 1, np.bool_)
    seen[pieces] = True
    union = np.flatnonzero(seen)
    columns = np.empty(len(seen), np.int64)
    columns[union] = np.arange(len(union))
    padded = np.full(max(-(-len(union) // COLUMN_MULTIPLE), 1) * COLUMN_MULTIPLE, EOS, np.int64)
    padded[: len(union)] = union
    allowed = np.zeros((len(sets), len(padded)), np.bool_)
    for row, some in zip(allowed, sets, strict=True):
        row[columns[some]] = True
    return ShortlistUnion(padded, allowed)


def _read(content: bytes, origin: Path) -> dict[str, NDArray[np.int32]]:
    """The arrays of a shortlist's file, unchecked but for their names."""
    wanted = {entry.name for entry in fields(Shortlist)}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if set(archive.namelist()) != {f"{name}.npy" for name in wanted}:
                raise BundleError(f"{origin}: must hold the arrays {', '.join(sorted(wanted))} and nothing else")
            if (size := sum(each.file_size for each in archive.infolist())) > MAX_BYTES:
                raise BundleError(f"{origin}: unpacks to {size:,} bytes; {MAX_BYTES:,} are the most")
        with np.load(io.BytesIO(content)) as arrays:  # never loads objects: that is its default
            return {name: arrays[name] for name in wanted}
    except _UNREADABLE:
        raise BundleError(f"{origin}: not a shortlist that can be read") from None
