"""The coverage of a shortlist: the share of held-out references that its sets contain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lingon.errors import CorpusError
from lingon.serving.runtime.shortlist import Shortlist
from lingon.text import Tokenizer
from lingon.training.data.corpus import Pair

BATCH_SIZE = 32
"""Sentences of a union of sets: the usual size of a running batch."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """The share of held-out references that the sets of their sentences contain, and the size of the sets.

    tokens: the share of reference tokens that are in the set of their sentence
    sentences: the share of references whose tokens are all in the set of their sentence
    mean_size, p95_size, largest: size of the sets, in pieces
    mean_union: size of the union of the sets of `batch_size` random sentences, in pieces
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
    """Measure the coverage on held-out pairs; seed chooses the sentences of the unions.

    Raises CorpusError if there is no pair.
    """
    if not pairs:
        raise CorpusError("the coverage of a shortlist cannot be measured: there is no pair of sentences")
    sets = [shortlist.select(tokenizer.encode_source(pair.source)) for pair in pairs]
    targets = [tokenizer.encode_target(pair.target) for pair in pairs]
    covered = [int(np.isin(target, pieces).sum()) for target, pieces in zip(targets, sets, strict=True)]
    complete = sum(count == len(target) for count, target in zip(covered, targets, strict=True))
    sizes, random, batch_size = [len(each) for each in sets], np.random.default_rng(seed), min(BATCH_SIZE, len(sets))
    batches = [random.choice(len(sets), batch_size, replace=False) for _ in range(50)]
    unions = [len(np.unique(np.concatenate([sets[index] for index in each]))) for each in batches]
    return Coverage(
        pairs=len(pairs),
        tokens=sum(covered) / max(sum(map(len, targets)), 1),
        sentences=complete / len(pairs),
        mean_size=float(np.mean(sizes)),
        p95_size=float(np.percentile(sizes, 95)),
        largest=max(sizes),
        batch_size=batch_size,
        mean_union=float(np.mean(unions)),
    )
