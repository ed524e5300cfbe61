"""Batches for engines that decode whole batches, each with one length limit.

Lingon gives every sentence the limit for its own length. A batch of sentences of similar length, with the limit of the
longest, comes closest to that, and is what a careful user would write: without a limit, one sentence on which a small
model repeats itself for ever keeps its batch running up to the limit of the model. Tokens beyond a sentence's own limit
are cut off afterwards: in greedy search the result is that of decoding with the sentence's own limit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lingon.bench.engines.base import Cell
from lingon.bundle import Bundle, Limits

LIMITS = "limits.json"


@dataclass(frozen=True, slots=True)
class Batch:
    """Sources decoded together, by index; longest: maximum number of target tokens of each, with the end token."""

    indices: tuple[int, ...]
    longest: int


def batches(sources: Sequence[Sequence[int]], cell: Cell, limits: Limits, size: int) -> list[Batch]:
    """All sources in batches of `size`, longest sources first."""
    order = sorted(range(len(sources)), key=lambda index: -len(sources[index]))
    cut = (tuple(order[first : first + size]) for first in range(0, len(order), size))
    return [Batch(indices, limit(len(sources[indices[0]]), cell, limits)) for indices in cut]


def limit(source_tokens: int, cell: Cell, limits: Limits) -> int:
    """The maximum number of target tokens for a source of source_tokens, both with end token."""
    if cell.target_ratio is not None:
        return min(math.ceil(cell.target_ratio * source_tokens), limits.max_target_tokens)
    return cell.exact_length or min(cell.max_length, limits.max_output(source_tokens))


def write_limits(bundle: Bundle, folder: Path) -> None:
    """Write the limits of a bundle next to an engine's model files."""
    (folder / LIMITS).write_text(json.dumps(asdict(bundle.manifest.limits)), encoding="utf-8")


def read_limits(folder: Path) -> Limits:
    """Read the limits that `write_limits` wrote."""
    return Limits(**json.loads((folder / LIMITS).read_text(encoding="utf-8")))
