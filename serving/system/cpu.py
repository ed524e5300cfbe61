"""How many engines and threads a model gets on the CPU."""

from __future__ import annotations

from lingon.machine import MAX_DEFAULT_ENGINES, usable_cores


def default_engines() -> int:
    """The default number of engines of a model on the CPU: one per core, at most MAX_DEFAULT_ENGINES."""
    return min(usable_cores(), MAX_DEFAULT_ENGINES)


def threads_per_engine(engines: int) -> int:
    """Threads of each engine, such that all engines together use the usable cores; at least 1."""
    return max(usable_cores() // engines, 1)
