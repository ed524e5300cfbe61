"""Which core runs what."""

from __future__ import annotations

import os
from dataclasses import dataclass

from lingon.bench.worker_process import Cores


@dataclass(frozen=True, slots=True)
class Cast:
    """Which cores run what; with one core alone they share it."""

    server: Cores
    clients: Cores

    @classmethod
    def choose(cls) -> Cast:
        """The first core for servers, the last for clients."""
        usable = sorted(os.sched_getaffinity(0))
        return cls(frozenset(usable[:1]), frozenset(usable[-1:]))
