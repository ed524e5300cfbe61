"""Background work on daemon threads, which block neither the event loop nor the exit of the process."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

LOW_PRIORITY = 10  # nice value, of at most 19; gets about a tenth of a busy core, so that the work still ends


def run_in_thread(work: Callable[[], Result], name: str) -> asyncio.Future[Result]:
    """Run `work` on a new thread of this name; it goes on even if the returned future is cancelled."""
    return asyncio.wrap_future(_start(work, name))


def run_at_low_priority(work: Callable[[], Result], enabled: bool = True) -> Result:
    """Run `work` on a new thread of low priority and return its result.

    Threads that `work` starts inherit the low priority and keep it: only root may raise a priority again.
    enabled: False runs `work` on the calling thread at its priority
    """
    if not enabled:
        return work()

    def work_at_low_priority() -> Result:
        _lower_priority()
        return work()

    return _start(work_at_low_priority, "low priority").result()


def _start(work: Callable[[], Result], name: str) -> concurrent.futures.Future[Result]:
    """Start a daemon thread that runs `work`; returns the future of its result."""
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
    """Lower the priority of the calling thread."""
    if sys.platform == "linux":  # On other systems the priority is that of the whole process.
        os.setpriority(os.PRIO_PROCESS, 0, max(os.getpriority(os.PRIO_PROCESS, 0), LOW_PRIORITY))
