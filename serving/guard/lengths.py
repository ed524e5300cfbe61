"""Compares the length of a translation with those of training pairs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from lingon.bundle import LengthRange

SLACK = 1.25  # of the ratio: training pairs are less free than all good translations
SPARE = 2  # tokens by which any translation may be too short or too long


class Lengths:
    """The usual ratios of the lengths of translations and sources, in tokens without end tokens."""

    def __init__(self, ranges: Sequence[LengthRange]) -> None:
        self._ranges = tuple(ranges)
        self._bounds = [each.most_source for each in ranges]

    def unusual(self, source_tokens: int, target_tokens: int) -> bool:
        """Whether a translation is shorter or longer than all but one of 1,000 training pairs, and some more."""
        usual = self._ranges[min(bisect_left(self._bounds, source_tokens), len(self._ranges) - 1)]
        least = usual.least / SLACK * source_tokens - SPARE
        most = usual.most * SLACK * source_tokens + SPARE
        return not least <= target_tokens <= most
