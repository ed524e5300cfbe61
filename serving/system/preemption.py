"""Threads that do not take a core from each other, while this process has its cores to itself.

A thread that wakes up takes the core of another one as soon as it has had less time. With an event loop and a worker on
one core, each wakes up for what the other one has just done: the worker encodes a sentence alone that others would have
joined a moment later, the loop sends one reply at a time, and each finds the caches filled by the other one. Threads of
the policy SCHED_BATCH of Linux wait until the other one sleeps or has used up its slice. On one core, with 64 clients
that wait, a server of the included model then answers 10 % more requests, and near saturation in a fraction of the
time.

Such a thread also waits for other processes that compute on its core, at each wake-up up to 3 ms. Beside a process that
keeps all cores busy, a single client would wait twice as long. So the loop and the workers have the policy only while
others use little, and not while a heavy caller and another one share an engine: the short requests of the other one
would wait for the long runs of the engine at each step.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

INTERVAL = 1.0  # seconds between two measurements of other processes
LOOKS = 20  # in an interval, at whether a heavy caller shares an engine
MOST_OF_OTHERS = 0.25  # of the time of the cores, that other processes compute while threads have the policy
_USER, _SYSTEM = slice(0, 3), slice(5, 7)  # the numbers of a line of /proc/stat that count: nor idle, nor stolen time


@contextmanager
def new_threads_never_preempt() -> Iterator[None]:
    """Have threads that start inside the block wait for a core, also when they wake up, until others give it up.

    They inherit the scheduling policy SCHED_BATCH of Linux, and so do the threads that they start. A thread that wakes
    up for every event of another one, as those of gRPC do, otherwise takes the core from it each time.
    """
    if sys.platform != "linux":
        yield
        return
    before = os.sched_getscheduler(0)
    _set_policy(0, os.SCHED_BATCH)
    try:
        yield
    finally:
        _set_policy(0, before)


class OtherProcesses:
    """Measures how much of the cores of this process other processes use."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        """stat: the times of all cores, see proc_stat(5)."""
        self._stat = stat
        self._latest = time.monotonic(), self._others()

    def take(self) -> float:
        """Return the share of the time of these cores since the last call, 0 to 1; 0 if the system does not tell."""
        (before, others), self._latest = self._latest, (time.monotonic(), self._others())
        elapsed = (self._latest[0] - before) * len(os.sched_getaffinity(0))
        return min(max((self._latest[1] - others) / elapsed, 0.0), 1.0) if elapsed > 0 else 0.0

    def _others(self) -> float:
        """Return the seconds that other processes have computed on the cores of this one."""
        names = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        with suppress(OSError, ValueError):
            lines = [line.split() for line in self._stat.read_text("ascii").splitlines() if line.startswith("cpu")]
            ticks = [list(map(int, numbers)) for name, *numbers in lines if name in names]
            busy = sum(sum(each[_USER]) + sum(each[_SYSTEM]) for each in ticks)
            return busy / os.sysconf("SC_CLK_TCK") - time.process_time()
        return 0.0


async def spare_each_other(
    threads: Callable[[], Iterable[int]],
    contended: Callable[[], bool],
    others: Callable[[], float] | None = None,
    interval: float = INTERVAL,
) -> None:
    """Give the calling thread and others the policy while other processes use little of the cores, until cancelled.

    threads: returns the ids of the other threads
    contended: returns whether a heavy caller and another one share an engine
    others: returns the share of the cores that others have used since the last call; default: OtherProcesses
    interval: seconds between two measurements
    """
    if sys.platform != "linux":
        return
    others = others or OtherProcesses().take
    try:
        await asyncio.sleep(interval)  # there is nothing to go by yet; the threads of gRPC start meanwhile
        while True:
            alone = others() <= MOST_OF_OTHERS
            for _ in range(LOOKS):
                policy = os.SCHED_BATCH if alone and not contended() else os.SCHED_OTHER
                for thread in (0, *threads()):
                    _set_policy(thread, policy)
                await asyncio.sleep(interval / LOOKS)
    finally:
        _set_policy(0, os.SCHED_OTHER)


def _set_policy(thread: int, policy: int) -> None:
    """Change the policy of a thread, unless it is an idle or a real-time one, which an operator has chosen."""
    with suppress(OSError):  # it has ended, or the system forbids it
        if {os.sched_getscheduler(thread), policy} == {os.SCHED_OTHER, os.SCHED_BATCH}:
            os.sched_setscheduler(thread, policy, os.sched_param(0))
