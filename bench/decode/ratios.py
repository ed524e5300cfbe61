"""The arithmetic of the comparison: medians, who is fastest in a cell, ratios taken pair by pair."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

Name = TypeVar("Name")


def fastest(runs: Mapping[Name, Sequence[float]], among: Iterable[Name]) -> Name | None:
    """Who of `among` has the lowest median; None where nobody of them ran. runs: milliseconds by name."""
    there = [name for name in among if runs.get(name)]
    return min(there, key=lambda name: statistics.median(runs[name]), default=None)


def ratio(theirs: Sequence[float], ours: Sequence[float]) -> float:
    """How many times faster ours is: the median over the rounds that both ran, each round against the same round.

    theirs, ours: milliseconds of each round, in the order of the rounds
    """
    return statistics.median(one / other for one, other in zip(theirs, ours, strict=False))
