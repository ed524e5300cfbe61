"""Which pairs an epoch has, in which order, and in which batches: functions of seed and epoch, in bounded memory.

An epoch is a range of positions. A mixture says which row of the corpus is at each of them: a corpus may be there
several times, and pairs of languages have shares. Epochs are planned block by block, so that a plan of any corpus takes
the memory of one block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lingon.training.config import Config, LanguagePair

BLOCK = 2**21
"""Pairs that are shuffled, sorted by length and cut into batches at once. Their plan takes about 150 MB."""

ROUNDS = 6  # of the Feistel network
_ODD = np.uint64(0x9E3779B97F4A7C15)


def mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a hash of each value, of 64 bits: the finaliser of SplitMix64 (Steele et al., 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


class Permutation:
    """A random order of the numbers below `size`, of which any part can be asked for.

    Up to BLOCK numbers it is drawn and kept. Above, it is a Feistel network over the next even number of bits, whose
    values outside the range are encrypted again (Black and Rogaway, 2002): it takes no memory.
    """

    def __init__(self, size: int, seed: Sequence[int]) -> None:
        self._size, self._drawn = size, None
        if size <= BLOCK:
            self._drawn = np.random.default_rng(list(seed)).permutation(size)
            return
        self._half = np.uint64(((size - 1).bit_length() + 1) // 2)
        self._mask = np.uint64((1 << int(self._half)) - 1)
        self._keys = np.random.SeedSequence(list(seed)).generate_state(ROUNDS, np.uint64)

    def __call__(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers at these positions."""
        if self._drawn is not None:
            return self._drawn[positions]
        found = self._encrypted(positions.astype(np.uint64))
        while (outside := np.flatnonzero(found >= self._size)).size:
            found[outside] = self._encrypted(found[outside])
        return found.astype(np.int64)

    def _encrypted(self, values: NDArray[np.uint64]) -> NDArray[np.uint64]:
        left, right = values >> self._half, values & self._mask
        for key in self._keys:
            left, right = right, left ^ (mixed(right * _ODD + key) & self._mask)
        return (left << self._half) | right


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows of a corpus that follow each other; repeat: how often they are there."""

    first: int
    size: int
    repeat: int = 1


class Mixture:
    """The rows of one epoch. A group of segments, such as all text of a pair of languages, has a number of positions.

    Each row of a group is there as often as all of them can be. The rest is drawn without replacement.
    """

    def __init__(self, groups: Sequence[tuple[Sequence[Segment], int]], seed: Sequence[int]) -> None:
        """groups: segments and the number of positions of each; seed: of the epoch."""
        self._groups = [
            _Group(segments, size, [*seed, 3, number]) for number, (segments, size) in enumerate(groups, start=1)
        ]
        self._starts = np.cumsum([0, *(size for _, size in groups)])

    def __len__(self) -> int:
        """Return the number of positions."""
        return int(self._starts[-1])

    def rows(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row at each position."""
        numbers = np.searchsorted(self._starts, positions, side="right") - 1
        found = np.empty_like(positions)
        for number, group in enumerate(self._groups):
            mine = np.flatnonzero(numbers == number)
            if mine.size:
                found[mine] = group.rows(positions[mine] - self._starts[number])
        return found


class _Group:
    """Segments and their positions: whole rounds of all of them in order, then a drawn part of one round."""

    def __init__(self, segments: Sequence[Segment], size: int, seed: Sequence[int]) -> None:
        segments = [each for each in segments if each.size]
        self._starts = np.cumsum([0, *(each.size * each.repeat for each in segments)])
        self._first = np.array([each.first for each in segments], np.int64)
        self._sizes = np.array([each.size for each in segments], np.int64)
        self._round = int(self._starts[-1])
        self._whole = size // self._round * self._round if self._round else 0
        self._order = Permutation(self._round, seed) if size > self._whole else None

    def rows(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row at each position of the group."""
        inside = positions % self._round
        if self._order is not None:
            drawn = np.flatnonzero(positions >= self._whole)
            inside[drawn] = self._order(inside[drawn])
        segment = np.searchsorted(self._starts, inside, side="right") - 1
        found: NDArray[np.int64] = self._first[segment] + (inside - self._starts[segment]) % self._sizes[segment]
        return found


def epoch_sizes(sizes: NDArray[np.int64], temperature: float) -> NDArray[np.int64]:
    """Return how many pairs of each pair of languages an epoch has, in proportion to sizes ** (1 / temperature).

    sizes: how many there are, each at least 1

    The largest has as many as there are, so that none has fewer and an epoch still has every pair. With a temperature
    of 1 these are the sizes themselves (Arivazhagan et al., 2019, section 3.2).
    """
    shares: NDArray[np.float64] = (sizes / sizes.max()) ** (1 / temperature)
    found: NDArray[np.int64] = np.maximum(np.rint(sizes.max() * shares).astype(np.int64), sizes)
    return found


def mixture(config: Config, sizes: Sequence[int], seed: Sequence[int], stage: int | None = None) -> Mixture:
    """Return the rows of an epoch of a run.

    sizes: how many pairs of each corpus there are
    stage: whose weights the corpora have. An epoch of it has every pair of its corpora, and some of them several times
    """
    starts = np.cumsum([0, *sizes]).tolist()
    corpora = [
        (corpus, Segment(start, size, corpus.repeat))
        for start, size, corpus in zip(starts, sizes, config.data.train, strict=False)
        if size
    ]
    weights = config.training.stage[stage].weights if stage is not None and config.training.stage else {}
    if weights:
        chosen = [
            (Segment(each.first, each.size), weights[corpus.name or ""])
            for corpus, each in corpora
            if corpus.name in weights
        ]
        total = max((each.size / weight for each, weight in chosen), default=0.0)
        return Mixture([([each], max(round(total * weight), each.size)) for each, weight in chosen], seed)
    if config.data.temperature == 1:
        segments = [segment for _, segment in corpora]
        return Mixture([(segments, sum(each.size * each.repeat for each in segments))], seed)
    groups: dict[LanguagePair, list[Segment]] = {}
    for corpus, segment in corpora:
        groups.setdefault(config.data.languages_of(corpus), []).append(segment)
    whole = np.array([sum(each.size * each.repeat for each in group) for group in groups.values()])
    return Mixture([*zip(groups.values(), epoch_sizes(whole, config.data.temperature).tolist(), strict=True)], seed)


def plan_batches(lengths: NDArray[Any], batch_tokens: int, seed: Sequence[int]) -> list[NDArray[np.int64]]:
    """Return the indices of the pairs of each batch: pairs of similar length together, batches in random order.

    lengths: (pairs, 2), with at least one pair. Every pair is in one batch. A batch has at most batch_tokens padded
    tokens on each side, or a single pair that is longer.
    """
    random = np.random.default_rng(list(seed))
    order = random.permutation(len(lengths))
    order = order[np.lexsort((lengths[order, 0], lengths[order, 1]))]
    batches: list[NDArray[np.int64]] = []
    first, longest = 0, 0
    for position, length in enumerate(lengths[order].max(axis=1).tolist()):
        longest = max(longest, length)
        if position > first and (position - first + 1) * longest > batch_tokens:
            batches.append(order[first:position])
            first, longest = position, length
    batches.append(order[first:])
    return [batches[index] for index in random.permutation(len(batches))]


def drawn_positions(size: int, most: int, seed: int) -> NDArray[np.int64]:
    """Return the positions of an epoch of this size: all, or `most` of them, drawn at random; ascending."""
    if size <= most:
        return np.arange(size)
    return np.sort(Permutation(size, (seed, 6))(np.arange(most)))


def blocks(size: int) -> int:
    """Return the number of blocks in which an epoch of so many positions is planned."""
    return max(-(-size // BLOCK), 1)


def block_positions(size: int, block: int, seed: Sequence[int]) -> NDArray[np.int64]:
    """Return the positions of a block of an epoch: all in order if it is the only one, else a part drawn at random."""
    count = blocks(size)
    if count == 1:
        return np.arange(size)
    return Permutation(size, [*seed, 4])(np.arange(size * block // count, size * (block + 1) // count))
