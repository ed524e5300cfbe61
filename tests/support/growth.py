"""How the CPU time of work grows with its size."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import NamedTuple

LINEAR = 2.3  # CPU time at twice the size, relative to that at the size: quadratic work has 4
ROUNDS = 8
QUADRATIC = 3.4  # from which on there is no doubt


class Growth(NamedTuple):
    """The CPU seconds of work of some size and of twice the size."""

    once: float
    twice: float

    @property
    def ratio(self) -> float:
        """The growth, relative to the smaller time; a tenth of a millisecond is added to both."""
        return (self.twice + 1e-4) / (self.once + 1e-4)


def growth_of(work: Callable[[int], object], size: int) -> Growth:
    """Return the least growth of the CPU time at a size, at twice and at four times the size, up to a linear one.

    Work that is linear may have steps, as where elements are nested so deep that they split the text; no step is at all
    sizes.
    """
    found = []
    for times in (1, 2, 4):
        found.append(_growth_at(work, times * size))
        if found[-1].ratio <= LINEAR:
            break
    return min(found, key=lambda each: each.ratio)


def _growth_at(work: Callable[[int], object], size: int) -> Growth:
    """Return the least times of several runs, as many as it takes to tell linear from quadratic.

    Runs alternate between the sizes, so that a busy machine slows both alike.
    """
    found = Growth(float("inf"), float("inf"))
    for number in range(ROUNDS):
        once, twice = (_seconds(work, times * size) for times in (1, 2))
        found = Growth(min(found.once, once), min(found.twice, twice))
        if number and (found.ratio <= LINEAR or (number > 2 and found.ratio > QUADRATIC)):
            break
    return found


def _seconds(work: Callable[[int], object], size: int) -> float:
    gc.disable()
    try:
        begin = time.process_time()
        work(size)
        return time.process_time() - begin
    finally:
        gc.enable()
