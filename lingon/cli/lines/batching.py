"""Batches many lines: reads ahead, keeps several batches in flight, returns results in the order of the lines."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Given = TypeVar("Given")
Made = TypeVar("Made")

PAUSE = 0.005  # seconds that a batch waits for its next line: lines of a file come faster, typed lines slower


class ReadAhead(Generic[Given]):
    """Runs an iterator on a thread of its own; its exception is raised here, after the items before it."""

    def __init__(self, items: Iterator[Given], capacity: int) -> None:
        """capacity: how many items the thread may be ahead."""
        self._items = items
        self._queue: queue.Queue[tuple[Given] | Exception] = queue.Queue(capacity)
        threading.Thread(target=self._run, daemon=True).start()  # a read from a terminal cannot be cancelled

    def take(self, timeout: float | None = None) -> Given:
        """The next item. Raises StopIteration after the last, queue.Empty if none comes within timeout seconds."""
        entry = self._queue.get(timeout=timeout)
        if isinstance(entry, Exception):
            self._queue.put(entry)  # every later call raises it again
            raise entry
        return entry[0]

    def __iter__(self) -> Iterator[Given]:
        return self

    def __next__(self) -> Given:
        return self.take()

    def _run(self) -> None:
        try:
            for item in self._items:
                self._queue.put((item,))
        except Exception as error:
            self._queue.put(error)
        else:
            self._queue.put(StopIteration())


def batches(items: Iterator[Given], size: int, whole: bool = False) -> Iterator[list[Given]]:
    """Batches of at most size items; a batch does not wait for more lines after PAUSE, unless whole is True."""
    ahead = ReadAhead(items, capacity=4 * size)
    batch: list[Given] = []
    while True:
        try:
            batch.append(ahead.take(PAUSE if batch and not whole else None))
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


def in_order(
    items: Iterator[Given],
    work: Callable[[Given], Made],
    in_flight: int,
    cancel: Callable[[], None] = lambda: None,
) -> Generator[Made, None, None]:
    """work(item) of every item, in_flight at once, in order; an error is raised after the results before it.

    cancel: called at an error and if the generator is closed early, to end the calls that are still running
    """
    pool = ThreadPoolExecutor(in_flight)
    try:
        for future in ReadAhead((pool.submit(work, item) for item in items), capacity=in_flight):
            yield future.result()
    except BaseException:
        cancel()
        raise
    finally:
        pool.shutdown(cancel_futures=True)  # waits for running calls: the translator is closed next
