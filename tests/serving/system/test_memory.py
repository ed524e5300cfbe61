"""What was freed goes back to the system."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref

import pytest

from lingon.serving.system.memory import free

RESIDENT = """
import threading
from pathlib import Path
from lingon.serving.system.memory import free, keep_little

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
"""

FREED = """
left = []

def work():
    blocks = [bytes(2000) for _ in range(50_000)]
    left.append(blocks[-1])  # the last one keeps all before it from going back by itself

before = resident()
thread = threading.Thread(target=work)
thread.start()
thread.join()
kept = resident()
free([])
print(kept - before, resident() - before)
"""


def said(code: str, variable: str = "", value: str | None = None) -> str:
    """What a process of its own prints; a variable of its environment has this value, or is not there."""
    environment = {name: each for name, each in os.environ.items() if name != variable}
    if value:
        environment[variable] = value
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def test_memory_that_a_thread_freed_but_for_a_little_is_given_back():
    kept, left = map(int, said(RESIDENT + FREED).split())
    assert kept > 50e6
    assert left < 20e6


def test_what_is_held_in_a_cycle_is_freed_before_memory_is_given_back():
    class Model:
        itself: Model

    model = Model()
    model.itself = model
    gone, things = weakref.ref(model), list[object]([model])
    del model
    gc.disable()
    try:
        free(things)
        assert gone() is None
    finally:
        gc.enable()


ARENAS = """
import ctypes, threading
from lingon.serving.system.memory import keep_little

keep_little()
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


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's own")
@pytest.mark.parametrize(("asked", "arenas"), [(None, 2), ("4", 4)])
def test_threads_share_the_places_they_take_memory_from(asked: str | None, arenas: int) -> None:
    assert said(ARENAS, "MALLOC_ARENA_MAX", asked).count("<heap nr=") == arenas


ROOMS = """
import numpy
keep_little()
before, kept = resident(), []
for _ in range(3):
    rooms = [numpy.zeros(2**20) for _ in range(8)]  # of which nothing is written
    kept.append(bytes(200_000))  # behind them, so that a heap does not end where they were
    del rooms
rooms = [numpy.zeros(2**20) for _ in range(8)]
print(resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's own")
@pytest.mark.parametrize(("asked", "most"), [(None, 4e6), (str(2**25), None)])
def test_rooms_that_nobody_writes_to_take_no_memory_though_others_were_there_before(
    asked: str | None, most: float | None
) -> None:
    held = int(said(RESIDENT + ROOMS, "MALLOC_MMAP_THRESHOLD_", asked))
    if most is None:
        assert held > 32e6  # an environment that says otherwise is heard
    else:
        assert held < most
