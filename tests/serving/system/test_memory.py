"""Freed memory goes back to the system."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref

import pytest

from lingon.serving.system.memory import release_memory

RESIDENT = """
import threading
from pathlib import Path
from lingon.serving.system.memory import limit_malloc_caches, release_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
"""

FREED = """
left = []

def work():
    blocks = [bytes(2000) for _ in range(50_000)]
    left.append(blocks[-1])  # As the last block is in use, glibc does not return the blocks before it by itself.

before = resident()
thread = threading.Thread(target=work)
thread.start()
thread.join()
kept = resident()
release_memory([])
print(kept - before, resident() - before)
"""


def output_of(code: str, variable: str = "", value: str | None = None) -> str:
    """What `code` prints in its own process; one environment variable is set to `value`, or removed if None."""
    environment = {name: each for name, each in os.environ.items() if name != variable}
    if value:
        environment[variable] = value
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def test_release_memory_returns_what_a_thread_freed_to_the_system():
    kept, left = map(int, output_of(RESIDENT + FREED).split())
    assert kept > 50e6
    assert left < 20e6


def test_release_memory_frees_objects_in_reference_cycles():
    class Model:
        itself: Model

    model = Model()
    model.itself = model
    reference, objects = weakref.ref(model), list[object]([model])
    del model
    gc.disable()
    try:
        release_memory(objects)
        assert reference() is None
    finally:
        gc.enable()


ARENAS = """
import ctypes, threading
from lingon.serving.system.memory import limit_malloc_caches

limit_malloc_caches()
together = threading.Barrier(8)

def work():
    together.wait()
    ctypes.CDLL(None).malloc(100)
    together.wait()

threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc = ctypes.CDLL(None)
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs glibc")
@pytest.mark.parametrize(("setting", "arenas"), [(None, 2), ("4", 4)])
def test_threads_share_two_arenas_unless_the_environment_sets_another_number(setting: str | None, arenas: int) -> None:
    assert output_of(ARENAS, "MALLOC_ARENA_MAX", setting).count("<heap nr=") == arenas


UNTOUCHED = """
import numpy
limit_malloc_caches()
before, kept = resident(), []
for _ in range(3):
    arrays = [numpy.zeros(2**20) for _ in range(8)]  # never written to
    kept.append(bytes(4_000_000))  # after the arrays, and too large for a hole before them: no heap ends with them
    del arrays
arrays = [numpy.zeros(2**20) for _ in range(8)]
print(resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs glibc")
@pytest.mark.parametrize(("setting", "most"), [(None, 4e6), (str(2**25), None)])
def test_untouched_arrays_take_no_memory_even_after_others_were_freed(setting: str | None, most: float | None) -> None:
    resident = int(output_of(RESIDENT + UNTOUCHED, "MALLOC_MMAP_THRESHOLD_", setting))
    if most is None:
        assert resident > 32e6  # The setting in the environment wins.
    else:
        assert resident < most
