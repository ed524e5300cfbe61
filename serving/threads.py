"""Threads of this process: background work, low priority, and threads that do not preempt each other."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")

LOW_PRIORITY = 10  # nice value, of at most 19; gets about a tenth of a busy core, so that the work still ends


def run_in_thread(work: Callable[[], Result], name: str) -> asyncio.Future[Result]:
    """Run `work` on a new thread of this name. It continues even if the returned future is cancelled."""
    return asyncio.wrap_future(_start(work, name))


def run_at_low_priority(work: Callable[[], Result], enabled: bool = True) -> Result:
    """Run `work` on a new thread of low priority and return its result.

    Threads that `work` starts inherit the low priority permanently, because only root may raise a priority again.
    enabled: False runs `work` on the calling thread at its priority
    """
    if not enabled:
        return work()

    def work_at_low_priority() -> Result:
        _lower_priority()
        return work()

    return _start(work_at_low_priority, "low priority").result()


def _start(work: Callable[[], Result], name: str) -> concurrent.futures.Future[Result]:
    """Start a daemon thread that runs `work`, and return the future of its result."""
    future: concurrent.futures.Future[Result] = concurrent.futures.Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


def _lower_priority() -> None:
    if sys.platform == "linux":  # other systems have one priority for the whole process
        os.setpriority(os.PRIO_PROCESS, 0, max(os.getpriority(os.PRIO_PROCESS, 0), LOW_PRIORITY))


SHORT_TURN = 0.00005  # seconds, of a thread with the lock of Python while others wait for it; the default is 0.005


class ShortTurns:
    """A context in which threads hand over the lock of Python sooner. Several may be open. For the event loop only.

    A background thread that runs Python otherwise delays the event loop by 5 ms each time that it needs the lock, which
    is several times in a call.
    """

    _open = 0
    _before = 0.0

    def __enter__(self) -> None:
        if not ShortTurns._open:
            ShortTurns._before = sys.getswitchinterval()
            sys.setswitchinterval(min(SHORT_TURN, ShortTurns._before))
        ShortTurns._open += 1

    def __exit__(self, *_: object) -> None:
        ShortTurns._open -= 1
        if not ShortTurns._open:
            sys.setswitchinterval(ShortTurns._before)


INTERVAL = 1.0  # seconds between two measurements of other processes
CHECKS = 20  # checks in an interval whether a heavy caller shares an engine
MOST_OF_OTHERS = 0.25  # share of the cores' time that other processes may use while threads have the policy
_USER, _SYSTEM = slice(0, 3), slice(5, 7)  # fields of a line of /proc/stat that count, without idle and stolen time


@contextmanager
def new_threads_never_preempt() -> Iterator[None]:
    """Make threads that start inside the block never preempt other threads, not even on an event.

    They inherit the scheduling policy SCHED_BATCH of Linux and pass it to the threads that they start. Otherwise a
    thread that runs for every event of another one, such as gRPC's threads, preempts it each time.
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
    """The measured share of this process' cores that other processes use."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        """stat: the times of all cores, see proc_stat(5)."""
        self._stat = stat
        self._latest = time.monotonic(), self._others()

    def take(self) -> float:
        """Return the share of the time of these cores since the last call, 0 to 1, or 0 if it cannot be measured."""
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


async def avoid_preemption(
    threads: Callable[[], Iterable[int]],
    contended: Callable[[], bool],
    others: Callable[[], float] | None = None,
    interval: float = INTERVAL,
) -> None:
    """Set the policy of the calling thread and others while other processes use little of the cores, until cancelled.

    threads: returns the ids of the other threads
    contended: returns whether a heavy caller and another one share an engine
    others: returns the share of the cores that others have used since the last call; default: OtherProcesses
    interval: seconds between two measurements
    """
    if sys.platform != "linux":
        return
    others = others or OtherProcesses().take
    try:
        await asyncio.sleep(interval)  # nothing is measured yet, and the threads of gRPC start meanwhile
        while True:
            alone = others() <= MOST_OF_OTHERS
            for _ in range(CHECKS):
                policy = os.SCHED_BATCH if alone and not contended() else os.SCHED_OTHER
                for thread in (0, *threads()):
                    _set_policy(thread, policy)
                await asyncio.sleep(interval / CHECKS)
    finally:
        _set_policy(0, os.SCHED_OTHER)


def _set_policy(thread: int, policy: int) -> None:
    """Change the policy of a thread, unless it is an idle or a real-time one, which an operator has selected."""
    with suppress(OSError):  # the thread has ended, or the system forbids the change
        if {os.sched_getscheduler(thread), policy} == {os.SCHED_OTHER, os.SCHED_BATCH}:
            os.sched_setscheduler(thread, policy, os.sched_param(0))
