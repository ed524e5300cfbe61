"""The calls that gRPC received by its own statistics (channelz), which also has those that no handler ever saw.

gRPC itself ends calls that are not of its protocol, and calls whose caller leaves before they are taken.
No handler and no interceptor sees them. This uses internal names of grpc, which the package grpcio-channelz uses too.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

from grpc._cython import cygrpc  # type: ignore[attr-defined]
from prometheus_client import Counter


class ReceivedCalls:
    """Counts the calls of the gRPC servers that are made after this object, until `watch`."""

    def __init__(self, counter: Counter) -> None:
        self._counter, self._lock = counter, threading.Lock()
        self._earlier = {number for number, _ in _servers()}
        self._counts: dict[int, int] = {}  # by number of the server

    def watch(self) -> None:
        """Count the calls of the servers that were made since then."""
        self._counts = {number: 0 for number, _ in _servers() if number not in self._earlier}

    def update(self) -> None:
        """Add the calls since the last update to the counter; safe from any thread."""
        with self._lock:
            for number, calls in _servers():
                if number in self._counts:
                    self._counter.inc(calls - self._counts[number])
                    self._counts[number] = calls


def _servers() -> Iterator[tuple[int, int]]:
    """Yield the number of each gRPC server in this process, and the calls that it received so far."""
    start = 0
    while True:
        page: dict[str, Any] = json.loads(cygrpc.channelz_get_servers(start))
        for server in page.get("server", ()):
            start = int(server["ref"]["serverId"]) + 1
            yield start - 1, int(server["data"].get("callsStarted", 0))
        if page.get("end", True):
            return
