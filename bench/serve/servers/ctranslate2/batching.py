"""Dynamic batching for CTranslate2: queued sentences are translated together as soon as a worker is free."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from lingon.errors import QueueFull, SettingsError

Ids = Sequence[int]


class Search(NamedTuple):
    """The search options; all sentences of a batch have the same."""

    beam_size: int
    length_penalty: float


Translate = Callable[[list[Ids], Search], list[list[int]]]
"""Translate sources: returns the best hypothesis of each as token ids. It is called on a thread."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchPolicy:
    """How batches are formed.

    The defaults need the least CPU time on one core (shipped model, int8, 250 clients). CPU time of a sentence on a
    busy machine, with one worker and with two: batches of 8: 1.74 and 1.85 ms; of 16: 1.48 and 1.75; of 32: 1.58 and
    1.89; of 64: 1.79 and 2.2. Similar lengths from 2 batches of queued sentences: 1.61; from 8: 1.48. Waiting 1 or
    3 ms for more sentences saves nothing and makes light loads slower.
    """

    max_batch: int = 16  # sentences
    max_wait: float = 0.0  # seconds that the first sentence of a batch waits for others
    window: int = 8  # batches of queued sentences that are searched for similar lengths
    max_queue: int = 1024  # queued sentences; more are rejected

    def __post_init__(self) -> None:
        for name in ("max_batch", "window", "max_queue"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.max_wait < 0:
            raise SettingsError(f"max_wait must be at least 0, got {self.max_wait}")


def pick(lengths: Sequence[int], policy: BatchPolicy) -> list[int]:
    """Indices of the sentences of the next batch, longest first: the oldest, and those with the most similar length.

    lengths: tokens of the queued sentences, the oldest first. Only the first `window` batches are considered, which
    bounds how long a sentence is overtaken.
    """
    near = range(min(len(lengths), policy.window * policy.max_batch))
    chosen = sorted(near, key=lambda index: (abs(lengths[index] - lengths[0]), index))[: policy.max_batch]
    return sorted(chosen, key=lambda index: -lengths[index])


@dataclass(frozen=True, slots=True)
class QueuedSentence:
    """A sentence in the queue."""

    source: Ids
    search: Search
    since: float  # time.monotonic() when it was enqueued
    answer: asyncio.Future[list[int]]


class Batcher:
    """Collects sentences of many requests into batches for a few workers. Belongs to one event loop."""

    def __init__(self, translate: Translate, workers: int, policy: BatchPolicy) -> None:
        """workers: batches that are translated at the same time, each on its own thread."""
        self._translate, self._policy = translate, policy
        self._queue: list[QueuedSentence] = []
        self._arrived = asyncio.Event()
        self._gathering = asyncio.Lock()
        self._threads = ThreadPoolExecutor(workers)
        self._tasks = [asyncio.create_task(self._work()) for _ in range(workers)]

    async def translate(self, source: Ids, search: Search) -> list[int]:
        """Return the best hypothesis of a source; cancelling removes the sentence from the queue."""
        if len(self._queue) >= self._policy.max_queue:
            raise QueueFull(f"the queue is full: {len(self._queue)} sentences")
        answer: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        self._queue.append(QueuedSentence(source, search, time.monotonic(), answer))
        self._arrived.set()
        return await answer

    async def close(self) -> None:
        """Stop the workers after their current batches."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._threads.shutdown()

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            async with self._gathering:
                batch = await self._gather()
            sources = [queued.source for queued in batch]
            try:
                found = await loop.run_in_executor(self._threads, self._translate, sources, batch[0].search)
            except Exception as error:
                _deliver(batch, [error] * len(batch))
            else:
                _deliver(batch, found)

    async def _gather(self) -> list[QueuedSentence]:
        """Wait for sentences and return the next batch."""
        while not (queued := self._next_search()):
            self._arrived.clear()
            await self._arrived.wait()
        if len(queued) < self._policy.max_batch:
            await asyncio.sleep(max(queued[0].since + self._policy.max_wait - time.monotonic(), 0))
            queued = self._next_search()
        if not queued:  # All of them have been cancelled in the meantime.
            return await self._gather()
        batch = [queued[index] for index in pick([len(each.source) for each in queued], self._policy)]
        taken = {id(each) for each in batch}
        self._queue = [each for each in self._queue if id(each) not in taken]
        return batch

    def _next_search(self) -> list[QueuedSentence]:
        """The queued sentences with the search options of the oldest; cancelled sentences are removed."""
        self._queue = [each for each in self._queue if not each.answer.done()]
        return [each for each in self._queue if each.search == self._queue[0].search]


def _deliver(batch: Sequence[QueuedSentence], outcomes: Sequence[list[int] | Exception]) -> None:
    for queued, outcome in zip(batch, outcomes, strict=True):
        if queued.answer.done():
            continue
        if isinstance(outcome, Exception):
            queued.answer.set_exception(outcome)
        else:
            queued.answer.set_result(outcome)
