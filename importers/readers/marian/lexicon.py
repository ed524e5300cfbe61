"""The lexical shortlists of Marian: the likely target pieces of each source piece, as text or as a binary file.

Marian unites the sets of all sentences of a batch, and fills up to a multiple of 8. Here every sentence has its own.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lingon.errors import SourceModelError
from lingon.importers.files.pieces import Numbering
from lingon.importers.readers.marian.container import Bytes, unpacked
from lingon.serving.runtime.shortlist import Shortlist
from lingon.text import EOS, FORBIDDEN

MAGIC = 0xF11A48D5013417F5
HEAD = struct.Struct("<6Q")  # magic, checksum, frequent, best, offsets, ids
FREQUENT = BEST = 100  # of a text whose numbers nothing says, as in Marian
MOST_BYTES = 2**28
SOURCE_NULL = "NULL"  # the empty word of a lexicon


@dataclass(frozen=True, slots=True)
class Lists:
    """Target rows of each source row of a checkpoint.

    frequent: the number of first target rows, which every sentence may use
    """

    frequent: int
    rows: Sequence[Sequence[int] | NDArray[np.uint32]]


def read_lexicon(path: Path, source: Numbering, target: Numbering, rows: tuple[int, int], *, shared: bool) -> Shortlist:
    """Read a file. Raises SourceModelError.

    rows: the number of rows of the source and target tables
    shared: whether a target may have every piece of its source
    """
    content = unpacked(path, MOST_BYTES)
    if len(content) > MOST_BYTES:
        raise SourceModelError(f"{path}: must have at most {MOST_BYTES:,} bytes, has {len(content):,}")
    is_binary = len(content) >= 8 and int.from_bytes(content[:8].tobytes(), "little") == MAGIC
    lists = _binary_lexicon(path, content, rows) if is_binary else _text_lexicon(path, content, source, target)
    return _shortlist(lists, source, target, shared=shared)


def _binary_lexicon(path: Path, content: Bytes, rows: tuple[int, int]) -> Lists:
    if len(content) < HEAD.size:
        raise SourceModelError(f"{path}: must have {HEAD.size} bytes or more, has {len(content)}")
    _, checksum, frequent, _, offsets, ids = HEAD.unpack(content[: HEAD.size].tobytes())
    expected = HEAD.size + 8 * offsets + 4 * ids
    if offsets < 1 or len(content) != expected:
        raise SourceModelError(f"{path}: must have {expected:,} bytes by its head, has {len(content):,}")
    body = content[16:].tobytes()
    if (found := _checksum(body[: len(body) // 8 * 8])) != checksum:
        raise SourceModelError(f"{path}: its checksum is {found:016x}, the file says {checksum:016x}")
    places = np.frombuffer(body, np.uint64, offsets, HEAD.size - 16).astype(np.int64)
    if places[0] != 0 or places[-1] != ids or bool((np.diff(places) < 0).any()):
        raise SourceModelError(f"{path}: its offsets must rise from 0 to {ids:,}")
    pieces = np.frombuffer(body, np.uint32, ids, HEAD.size - 16 + 8 * offsets)
    if offsets - 1 > rows[0] or int(pieces.max(initial=0)) >= rows[1]:
        raise SourceModelError(
            f"{path}: must be of a source vocabulary of {rows[0]:,} and a target vocabulary of {rows[1]:,} pieces, has "
            f"{offsets - 1:,} source pieces and the target id {int(pieces.max(initial=0)):,}"
        )
    return Lists(frequent, [pieces[begin:end] for begin, end in pairwise(places)])


def _checksum(content: bytes) -> int:
    """Return the hash of 64-bit numbers, which combines them as Boost does."""
    seed, mask = 0, 2**64 - 1
    for number in np.frombuffer(content, np.uint64).tolist():
        seed ^= (number + 0x9E3779B9 + (seed << 6) + (seed >> 2)) & mask
    return seed


def _text_lexicon(path: Path, content: Bytes, source: Numbering, target: Numbering) -> Lists:
    """Read lines with a target piece, a source piece and the probability of the target piece."""
    try:
        lines = content.tobytes().decode("utf-8").split("\n")
    except UnicodeDecodeError:
        raise SourceModelError(f"{path}: must be UTF-8") from None
    of_source, of_target = _rows(source), _rows(target)
    found: dict[int, list[tuple[float, int]]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            target_piece, source_piece, probability = line.split()
            weight = float(probability)
        except ValueError:
            raise SourceModelError(
                f"{path}: line {number} must be a target piece, a source piece and a number, is {line[:60]!r}"
            ) from None
        if SOURCE_NULL not in (target_piece, source_piece) and source_piece in of_source and target_piece in of_target:
            found.setdefault(of_source[source_piece], []).append((-weight, of_target[target_piece]))
    if not found:
        raise SourceModelError(f"{path}: has no line with a target piece and a source piece of the model")
    frequent, best = _numbers_of(path)
    rows = [[row for _, row in sorted(found.get(each, []))[:best]] for each in range(max(source.rows) + 1)]
    return Lists(frequent, rows)


def _rows(numbering: Numbering) -> dict[str, int]:
    """Return the row of each piece, as the vocabulary of the checkpoint writes it."""
    return dict(zip(numbering.written or numbering.pieces, numbering.rows, strict=True))


def _numbers_of(path: Path) -> tuple[int, int]:
    """Return the numbers of frequent and of best pieces that a name such as lex.50.50.ende.s2t says."""
    numbers = [int(part) for part in path.name.split(".")[1:3] if part.isdigit() and len(part) < 7]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else (FREQUENT, BEST)


def _shortlist(lists: Lists, source: Numbering, target: Numbering, *, shared: bool) -> Shortlist:
    """Return the shortlist in the ids of Lingon."""
    silent = {*FORBIDDEN, *target.never}
    new_ids = {row: new for new, row in enumerate(target.rows) if new not in silent}
    always = sorted({EOS, *_known(range(min(lists.frequent, len(target.rows))), new_ids)})
    everywhere, offsets, pieces = set(always), [0], list[int]()
    for row in source.rows:
        found = set(_known(lists.rows[row], new_ids)) if row < len(lists.rows) else set[int]()
        if shared and row in new_ids:
            found.add(new_ids[row])
        pieces += sorted(found - everywhere)
        offsets.append(len(pieces))
    return Shortlist(np.array(always, np.int32), np.array(offsets, np.int32), np.array(pieces, np.int32))


def _known(rows: Iterable[int], new_ids: dict[int, int]) -> Iterable[int]:
    return (new_ids[row] for row in map(int, rows) if row in new_ids)
