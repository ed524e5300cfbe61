"""How sentences are put into batches for engines that take whole batches, each with one length limit.

Our engine gives every sentence the limit that its own length calls for. A batch of sentences of like length, with the
limit of the longest of them, comes closest to that, and is what a careful user would write: without it one sentence
of which a small model repeats itself for ever keeps a batch going to the limit of the model. What such a sentence says
beyond its own limit is cut off afterwards: in greedy search that gives what a limit of its own would have given.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lingon.bench.engines.base import Cell
from lingon.bundle import Bundle, Limits

LIMITS = "limits.json"


@dataclass(frozen=True, slots=True)
class Batch:
    """Sources that are decoded together, by their indices; longest: target tokens of each, the end token counted."""

    indices: tuple[int, ...]
    longest: int


def batches(sources: Sequence[Sequence[int]], cell: Cell, limits: Limits, size: int) -> list[Batch]:
    """All sources in batches of `size`, longest first."""
    order = sorted(range(len(sources)), key=lambda index: -len(sources[index]))
    cut = (tuple(order[first : first + size]) for first in range(0, len(order), size))
    return [Batch(indices, limit(len(sources[indices[0]]), cell, limits)) for indices in cut]


def limit(source_tokens: int, cell: Cell, limits: Limits) -> int:
    """The most target tokens of a source of source_tokens, both with their end tokens."""
    return cell.exact_length or min(cell.max_length, limits.max_output(source_tokens))


def write_limits(bundle: Bundle, folder: Path) -> None:
    """Leave the limits of a bundle with a peer's model files."""
    (folder / LIMITS).write_text(json.dumps(asdict(bundle.manifest.limits)), encoding="utf-8")


def read_limits(folder: Path) -> Limits:
    """What `write_limits` left."""
    return Limits(**json.loads((folder / LIMITS).read_text(encoding="utf-8")))
