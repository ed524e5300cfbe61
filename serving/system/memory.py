"""The memory that the C library keeps after it was freed."""

from __future__ import annotations

import ctypes
import gc
import os

_MALLOC_SETTINGS = {
    "MALLOC_ARENA_MAX": ("glibc.malloc.arena_max", -8, 2),
    "MALLOC_MMAP_THRESHOLD_": ("glibc.malloc.mmap_threshold", -3, 256 * 1024),
}
"""By environment variable: the name of the same setting in GLIBC_TUNABLES, its number for mallopt, and our value."""


def release_memory(objects: list[object]) -> None:
    """Empty the list and return the memory of its objects to the system. The list holds the last references to them.

    Call this on a background thread: both parts take some milliseconds. glibc keeps freed memory for the next
    allocation: a server whose models were swapped, each loaded on its own thread, grew by 85 MB with every model of
    10 MB.
    """
    objects.clear()
    gc.collect()  # The errors of finished calls hold their frames in reference cycles, and the frames hold a model.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # Other C libraries than glibc keep little.
        trim(0)


def limit_malloc_caches() -> None:
    """Configure glibc to return freed memory to the system; settings in the environment win. Call before any thread.

    MALLOC_MMAP_THRESHOLD_: at first, glibc maps large blocks from the system and unmaps them when they are freed.
    Once one is freed, glibc takes all blocks up to that size from a heap. There they leave holes, and the buffers of
    decoder states are filled with zeros instead of being untouched pages.
    MALLOC_ARENA_MAX: by default, threads have their own heaps, up to eight per core.
    In four minutes of mixed traffic with six swaps of the shipped model, a server grew from 304 to 428 MB; with these
    settings it stays at 270 MB.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    for variable, (tunable, parameter, value) in _MALLOC_SETTINGS.items():
        if variable not in os.environ and tunable not in os.environ.get("GLIBC_TUNABLES", ""):
            mallopt(parameter, value)
