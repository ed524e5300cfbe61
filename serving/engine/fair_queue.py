"""The order of service between keys that have work queued, by the work that each has received. Pure.

Start-time Fair Queuing (Goyal, Vin, Cheng 1996): every key has a tag that grows with the cost of the work it receives,
the lowest tag is served next, and a new key starts at the clock. The clock also advances with the work that all keys
receive (Demers, Keshav, Shenker: Analysis and Simulation of a Fair Queueing Algorithm, 1989): otherwise an endless
stream of new keys would keep older ones from their second service.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key")
STALE = 2  # times the entries of the keys, which the heap has at most, and SPARE more, before those without a use leave
SPARE = 64


class FairQueue(Generic[Key]):
    """Keys that have work queued, and their tags."""

    def __init__(self) -> None:
        self._clock = 0.0
        self._arrivals = itertools.count()  # decides between equal tags
        self._entries: dict[Key, tuple[float, int, Key]] = {}
        self._heap: list[tuple[float, int, Key]] = []

    def __iter__(self) -> Iterator[Key]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def join(self, key: Key) -> None:
        """Add a key; a key that is here already keeps its tag."""
        if key not in self._entries:
            self._push(key, self._clock)

    def next(self, eligible: Callable[[Key], bool] | None = None) -> Key:
        """Return the key to serve next, among the eligible ones; there must be one."""
        if eligible is not None:
            return min(entry for entry in self._entries.values() if eligible(entry[2]))[2]
        while self._entries.get(self._heap[0][2]) is not self._heap[0]:  # an entry of a key that left or was charged
            heapq.heappop(self._heap)
        return self._heap[0][2]

    def charge(self, key: Key, cost: float) -> None:
        """Count work that a key received; the key stays."""
        tag = self._entries[key][0]
        self._clock = max(tag, self._clock + cost / len(self._entries))
        self._push(key, tag + cost)

    def leave(self, key: Key) -> None:
        """Remove a key."""
        del self._entries[key]
        if not self._entries:
            self._heap.clear()

    def _push(self, key: Key, tag: float) -> None:
        entry = tag, next(self._arrivals), key
        self._entries[key] = entry
        heapq.heappush(self._heap, entry)
        if len(self._heap) > STALE * len(self._entries) + SPARE:  # `next` among eligible keys removes no entry
            self._heap = list(self._entries.values())
            heapq.heapify(self._heap)
