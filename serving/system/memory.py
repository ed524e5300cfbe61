"""What the C library keeps for itself of the memory of models that are gone."""

from __future__ import annotations

import ctypes
import gc
import os

_GLIBC = {
    "MALLOC_ARENA_MAX": ("glibc.malloc.arena_max", -8, 2),
    "MALLOC_MMAP_THRESHOLD_": ("glibc.malloc.mmap_threshold", -3, 256 * 1024),
}
"""What is set by which variable: its name among GLIBC_TUNABLES, mallopt's parameter, and our value."""


def free(things: list[object]) -> None:
    """Empty the list, of whose things nobody else may know, and have the C library let go of their memory.

    On a thread that nobody waits for: both take some milliseconds. glibc keeps what was freed for its next user; a
    server whose models are swapped, each loaded on a thread of its own, grew by 85 MB with every model of 10 MB.
    """
    things.clear()
    gc.collect()  # errors that calls ended with hold their frames in cycles, and those a model
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # other C libraries keep little
        trim(0)


def keep_little() -> None:
    """Have the C library give back what is freed; what the environment says of it stays. Before there are threads.

    glibc has large blocks from the system, and they go back to it, until the first is freed: then it takes all up to
    that size out of a heap, where they leave holes, and where rooms for states are written full of zeros rather than
    being pages that nobody has touched. And it gives every thread a heap of its own, eight a core. In four minutes of
    mixed traffic with six swaps of the shipped model a server went from 304 to 428 MB; so it stays at 270.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    for variable, (tunable, parameter, value) in _GLIBC.items():
        if variable not in os.environ and tunable not in os.environ.get("GLIBC_TUNABLES", ""):
            mallopt(parameter, value)
