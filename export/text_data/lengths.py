"""The usual lengths of translations, from training pairs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lingon.bundle import LengthRange

LEAST_PAIRS = 1000  # of a range: fewer pairs say nothing about one of 1,000
OUTSIDE = 0.001  # share of the pairs on each side of a range


def length_ranges(lengths: Sequence[tuple[int, int]]) -> tuple[LengthRange, ...]:
    """Return ranges of sources of up to 1, 2, 4, ... tokens; short of pairs, one takes in the sources below it.

    lengths: source and target tokens of each pair, without end tokens
    """
    pairs = np.array([pair for pair in lengths if min(pair) > 0], float).reshape(-1, 2)
    source, ratio = pairs[:, 0], pairs[:, 1] / pairs[:, 0]
    bounds, begin, bound = [], 0.0, 1
    while len(source) and begin < source.max():
        found = ratio[(source > begin) & (source <= bound)]
        if (source > bound).sum() < LEAST_PAIRS:
            found, bound = ratio[source > begin], int(source.max())
        if len(found) >= LEAST_PAIRS or bound >= source.max():
            least, most = np.quantile(found, (OUTSIDE, 1 - OUTSIDE))
            bounds.append(LengthRange(bound, round(float(least), 4), round(float(most), 4)))
            begin = bound
        bound *= 2
    return tuple(bounds)
