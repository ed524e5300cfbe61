"""The shares of several pairs of languages in an epoch (Arivazhagan et al., 2019, section 3.2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lingon.training.data.corpus import Pair


def language_numbers(pairs: Sequence[Pair]) -> NDArray[np.int64]:
    """Return a number for the languages of each pair, (pairs), counted from 0 in the order in which they occur."""
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(pair.languages, len(numbers)) for pair in pairs], np.int64)


def epoch_sizes(sizes: NDArray[np.int64], temperature: float) -> NDArray[np.int64]:
    """Return how many pairs of each pair of languages an epoch has, in proportion to sizes ** (1 / temperature).

    sizes: how many there are, each at least 1

    The largest has as many as there are, so that none has fewer and an epoch still has every pair. With a temperature
    of 1 these are the sizes themselves.
    """
    shares: NDArray[np.float64] = (sizes / sizes.max()) ** (1 / temperature)
    found: NDArray[np.int64] = np.maximum(np.rint(sizes.max() * shares).astype(np.int64), sizes)
    return found


def first_epoch(pairs: Sequence[Pair], temperature: float, seed: int) -> list[Pair]:
    """Return the pairs of the first epoch of a run with this seed."""
    return [pairs[row] for row in epoch_rows(language_numbers(pairs), temperature, (seed, 0))]


def epoch_rows(numbers: NDArray[np.int64], temperature: float, seed: Sequence[int]) -> NDArray[np.int64]:
    """Return the rows of the pairs of one epoch, a function of the seed.

    numbers: of the languages of each row, see `language_numbers`

    Each pair is there as often as all of its languages can be; the rest is drawn without replacement.
    """
    if temperature == 1:
        return np.arange(len(numbers))
    random, sizes = np.random.default_rng([*seed, 3]), np.bincount(numbers)
    chosen: list[NDArray[np.int64]] = []
    for number, size in enumerate(epoch_sizes(sizes, temperature).tolist()):
        rows = np.flatnonzero(numbers == number)
        whole, rest = divmod(size, len(rows))
        chosen += [np.tile(rows, whole), random.permutation(rows)[:rest]]
    return np.concatenate(chosen)
