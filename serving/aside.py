"""Work that nobody has to wait for: on a thread that holds up neither the event loop nor the end of the process."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


def aside(work: Callable[[], Result], name: str) -> asyncio.Future[Result]:
    """The outcome of work, which is done on a thread of this name; it goes on though the outcome is not awaited."""
    future: concurrent.futures.Future[Result] = concurrent.futures.Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return asyncio.wrap_future(future)
