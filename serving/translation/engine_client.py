"""The jobs of one request between the event loop and the engine: asked, awaited, let go of."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from lingon.errors import Cancelled, ModelUnloaded, QueueFull, RequestError
from lingon.serving.decoding.job import DecodeJob, Hypothesis, Job, Options, ScoreJob
from lingon.serving.engine.engine import Engine
from lingon.serving.observability.logs import fault
from lingon.serving.runtime.runner import Scored

Answer = TypeVar("Answer")
_calls = itertools.count(1)
logger = logging.getLogger(__name__)
PATIENCE = 0.02  # seconds between two tries to find room for what belongs to an admitted text


@dataclass(frozen=True, eq=False, slots=True)
class Asked(Generic[Answer]):
    """A job and the place where its outcome arrives; errors arrive as values, so that none is ever left unread."""

    job: Job
    outcome: asyncio.Future[Answer | RequestError]

    async def answer(self) -> Answer:
        """The outcome; raises the error that the job ended with."""
        outcome = await self.outcome
        if isinstance(outcome, Cancelled):  # not by us: whoever cancels a request does not read its answers
            raise ModelUnloaded
        if isinstance(outcome, RequestError):
            raise outcome
        return outcome


class Flight:
    """The jobs of one request."""

    def __init__(self, engine: Engine, deadline: float | None, caller: str = "") -> None:
        """deadline: on the clock of `time.monotonic`; caller: who takes turns with other callers."""
        self._engine, self._deadline, self._caller, self._call = engine, deadline, caller, next(_calls)
        self._loop = asyncio.get_running_loop()
        self._bridge = Bridge(self._loop)
        self._open: dict[int, Job] = {}

    def decode(
        self,
        source_ids: tuple[int, ...],
        options: Options,
        prefix: tuple[int, ...],
        on_token: Callable[[int], None] | None,
    ) -> Asked[tuple[Hypothesis, ...]]:
        """A sentence to translate; on_token is called on the loop."""
        outcome, on_done = self._outcome()
        bridge = self._bridge
        on_tokens = (lambda token: bridge.post(on_token, token)) if on_token else None
        job = DecodeJob(
            source_ids=source_ids,
            options=options,
            on_done=on_done,
            on_tokens=on_tokens,
            prefix=prefix,
            deadline=self._deadline,
            caller=self._caller,
            call=self._call,
        )
        return Asked(job, outcome)

    def score(
        self, source_ids: tuple[int, ...], target_ids: tuple[int, ...], *, follows: bool = False
    ) -> Asked[Scored]:
        """A translation to score; follows: of a text that was translated already."""
        outcome, on_done = self._outcome()
        job = ScoreJob(
            source_ids=source_ids,
            target_ids=target_ids,
            on_done=on_done,
            follows=follows,
            deadline=self._deadline,
            caller=self._caller,
            call=self._call,
        )
        return Asked(job, outcome)

    def submit(self, asked: Sequence[Asked[Any]]) -> None:
        """Hand all of these to the engine or none; raises what `Engine.submit` raises."""
        if not asked:
            return
        self._engine.submit([one.job for one in asked])
        for one in asked:
            self._open[one.job.number] = one.job
            one.outcome.add_done_callback(partial(self._close, one.job.number))

    async def submit_patiently(self, asked: Sequence[Asked[Any]]) -> None:
        """Submit these one by one as there is room: the text that they belong to was admitted long ago."""
        for one in asked:
            while True:
                try:
                    self.submit([one])
                    break
                except QueueFull:
                    await asyncio.sleep(PATIENCE)

    def abandon(self) -> None:
        """Let the engine free the places of whatever is not done; harmless where all is."""
        if self._open:
            self._engine.cancel(list(self._open.values()))

    def _close(self, number: int, _: asyncio.Future[Any]) -> None:
        del self._open[number]

    def _outcome(self) -> tuple[asyncio.Future[Any], Callable[[Any], None]]:
        """Where an outcome arrives, and what the engine's thread calls with it."""
        future: asyncio.Future[Any] = self._loop.create_future()
        bridge = self._bridge

        def settle(value: Any) -> None:
            if not future.done():  # whoever waited may have been cancelled
                future.set_result(value)

        return future, lambda value: bridge.post(settle, value)


class Bridge:
    """Calls handlers on the loop with values posted from other threads, in the order they were posted.

    Waking the loop costs a system call; at hundreds of tokens a millisecond one for each would be most of the work.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._posted: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._woken = False

    def post(self, handler: Callable[[Any], None], value: Any) -> None:
        """Have handler(value) called on the loop; from any thread. After the loop has closed nobody listens."""
        self._posted.append((handler, value))
        if not self._woken and not self._loop.is_closed():
            self._woken = True
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._woken = False  # before looking: what is posted from here on wakes the loop again
        while self._posted:
            handler, value = self._posted.popleft()
            try:
                handler(value)
            except Exception as error:
                fault(logger, "what an engine posted failed", error)
