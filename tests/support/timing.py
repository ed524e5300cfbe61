"""Time in tests: waiting for a condition, iterations of the event loop, and how CPU time grows with the work."""

from __future__ import annotations

import asyncio
import gc
import inspect
import sys
import time
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple, TypeVar

SECONDS = 60.0  # seconds that a test waits for a condition, if it names no other bound
PAUSE = 0.005  # seconds between two checks of a condition


async def eventually(condition: Callable[[], Any], seconds: float = SECONDS) -> None:
    """Check until the condition holds. The condition may be a coroutine function."""
    end = time.monotonic() + seconds
    while True:
        late = time.monotonic() >= end  # before the check: a machine that stands still in between fails no test
        result = condition()
        if await result if inspect.isawaitable(result) else result:
            return
        assert not late, f"the condition does not hold after {seconds:g} s"
        await asyncio.sleep(PAUSE)


def eventually_blocking(
    condition: Callable[[], Any],
    seconds: float = SECONDS,
    *,
    pause: float = PAUSE,
    ignoring: tuple[type[Exception], ...] = (),
) -> None:
    """Wait like `eventually`, in tests without an event loop. Repeat a check that raises one of `ignoring`."""
    end = time.monotonic() + seconds
    while True:
        late = time.monotonic() >= end
        with suppress(*ignoring):
            if condition():
                return
        assert not late, f"the condition does not hold after {seconds:g} s"
        time.sleep(pause)


@asynccontextmanager
async def counted_iterations() -> AsyncIterator[list[int]]:
    """Yield a list with a 1 for each iteration that the loop has begun within the context."""
    found: list[int] = []

    async def count() -> None:
        while True:
            found.append(1)
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    yield found
    counting.cancel()


Result = TypeVar("Result")


def run_to_end(generator: Generator[None, None, Result]) -> Result:
    """Run a generator to its end, and return its result."""
    while True:
        try:
            next(generator)
        except StopIteration as done:
            return done.value


LINEAR = (
    2.6  # CPU time at twice the size, relative to that at the size: quadratic work has 4, tables beside a cache 2.4
)
ROUNDS = 8
QUADRATIC = 3.4  # from which on there is no doubt
DOUBLINGS = 3

MeasuredWork = Callable[[], object]


class Growth(NamedTuple):
    """The CPU seconds of work of some size and of twice the size."""

    once: float
    twice: float

    @property
    def ratio(self) -> float:
        """The growth, relative to the smaller time, with a tenth of a millisecond added to both."""
        return (self.twice + 1e-4) / (self.once + 1e-4)


def growth_of(
    prepare: Callable[[int], MeasuredWork],
    size: int,
    *,
    worth: float = 0.0,
    most: int = 0,
    refusals: tuple[type[Exception], ...] = (),
) -> Growth:
    """Return the least growth of the CPU time at a size, at twice and at four times the size, up to a linear one.

    Linear work may have steps, for example if nested elements split the text, or if a table no longer fits into a
    cache. No step is at all sizes. Quadratic work grows so at each.

    prepare: returns the work of a size, without the time of its preparation
    worth: CPU seconds below which the size is doubled first. Work of the size `most` that takes less does not grow
    refusals: errors with which work may end. From this size on nothing is measured
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


def _growth_at(single: MeasuredWork, double: MeasuredWork) -> Growth:
    """Return the least times of several runs, as many as it takes to distinguish linear from quadratic.

    Runs alternate between the sizes, so that a busy machine slows both alike.
    """
    found = Growth(float("inf"), float("inf"))
    for number in range(ROUNDS):
        found = Growth(min(found.once, _seconds(single)), min(found.twice, _seconds(double)))
        if number and (found.ratio <= LINEAR or (number > 2 and found.ratio > QUADRATIC)):
            break
    return found


def _seconds(work: MeasuredWork) -> float:
    """Return the CPU time of work, without the measuring of its coverage and the collection of garbage."""
    traced = sys.gettrace()
    sys.settrace(None)
    gc.disable()
    try:
        begin = time.process_time()
        work()
        return time.process_time() - begin
    finally:
        gc.enable()
        sys.settrace(traced)
