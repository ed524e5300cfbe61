"""Whose turn it is among those that wait, by what each has had so far. Pure.

Goyal, Vin, Cheng: Start-Time Fair Queuing (1996): everybody has a tag that grows by the cost of what he gets; the
lowest tag is next, and who comes anew begins where the clock stands. The clock also goes on with what all get (as in
Demers, Keshav, Shenker: Analysis and Simulation of a Fair Queueing Algorithm, 1989): where new ones come without end,
those who had something already would else never have their second turn.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key")


class FairQueue(Generic[Key]):
    """Those who wait, and their tags."""

    def __init__(self) -> None:
        self._clock = 0.0
        self._order = itertools.count()  # between equal tags, who came first
        self._places: dict[Key, tuple[float, int, Key]] = {}
        self._heap: list[tuple[float, int, Key]] = []

    def __iter__(self) -> Iterator[Key]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def join(self, key: Key) -> None:
        """Wait; who waits already stays where he is."""
        if key not in self._places:
            self._place(key, self._clock)

    def next(self) -> Key:
        """Whose turn it is; somebody must wait."""
        while self._places.get(self._heap[0][2]) is not self._heap[0]:  # gone, or moved behind
            heapq.heappop(self._heap)
        return self._heap[0][2]

    def charge(self, key: Key, cost: float) -> None:
        """Say that somebody who waits got something, and goes on waiting."""
        tag = self._places[key][0]
        self._clock = max(tag, self._clock + cost / len(self._places))
        self._place(key, tag + cost)

    def leave(self, key: Key) -> None:
        """Wait no more."""
        del self._places[key]
        if not self._places:
            self._heap.clear()

    def _place(self, key: Key, tag: float) -> None:
        place = tag, next(self._order), key
        self._places[key] = place
        heapq.heappush(self._heap, place)
