"""Tasks for the texts of an iterable, and their results in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable
from typing import Generic

from lingon.client.calls.iterables import Result
from lingon.client.calls.parts import Collector, Part, longest_part
from lingon.client.values.options import TranslateOptions


class PartTasks(Generic[Result]):
    """Reads texts in one task, because what an asynchronous generator opens may belong to it, and works on their parts.

    A part is sent when it is full, or by a timer: its first text does not wait for a text that comes much later.
    """

    def __init__(self, work: Callable[[Part], Awaitable[Result]], in_flight: int, options: TranslateOptions) -> None:
        """in_flight: parts that are collected or worked on at once; options: of the call."""
        self._work, self._longest, self._collector = work, longest_part(options), Collector(options)
        self._places, self._running = asyncio.Semaphore(in_flight), set[asyncio.Future[Result]]()
        self._ordered: asyncio.Queue[asyncio.Future[Result] | None] = asyncio.Queue()
        self._timer: asyncio.TimerHandle | None = None

    async def results(self, texts: Iterable[str] | AsyncIterable[str]) -> AsyncGenerator[Result, None]:
        """The results of the parts, in order; an exception is raised after the results before it.

        Closing the generator cancels the work.
        """
        reading = asyncio.create_task(self._read(texts))
        try:
            while (part := await self._ordered.get()) is not None:
                result = await part
                self._running.discard(part)
                self._places.release()
                yield result
        finally:
            reading.cancel()
            await asyncio.wait([reading])
            self._stop_timer()
            for each in self._running:
                each.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)

    async def _read(self, texts: Iterable[str] | AsyncIterable[str]) -> None:
        try:
            async for text in texts if isinstance(texts, AsyncIterable) else _asynchronous(texts):
                if self._collector.empty:
                    await self._places.acquire()
                    self._start_timer()
                self._collector.add(text)
                if self._collector.full:
                    self._send()
            self._collector.end()
        except Exception as error:
            self._send()
            failed: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            self._append(failed)
        else:
            self._send()
            self._ordered.put_nowait(None)

    def _start_timer(self) -> None:
        if self._longest < float("inf"):
            self._timer = asyncio.get_running_loop().call_later(self._longest, self._send)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _send(self) -> None:
        """Begin the work on the texts that are collected, if there are any."""
        self._stop_timer()
        if not self._collector.empty:
            self._append(asyncio.ensure_future(self._work(self._collector.take())))

    def _append(self, part: asyncio.Future[Result]) -> None:
        self._running.add(part)
        self._ordered.put_nowait(part)


async def _asynchronous(texts: Iterable[str]) -> AsyncGenerator[str, None]:
    """Yield texts; other tasks run after each, because reading it may have taken long."""
    for text in texts:
        yield text
        await asyncio.sleep(0)
