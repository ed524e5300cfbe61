"""What was freed goes back to the system."""

from __future__ import annotations

import threading
from pathlib import Path

from serving.memory import free


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_memory_that_a_thread_freed_but_for_a_little_is_given_back():
    left: list[bytes] = []

    def work() -> None:
        blocks = [bytes(2000) for _ in range(50_000)]
        left.append(blocks[-1])  # the last one keeps all before it from going back by itself

    before = resident()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    kept = resident()
    free([])
    assert kept - before > 50e6
    assert resident() - before < 20e6
