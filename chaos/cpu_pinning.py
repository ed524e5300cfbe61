"""The cores on which servers and clients run."""

from __future__ import annotations

import os
from dataclasses import dataclass

from lingon.bench.worker_process import Cores


@dataclass(frozen=True, slots=True)
class CpuPinning:
    """The cores of servers and of clients; on a machine with one core they share it."""

    server: Cores
    clients: Cores

    @classmethod
    def choose(cls) -> CpuPinning:
        """The first usable core for servers, the last for clients."""
        usable = sorted(os.sched_getaffinity(0))
        return cls(frozenset(usable[:1]), frozenset(usable[-1:]))
