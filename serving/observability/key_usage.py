"""The metrics of API keys. Label values are the names in the key file: a key that leaves it leaves the metrics."""

from __future__ import annotations

from collections.abc import Collection

from prometheus_client import Counter, Gauge


class KeyUsage:
    """What each key of the file uses. For use on the event loop only."""

    def __init__(self, requests: Counter, characters: Counter, last_used: Gauge) -> None:
        """requests: with the labels key and code; characters and last_used: with the label key."""
        self._requests, self._characters, self._last_used = requests, characters, last_used
        self._codes: dict[str, set[str]] = {}  # by key: the codes that have a series

    def set_names(self, names: Collection[str]) -> None:
        """Add the series of new keys, and remove those of keys that left the file."""
        for name in self._codes.keys() - set(names):
            for code in self._codes.pop(name):
                self._requests.remove(name, code)
            self._characters.remove(name)
            self._last_used.remove(name)
        for name in names:
            if name not in self._codes:
                self._codes[name] = {"OK"}
                self._requests.labels(name, "OK")
                self._characters.labels(name)
                self._last_used.labels(name)

    def accepted(self, name: str, now: float) -> None:
        """Record that a key was accepted; now: seconds since 1970."""
        if name in self._codes:
            self._last_used.labels(name).set(now)

    def ended(self, name: str, code: str) -> None:
        """Count a call with a key that ended, unless the key left the file meanwhile."""
        if name in self._codes:
            self._codes[name].add(code)
            self._requests.labels(name, code).inc()

    def charged(self, name: str, characters: int) -> None:
        """Count the characters of a request that was charged to a key."""
        if name in self._codes:
            self._characters.labels(name).inc(characters)
