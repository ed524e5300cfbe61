"""Dynamic batching, as a server in front of CTranslate2 wants it: what waits is translated together, as soon as a
worker is free.
"""

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
    """What sentences of one batch have in common."""

    beam_size: int
    length_penalty: float


Translate = Callable[[list[Ids], Search], list[list[int]]]
"""The best hypothesis of each source, token ids; called on a thread."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchPolicy:
    """How batches are made.

    As it stands it cost least on one core, shipped model, int8, 250 clients. CPU time a sentence, on a busy machine,
    with one worker and with two: batches of 8 1.74 and 1.85 ms, of 16 1.48 and 1.75, of 32 1.58 and 1.89, of 64 1.79
    and 2.2; like lengths out of 2 batches' worth 1.61, out of 8 1.48. Waiting 1 or 3 ms for others saved nothing and
    made light loads slower.
    """

    max_batch: int = 16  # sentences
    max_wait: float = 0.0  # seconds that the first of a batch waits for others
    window: int = 8  # batches' worth of waiting sentences among which like lengths are looked for
    max_queue: int = 1024  # sentences that wait; more are refused

    def __post_init__(self) -> None:
        for name in ("max_batch", "window", "max_queue"):
            if getattr(self, name) < 1:
                raise SettingsError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.max_wait < 0:
            raise SettingsError(f"max_wait must be at least 0, got {self.max_wait}")


def pick(lengths: Sequence[int], policy: BatchPolicy) -> list[int]:
    """Places of the sentences of the next batch, longest first: the oldest, and those most like it in length.

    lengths: tokens of those that wait, the oldest first; only the first `window` batches' worth are looked at, so
    that nobody is overtaken for long
    """
    near = range(min(len(lengths), policy.window * policy.max_batch))
    chosen = sorted(near, key=lambda place: (abs(lengths[place] - lengths[0]), place))[: policy.max_batch]
    return sorted(chosen, key=lambda place: -lengths[place])


@dataclass(frozen=True, slots=True)
class Waiting:
    """A sentence on its way."""

    source: Ids
    search: Search
    since: float  # on the clock of time.monotonic
    answer: asyncio.Future[list[int]]


class Batcher:
    """Sentences from many requests to few workers. Belongs to one event loop."""

    def __init__(self, translate: Translate, workers: int, policy: BatchPolicy) -> None:
        """workers: batches that are translated at a time, each on a thread of its own."""
        self._translate, self._policy = translate, policy
        self._waiting: list[Waiting] = []
        self._arrived = asyncio.Event()
        self._gathering = asyncio.Lock()
        self._threads = ThreadPoolExecutor(workers)
        self._tasks = [asyncio.create_task(self._work()) for _ in range(workers)]

    async def translate(self, source: Ids, search: Search) -> list[int]:
        """The best hypothesis of a source; a caller that is cancelled takes its sentence out of the queue."""
        if len(self._waiting) >= self._policy.max_queue:
            raise QueueFull(f"{len(self._waiting)} sentences wait, as many as may")
        answer: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        self._waiting.append(Waiting(source, search, time.monotonic(), answer))
        self._arrived.set()
        return await answer

    async def close(self) -> None:
        """End the workers once their batches are done."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._threads.shutdown()

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            async with self._gathering:
                batch = await self._gather()
            sources = [waiting.source for waiting in batch]
            try:
                found = await loop.run_in_executor(self._threads, self._translate, sources, batch[0].search)
            except Exception as error:
                _tell(batch, [error] * len(batch))
            else:
                _tell(batch, found)

    async def _gather(self) -> list[Waiting]:
        """The next batch, once there is one."""
        while not (alike := self._alike()):
            self._arrived.clear()
            await self._arrived.wait()
        if len(alike) < self._policy.max_batch:
            await asyncio.sleep(max(alike[0].since + self._policy.max_wait - time.monotonic(), 0))
            alike = self._alike()
        if not alike:  # all that waited have been cancelled meanwhile
            return await self._gather()
        batch = [alike[place] for place in pick([len(waiting.source) for waiting in alike], self._policy)]
        taken = {id(waiting) for waiting in batch}
        self._waiting = [waiting for waiting in self._waiting if id(waiting) not in taken]
        return batch

    def _alike(self) -> list[Waiting]:
        """Those that wait for the search that the oldest waits for; who was cancelled is forgotten."""
        self._waiting = [waiting for waiting in self._waiting if not waiting.answer.done()]
        return [waiting for waiting in self._waiting if waiting.search == self._waiting[0].search]


def _tell(batch: Sequence[Waiting], outcomes: Sequence[list[int] | Exception]) -> None:
    for waiting, outcome in zip(batch, outcomes, strict=True):
        if waiting.answer.done():
            continue
        if isinstance(outcome, Exception):
            waiting.answer.set_exception(outcome)
        else:
            waiting.answer.set_result(outcome)
