"""Work beside what is served: on threads that hold up neither the event loop, nor the end, nor other threads."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

NICE = 10  # of 19: about a tenth of a core that others want too, so that the work ends all the same


def run_in_thread(work: Callable[[], Result], name: str) -> asyncio.Future[Result]:
    """The outcome of work, which is done on a thread of this name; it goes on though the outcome is not awaited."""
    return asyncio.wrap_future(_begun(work, name))


def run_at_low_priority(work: Callable[[], Result], wanted: bool = True) -> Result:
    """The outcome of work, done on a thread that leaves the cores to all others of this process.

    Threads that the work starts have its low priority too, and keep it: nobody but root may raise one again.
    wanted: whether there are others; else the work is done here
    """
    if not wanted:
        return work()

    def stepped_back() -> Result:
        _step_back()
        return work()

    return _begun(stepped_back, "run_at_low_priority").result()


def _begun(work: Callable[[], Result], name: str) -> concurrent.futures.Future[Result]:
    future: concurrent.futures.Future[Result] = concurrent.futures.Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


def _step_back() -> None:
    if sys.platform == "linux":  # elsewhere it is the priority of the process
        os.setpriority(os.PRIO_PROCESS, 0, max(os.getpriority(os.PRIO_PROCESS, 0), NICE))
