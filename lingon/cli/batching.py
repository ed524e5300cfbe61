"""Many lines through a translator: read ahead, several batches on their way at once, results in the lines' order."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

LINGER = 0.005
"""Seconds that a batch waits for its next line: long beside a line of a file, short beside a person who types."""


class ReadAhead(Generic[Item]):
    """An iterator run on a thread of its own; what it raises is raised here, after all that came before."""

    def __init__(self, items: Iterator[Item], room: int) -> None:
        """room: how many items it may be ahead."""
        self._items = items
        self._queue: queue.Queue[tuple[Item] | Exception] = queue.Queue(room)
        threading.Thread(target=self._run, daemon=True).start()  # a read from a terminal cannot be cancelled

    def take(self, timeout: float | None = None) -> Item:
        """The next item; StopIteration after the last, queue.Empty where none comes in timeout seconds."""
        entry = self._queue.get(timeout=timeout)
        if isinstance(entry, Exception):
            self._queue.put(entry)  # the end stays the end
            raise entry
        return entry[0]

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        return self.take()

    def _run(self) -> None:
        try:
            for item in self._items:
                self._queue.put((item,))
        except Exception as error:
            self._queue.put(error)
        else:
            self._queue.put(StopIteration())


def batches(items: Iterator[Item], size: int, whole: bool = False) -> Iterator[list[Item]]:
    """Batches of at most size items; what has been read goes at once, unless batches have to be whole."""
    ahead = ReadAhead(items, room=4 * size)
    batch: list[Item] = []
    while True:
        try:
            batch.append(ahead.take(LINGER if batch and not whole else None))
        except queue.Empty:
            pass
        except StopIteration:
            break
        except Exception:
            if batch:
                yield batch
            raise
        else:
            if len(batch) < size:
                continue
        yield batch
        batch = []
    if batch:
        yield batch


def in_order(items: Iterator[Item], work: Callable[[Item], Result], in_flight: int) -> Generator[Result, None, None]:
    """work(item) of every item, in_flight at once, in order; an error comes after the results before it."""
    pool = ThreadPoolExecutor(in_flight)
    try:
        for future in ReadAhead((pool.submit(work, item) for item in items), room=in_flight):
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)  # what began is waited for: a translator must not be closed under it
