"""The bytes that all open requests or connections hold, and those of one caller."""

from __future__ import annotations

from collections import Counter

from lingon.client.address import block_of
from lingon.gateway.requests.problem import Problem

WITHOUT_KEY = ""  # the caller of all large bodies whose key is not known before they are read
RETRY_SECONDS = 0.5  # after which a body that found no place may be sent again


class BodyBudget:
    """Bounds the memory of bodies, whatever the number of connections. Belongs to the event loop."""

    def __init__(self, most: int, holders: str = "the bodies of requests") -> None:
        """most: bytes of all bodies; those of a caller are half of it at most; holders: of them, for messages."""
        self._most, self._holders, self.held_bytes = most, holders, 0
        self._by_caller = Counter[str]()

    def hold(self, caller: str, size: int) -> None:
        """Count bytes of a caller; raises Problem 503 without a place for them."""
        own, most = self._by_caller[caller] + size, self._most // 2
        if own > most:
            whose = "without a key in header or query" if caller == WITHOUT_KEY else "of this address"
            raise _no_place(f"{self._holders} {whose} may hold {most:,} bytes, and {size:,} more come to {own:,}")
        total = self.held_bytes + size
        if total > self._most:
            raise _no_place(f"{self._holders} may hold {self._most:,} bytes, and {size:,} more come to {total:,}")
        self._by_caller[caller], self.held_bytes = own, total

    def release(self, caller: str, size: int) -> None:
        """Free bytes of a caller."""
        self._by_caller[caller] -= size
        self.held_bytes -= size
        if not self._by_caller[caller]:
            del self._by_caller[caller]


def _no_place(message: str) -> Problem:
    return Problem(503, f"{message}; try again", reason="TOO_MANY_CALLS", retry_after=RETRY_SECONDS)


class HeldBody:
    """What one body holds of a budget, until the last of its users has released it."""

    def __init__(self, budget: BodyBudget, address: str) -> None:
        self._budget, self._caller, self._size, self._users = budget, block_of(address), 0, 1

    def add(self, size: int) -> None:
        """Count bytes that arrived; raises Problem 503."""
        self._budget.hold(self._caller, size)
        self._size += size

    def count_without_key(self) -> None:
        """Count the body with the others whose key is not known before they are read; raises Problem 503."""
        self._budget.hold(WITHOUT_KEY, self._size)
        self._budget.release(self._caller, self._size)
        self._caller = WITHOUT_KEY

    def keep(self) -> None:
        """Add a user: work on the body goes on after the reply."""
        self._users += 1

    def release(self) -> None:
        """Remove a user."""
        self._users -= 1
        if not self._users:
            self._budget.release(self._caller, self._size)
