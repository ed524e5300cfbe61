"""Which threads compute now, so that one that is alone may use every core and several keep to their own."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

Engine = TypeVar("Engine")

MOMENT = 0.02  # seconds: who computed so lately is between two steps


class Company:
    """Threads that share cores. Times are on `clock`, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[int, float] = {}  # by thread: when it last stopped computing; it may be in the future

    @contextmanager
    def computing(self) -> Iterator[bool]:
        """While this thread computes; tells whether it is alone in that."""
        me, since = threading.get_ident(), self._clock() - MOMENT
        self._until[me] = math.inf
        try:
            yield all(until < since for who, until in self._until.copy().items() if who != me)
        finally:
            self._until[me] = self._clock()


class Shared(Generic[Engine]):
    """One thing made twice: for a thread that has all cores, and for several that have a share of them each.

    Both answer alike, to the last bit.
    """

    def __init__(self, alone: Engine, apart: Engine, company: Company) -> None:
        self.alone, self.apart, self._company = alone, apart, company

    @contextmanager
    def at_hand(self) -> Iterator[Engine]:
        """The one to use now."""
        with self._company.computing() as alone:
            yield self.alone if alone else self.apart
