"""How much of held-out references the sets of a shortlist hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lingon.errors import CorpusError
from lingon.serving.runtime.shortlist import Shortlist
from lingon.text import Tokenizer
from lingon.training.data.corpus import Pair

BATCH_SIZE = 32
"""Sentences whose sets are united in a report: a running batch of usual size."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of held-out references their sentences' sets hold, and how large the sets are.

    tokens, sentences: shares of the reference tokens, and of the references that lie whole in their sets
    mean_size, p95_size, largest: of the sets, in pieces
    mean_union: of the sets of `batch_size` random sentences, in pieces
    """

    pairs: int
    tokens: float
    sentences: float
    mean_size: float
    p95_size: float
    largest: int
    batch_size: int
    mean_union: float


def measure_coverage(shortlist: Shortlist, pairs: Sequence[Pair], tokenizer: Tokenizer, seed: int = 0) -> Coverage:
    """What the sets of held-out pairs hold of their references; unions are of sentences drawn by seed."""
    if not pairs:
        raise CorpusError("the coverage of a shortlist cannot be measured: there is no pair of sentences")
    sets = [shortlist.select(tokenizer.encode_source(pair.source)) for pair in pairs]
    targets = [tokenizer.encode_target(pair.target) for pair in pairs]
    held = [int(np.isin(target, some).sum()) for target, some in zip(targets, sets, strict=True)]
    whole = sum(count == len(target) for count, target in zip(held, targets, strict=True))
    sizes, draw, batch_size = [len(some) for some in sets], np.random.default_rng(seed), min(BATCH_SIZE, len(sets))
    together = [draw.choice(len(sets), batch_size, replace=False) for _ in range(50)]
    unions = [len(np.unique(np.concatenate([sets[index] for index in some]))) for some in together]
    return Coverage(
        pairs=len(pairs),
        tokens=sum(held) / max(sum(map(len, targets)), 1),
        sentences=whole / len(pairs),
        mean_size=float(np.mean(sizes)),
        p95_size=float(np.percentile(sizes, 95)),
        largest=max(sizes),
        batch_size=batch_size,
        mean_union=float(np.mean(unions)),
    )
