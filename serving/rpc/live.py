"""TranslateLive: admits a speaker, charges its words, and passes its messages to `lingon.serving.live`."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager

from lingon.errors import InvalidRequest, ModelUnloaded, TooManyCalls, Unsupported
from lingon.serving.auth.callers import caller_of, check_again
from lingon.serving.auth.charges import charge
from lingon.serving.live.listening import LiveLimits
from lingon.serving.live.pasts import Pasts
from lingon.serving.live.rounds import Rounds
from lingon.serving.live.speaker import OpenModel, Speaker
from lingon.serving.models.catalog import Catalog
from lingon.serving.models.inflight import AdmissionGate, was_unloaded
from lingon.serving.models.pool import ModelPool
from lingon.serving.models.registry import ServedModel
from lingon.serving.observability.metrics import LIVE_UPDATES, Metrics
from lingon.serving.observability.tracing import current
from lingon.serving.rpc.calls import Context, deadline_of
from lingon.serving.translation.terms import CallerStores
from lingon.serving.translation.translator import Translator
from lingon.translation.v1 import translation_pb2 as pb

Requests = AsyncIterator[pb.TranslateLiveRequest]
DEFAULTS = LiveLimits()
MOST_OF_CALLER = 200  # speakers
PAST_BYTES = 256 << 20  # bytes


class SpeakerMetrics:
    """Counts what happens to speakers; see `lingon.serving.live.speaker.Observer`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._updates = {kind: metrics.live_updates.labels(kind) for kind in LIVE_UPDATES}

    def updated(self, kind: str, seconds: float | None, replaced: int) -> None:
        self._updates[kind].inc()
        if replaced:
            self._metrics.live_replaced.inc(replaced)
        if seconds is not None:
            self._metrics.live_lag.observe(seconds)

    def agreed(self, words: int) -> None:
        if words:
            self._metrics.live_agreed_words.inc(words)


class LiveCalls:
    """The calls of TranslateLive, available while the gate is open."""

    def __init__(
        self,
        gate: AdmissionGate,
        metrics: Metrics,
        catalog: Callable[[], Catalog[ServedModel]],
        pool: ModelPool,
        limits: LiveLimits = DEFAULTS,
        most_of_caller: int = MOST_OF_CALLER,
        past_bytes: int = PAST_BYTES,
    ) -> None:
        """catalog: returns the models that are served now; pool: loads those of them that are cold.

        limits: of each speaker; most_of_caller: speakers of one caller at once
        past_bytes: bound of the decoder's states that are kept for all speakers
        """
        self._pasts, self._rounds = Pasts(past_bytes), Rounds()
        metrics.live_past_bytes.set_function(lambda: self._pasts.size)
        self._gate, self._catalog, self._pool = gate, catalog, pool
        self._limits, self._most_of_caller = limits, most_of_caller
        self._observer, self._speakers = SpeakerMetrics(metrics), Counter[str]()
        metrics.live_speakers.set_function(self._speakers.total)

    async def translate(
        self, requests: Requests, context: Context, stores: CallerStores
    ) -> AsyncGenerator[pb.TranslateLiveResponse, None]:
        """Yield the answers to a speaker. Raises RequestError."""
        with self._gate.admitted():
            start = await _start_of(requests)
            caller = caller_of(context)
            self._enter(caller)
            try:
                deadline = deadline_of(context)
                open_model = self._opener(start, deadline)
                speaker = Speaker(
                    start,
                    open_model,
                    caller=caller,
                    deadline=deadline,
                    stores=stores,
                    limits=self._limits,
                    observer=self._observer,
                    pasts=self._pasts,
                    rounds=self._rounds,
                )
                with self._rounds.speaking(), self._gate.on_close(speaker.drain):
                    async with aclosing(speaker.talk(_charged(requests, context))) as replies:
                        async for reply in replies:
                            yield reply
            finally:
                self._leave(caller)

    def _enter(self, caller: str) -> None:
        if self._speakers[caller] >= self._most_of_caller:
            raise TooManyCalls(f"a caller may have {self._most_of_caller} speakers at once; try again")
        self._speakers[caller] += 1

    def _leave(self, caller: str) -> None:
        self._speakers[caller] -= 1
        if not self._speakers[caller]:
            del self._speakers[caller]

    def _opener(self, start: pb.LiveStart, deadline: float | None) -> OpenModel:
        wanted = start.model, start.source_language_code, start.target_language_code

        @asynccontextmanager
        async def open_model() -> AsyncIterator[Translator]:
            found = self._catalog().route(*wanted)
            if len(found) > 1:
                labels = "+".join(each.model.label for each in found)
                pair = f"{found[0].source} to {found[-1].target}"
                raise Unsupported(f"TranslateLive needs a model that translates {pair}; {labels} are two")
            model = found[0].model
            current().about(model=model.label)
            try:
                with model.in_flight:
                    if not self._pool.touch([model]):
                        await self._pool.load_all([model], deadline)
                    yield model.translator.for_pair(found[0].source, found[0].target)
            except asyncio.CancelledError as error:
                if not was_unloaded(error):
                    raise
                task = asyncio.current_task()
                assert task is not None, "every call has a task"
                task.uncancel()  # the speaker goes on with the model that is served now
                raise ModelUnloaded from None

        return open_model


async def _start_of(requests: Requests) -> pb.LiveStart:
    """Return the first message of a speaker. Raises InvalidRequest and QuotaExceeded."""
    first = await anext(requests, None)
    if first is None or not first.HasField("start"):
        raise InvalidRequest("message", "the first message must be start")
    if first.start.source_language_code.lower() == "auto":
        raise InvalidRequest(
            "start.source_language_code", "start.source_language_code must name a language, got 'auto'"
        )
    _charge(first)
    return first.start


async def _charged(requests: Requests, context: Context) -> Requests:
    """Yield the messages of a speaker, each after it is charged to the quota of its key.

    Raises QuotaExceeded, and Unauthenticated for a key or a certificate that is not valid any more: a speaker may stay
    for hours.
    """
    async for request in requests:
        if request.HasField("words"):
            check_again(context)
            _charge(request)
        yield request


def _charge(request: pb.TranslateLiveRequest) -> None:
    taken = charge(request)
    if taken is not None:
        taken.settle(None)
