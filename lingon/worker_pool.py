"""Processes that work for this one and end with it, whatever ends it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any


@contextmanager
def worker_pool(
    count: int, begin: Callable[..., object] | None = None, arguments: tuple[Any, ...] = ()
) -> Iterator[ProcessPoolExecutor]:
    """Give a pool of processes that import the program again, as they may be started beside threads.

    begin: called in each process with the arguments, before any work

    They end at once if the block fails, and with this process, even if it is killed. Ctrl-C does not reach them.
    """
    context = multiprocessing.get_context("spawn")
    held, holding = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(count, context, _begin, (held, begin, arguments))
    try:
        yield pool
        pool.shutdown()
    finally:
        holding.close()
        pool.shutdown(cancel_futures=True)


def _begin(held: Connection, begin: Callable[..., object] | None, arguments: tuple[Any, ...]) -> None:
    """Prepare a process of the pool; held: at its end when the block has ended, or its process is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(held,), daemon=True).start()
    if begin:
        begin(*arguments)


def _end_with(held: Connection) -> None:
    with suppress(EOFError, OSError):
        held.recv()
    os._exit(1)
