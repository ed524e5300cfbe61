"""The vocabulary shortlist: the target pieces that are likely translations of each source piece.

The set of a sentence is `always` united with the candidates of each of its source pieces. A running batch with a
shortlist computes the output layer for the union of the sets of its sentences. Each sentence chooses from its own set.
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
"""Columns. Unions are padded to a multiple of this, so that graphs run with few different shapes."""

MAX_BYTES = 2**27
"""Bytes of all arrays together, enough for 100 candidates of each of 300,000 pieces.

The limit is needed because a compressed file may unpack to a thousand times its size.
"""

_READ_ERRORS = (ValueError, OSError, EOFError, KeyError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True, slots=True, eq=False)
class Shortlist:
    """Candidates by source piece. All arrays are int32.

    always: (always), ids of the target pieces that every sentence may use, ascending, EOS included
    offsets: (source_vocab + 1), ascending from 0
    pieces: (candidates), the candidates of source piece s are pieces[offsets[s] : offsets[s + 1]]
    """

    always: NDArray[np.int32]
    offsets: NDArray[np.int32]
    pieces: NDArray[np.int32]

    def select(self, source_ids: Sequence[int]) -> NDArray[np.int64]:
        """Return the set of a source sentence: ids of target pieces, (set), ascending, without duplicates."""
        return np.unique(self.collect(source_ids)).astype(np.int64)

    def collect(self, source_ids: Sequence[int]) -> NDArray[np.int32]:
        """Return the set of a source sentence in any order, with duplicates, in a third of the time of `select`."""
        ids = np.asarray(source_ids, np.int64)
        begins, ends = self.offsets[ids].tolist(), self.offsets[ids + 1].tolist()
        return np.concatenate([self.always, *map(self.pieces.__getitem__, map(slice, begins, ends))])

    def to_bytes(self) -> bytes:
        """Return the content of an npz file. Equal arrays give equal bytes."""
        content = io.BytesIO()
        np.savez_compressed(content, always=self.always, offsets=self.offsets, pieces=self.pieces)
        return content.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes, origin: Path, source_vocab: int, target_vocab: int) -> Shortlist:
        """Read and check the content of a file. Raises BundleError, which names `origin`."""
        shortlist = cls(**_read(content, origin))
        if problem := shortlist._problem(source_vocab, target_vocab):
            raise BundleError(f"{origin}: {problem}")
        return shortlist

    def _problem(self, source_vocab: int, target_vocab: int) -> str | None:
        """Return the first reason why this shortlist is invalid for vocabularies of these sizes, or None."""
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
                return f"{name} holds {wrong[0]}, which is not an ordinary piece of a vocabulary of {target_vocab}"
        return None


@dataclass(frozen=True, slots=True, eq=False)
class ShortlistUnion:
    """The union of the sets of several sentences.

    piece_ids: (union) int64, ascending, padded with EOS to a multiple of COLUMN_MULTIPLE
    allowed: (sentences, union), True if the sentence may use the piece of the column; False in columns of padding
    """

    piece_ids: NDArray[np.int64]
    allowed: NDArray[np.bool_]


def unite(sets: NDArray[np.bool_]) -> ShortlistUnion:
    """Return the union of sets of sentences; sets: (sentences, vocab or more), True at the pieces of each."""
    union = np.flatnonzero(sets.any(axis=0))
    piece_ids = pad_pieces(union)
    allowed = np.take(sets, piece_ids, axis=1)
    allowed[:, len(union) :] = False
    return ShortlistUnion(piece_ids, allowed)


def pad_pieces(piece_ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return ids of pieces padded with EOS to a multiple of COLUMN_MULTIPLE, at least one."""
    padded = np.full(max(-(-len(piece_ids) // COLUMN_MULTIPLE), 1) * COLUMN_MULTIPLE, EOS, np.int64)
    padded[: len(piece_ids)] = piece_ids
    return padded


def _read(content: bytes, origin: Path) -> dict[str, NDArray[np.int32]]:
    """Return the arrays of a shortlist's file by name, and check only names and sizes."""
    expected = {entry.name for entry in fields(Shortlist)}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if set(archive.namelist()) != {f"{name}.npy" for name in expected}:
                raise BundleError(f"{origin}: must hold the arrays {', '.join(sorted(expected))} and nothing else")
            if (size := sum(each.file_size for each in archive.infolist())) > MAX_BYTES:
                raise BundleError(f"{origin}: unpacks to {size:,} bytes; at most {MAX_BYTES:,} are read")
        with np.load(io.BytesIO(content)) as arrays:  # pickled objects are rejected by default
            return {name: arrays[name] for name in expected}
    except _READ_ERRORS:
        raise BundleError(f"{origin}: not a readable shortlist") from None
