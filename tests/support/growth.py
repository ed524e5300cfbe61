"""How the CPU time of work grows with its size."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import NamedTuple

LINEAR = 2.3  # CPU time at twice the size, relative to that at the size: quadratic work has 4
ROUNDS = 8
QUADRATIC = 3.4  # from which on there is no doubt
DOUBLINGS = 3

Work = Callable[[], object]


class Growth(NamedTuple):
    """The CPU seconds of work of some size and of twice the size."""

    once: float
    twice: float

    @property
    def ratio(self) -> float:
        """The growth, relative to the smaller time; a tenth of a millisecond is added to both."""
        return (self.twice + 1e-4) / (self.once + 1e-4)


def growth_of(
    prepare: Callable[[int], Work],
    size: int,
    *,
    worth: float = 0.0,
    most: int = 0,
    refusals: tuple[type[Exception], ...] = (),
) -> Growth:
    """Return the least growth of the CPU time at a size, at twice and at four times the size, up to a linear one.

    Work that is linear may have steps, as where elements are nested so deep that they split the text, or where a table
    no longer fits into a cache; no step is at all sizes. Quadratic work grows so at each.

    prepare: returns the work of a size, without the time of its preparation
    worth: CPU seconds below which the size is doubled first; work of the size `most` that takes less does not grow
    refusals: errors with which work may end; from this size on nothing is measured
    """
    found = [Growth(0.0, 0.0)]
    try:
        while _seconds(prepare(size)) < worth:
            if size >= most:
                return found[0]
            size *= 2
        for doubling in range(DOUBLINGS):
            growth = _growth_at(prepare(size << doubling), prepare(size << doubling + 1))
            found = [*(found if doubling else ()), growth]
            if growth.ratio <= LINEAR:
                break
    except refusals:
        pass
    return min(found, key=lambda each: each.ratio)


def _growth_at(single: Work, double: Work) -> Growth:
    """Return the least times of several runs, as many as it takes to tell linear from quadratic.

    Runs alternate between the sizes, so that a busy machine slows both alike.
    """
    found = Growth(float("inf"), float("inf"))
    for number in range(ROUNDS):
        found = Growth(min(found.once, _seconds(single)), min(found.twice, _seconds(double)))
        if number and (found.ratio <= LINEAR or (number > 2 and found.ratio > QUADRATIC)):
            break
    return found


def _seconds(work: Work) -> float:
    gc.disable()  # it would add time for the objects of others
    try:
        begin = time.process_time()
        work()
        return time.process_time() - begin
    finally:
        gc.enable()
