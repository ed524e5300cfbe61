"""Translation in this process: the engine of a server, without its ports."""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import sys
import threading
import time
from asyncio import AbstractEventLoop
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, TypeVar

from lingon.bundle.store import find_model, open_bundle
from lingon.client.options import SecondServer
from lingon.errors import Cancelled, Draining, EngineFault, EngineLost, LingonError, RequestError
from lingon.files import TranslatedLines
from lingon.serving.caller_loops import CallerLoops
from lingon.serving.engine.engine import Engine
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.event_loop import TimeSlice
from lingon.serving.live.speaker import Speaker
from lingon.serving.models.catalog import Catalog, Entry
from lingon.serving.models.loading import LoadOptions, load_translator
from lingon.serving.observability.logs import log_handler
from lingon.serving.runtime.device import CPU
from lingon.serving.second.second_translator import SecondTranslator
from lingon.serving.translation.cache import TranslationCache
from lingon.serving.translation.detection import Detector
from lingon.serving.translation.options import WHOLE
from lingon.serving.translation.translator import Translator, stream_message
from lingon.text import normalise
from lingon.translation.v1 import translation_pb2 as pb

Result = TypeVar("Result")
Progress = Callable[[int, int], object]
Answer = pb.TranslateStreamResponse | pb.TranslateLiveResponse
Messages = AsyncGenerator[Any, None]
"""The messages of a stream, all of one kind of Answer."""
LIMITS = EngineLimits(max_queue_texts=1_000_000, max_queue_tokens=100_000_000, max_attention_weights=100_000_000)
"""The queue is practically unbounded, because there is only one caller."""

CLOSED = "the model was closed during this call"
IN_FLIGHT = 256  # lines in translation at once; several full batches, so that free rows are filled at once


@contextmanager
def _warnings_with_values() -> Iterator[None]:
    """Print warnings with their values, such as the model and the reason, if a program configures no logging.

    Python's handler of last resort prints only the message.
    """
    package = logging.getLogger("lingon")
    if package.hasHandlers():
        yield
        return
    handler = log_handler("console", sys.stderr)
    package.addHandler(handler)
    try:
        yield
    finally:
        package.removeHandler(handler)


class LocalTranslator:
    """A translator with a bundle and the messages of the service. Safe for use from several threads.

    A call that blocks its thread runs on it: its texts are planned there, and decoded too while no other thread has
    work for the engine. Streams, calls that others wait for, and all calls of a model on a card run on an event loop of
    their own thread. The results are the same.
    """

    def __init__(
        self,
        model: Path | str,
        *,
        device: str = "auto",
        precision: str | None = None,
        engines: int | None = None,
        threads: int | None = None,
        cache: int | None = None,
        second: SecondTranslator | SecondServer | None = None,
    ) -> None:
        """Load and warm up.

        device, precision, engines, threads: see lingon.serving.models.loading.LoadOptions
        cache: MiB of results that are kept, see TranslationCache; None keeps none
        second: is asked about doubtful sentences, on the event loop of this translator, which closes it; None asks none
        """
        if isinstance(second, SecondServer):
            second = SecondTranslator.of(second)
        kept = None if cache is None else TranslationCache(cache)
        options = LoadOptions(
            device=device,
            precision=precision,
            engines=engines,
            threads=threads,
            limits=LIMITS,
            cache=kept,
            second=second,
        )
        with _warnings_with_values():
            self._translator = load_translator(open_bundle(find_model(model)), options)
        self._catalog = Catalog([self._entry()])
        here = self._translator.provider == CPU and second is None  # whose connections belong to one event loop
        self._on_callers = CallerLoops(CLOSED) if here else None
        self._restarting, self._beginning, self._closed = threading.Lock(), threading.Lock(), False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="local translator", daemon=True)
        self._thread.start()

    def __enter__(self) -> LocalTranslator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Cancel all running calls and end the threads. Later calls raise Cancelled."""
        with self._beginning:
            self._closed = True
        if self._on_callers is not None:
            self._translator.engine.scheduler.recall()
            self._on_callers.close()  # first, so that calls end as cancelled
        asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result()
        if self._translator.second is not None:
            asyncio.run_coroutine_threadsafe(self._translator.second.close(), self._loop).result()
        self._translator.engine.stop(0)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def translate(self, request: pb.TranslateRequest, timeout: float | None = None) -> pb.TranslateResponse:
        """Call the service's Translate. Raises the RequestError with which a server would end the call.

        timeout: seconds until Expired is raised
        """
        return self.call("Translate", request, timeout)  # type: ignore[no-any-return]

    def translate_stream(self, request: pb.TranslateStreamRequest, timeout: float | None = None) -> LocalStream:
        """Call the service's TranslateStream; see `translate`."""
        return LocalStream(self._messages(request, _deadline(timeout)), self._loop)

    def translate_stream_async(
        self, request: pb.TranslateStreamRequest, timeout: float | None = None
    ) -> AsyncLocalStream:
        """Call `translate_stream` for the event loop of the caller."""
        return AsyncLocalStream(self._messages(request, _deadline(timeout)), self._loop)

    def talk(self, start: pb.TranslateLiveRequest) -> LocalTalk:
        """Begin the service's TranslateLive with its first message; see lingon.client.live.Talk."""
        spoken = _Spoken(self._loop)
        return LocalTalk(spoken, LocalStream(self._live(start, spoken), self._loop))

    def talk_async(self, start: pb.TranslateLiveRequest) -> AsyncLocalTalk:
        """Call `talk` for the event loop of the caller; see lingon.client.live.AsyncTalk."""
        spoken = _Spoken(self._loop)
        return AsyncLocalTalk(spoken, AsyncLocalStream(self._live(start, spoken), self._loop))

    def score(self, request: pb.ScoreRequest, timeout: float | None = None) -> pb.ScoreResponse:
        """Call the service's Score; see `translate`."""
        return self._wait(self._score(request, _deadline(timeout)))

    def call(self, method: str, request: Any, timeout: float | None = None) -> Any:
        """Call a unary method of the service, such as Translate, and return its reply; see `translate`."""
        if method == "Translate" and (reply := self._one_sentence(request, timeout)) is not None:
            return reply
        return self._wait(self._work(method, request, timeout))

    def begin(self, method: str, request: Any, timeout: float | None = None) -> Future[Any]:
        """Begin a unary method of the service, such as Translate. Cancelling the future ends the work.

        The result is the reply, or the RequestError with which a server would end the call. The future is also
        cancelled if the model is closed during the call.
        """
        return self._on_loop(self._work(method, request, timeout))

    def _work(self, method: str, request: Any, timeout: float | None) -> Coroutine[Any, Any, Any]:
        work: dict[str, Callable[[Any, float | None], Coroutine[Any, Any, Any]]] = {
            "Translate": self._translate,
            "Score": self._score,
            "ListModels": self._list_models,
            "DetectLanguages": self._detect_languages,
        }
        return work[method](request, _deadline(timeout))

    def translate_lines(
        self,
        lines: list[str],
        options: pb.DecodingOptions,
        on_progress: Progress = lambda done, of: None,
        *,
        source_language: str = "",
        target_language: str = "",
    ) -> TranslatedLines:
        """Return the best translation of each line, as one line. It is empty for a line without text.

        A line is translated whole, even if it has several sentences, because a line of a test set is one segment.

        on_progress: called after each line, on any thread, with the number of lines done and of all
        source_language, target_language: empty for the model's

        Raises RequestError if the model does not translate between these languages, or has several and needs them.
        """
        found = self._catalog.find("", source_language, target_language)
        translator = found.model.for_pair(found.source, found.target)
        return TranslatedLines(self._wait(_translate_lines(translator, lines, options, on_progress)), found.target)

    def _one_sentence(self, request: pb.TranslateRequest, timeout: float | None) -> pb.TranslateResponse | None:
        """Translate one plain sentence on the calling thread, without an event loop. Returns None if it takes more."""
        if self._on_callers is None or self._closed:
            return None
        engine, translator = self._engine(), self._find(request)
        if (sentence := translator.one_sentence(request)) is None:
            return None
        outcomes: SimpleQueue[Any] = SimpleQueue()
        job = sentence.job(_deadline(timeout), outcomes.put)
        try:
            outcome = engine.run_here(job, outcomes)
        except Draining:
            raise Cancelled(CLOSED) from None
        if isinstance(outcome, Cancelled):
            raise Cancelled(CLOSED)
        if isinstance(outcome, RequestError) and not isinstance(outcome, EngineFault):
            raise outcome
        result = sentence.result(job, outcome)
        return None if result is None else translator.reply_to(sentence, result)

    async def _translate(self, request: pb.TranslateRequest, deadline: float | None) -> pb.TranslateResponse:
        return await self._find(request).translate(request, deadline)

    async def _score(self, request: pb.ScoreRequest, deadline: float | None) -> pb.ScoreResponse:
        return await self._find(request).score(request, deadline)

    async def _list_models(self, request: pb.ListModelsRequest, deadline: float | None) -> pb.ListModelsResponse:
        return pb.ListModelsResponse(models=[self._translator.describe()])

    async def _detect_languages(
        self, request: pb.DetectLanguagesRequest, deadline: float | None
    ) -> pb.DetectLanguagesResponse:
        """Detect among the languages of the bundle."""
        return await self._detector.detect_all(request, TimeSlice())

    async def _messages(self, request: pb.TranslateStreamRequest, deadline: float | None) -> Messages:
        translator = self._find(request)
        options = translator.resolve(request.options, request.text)
        terms = await translator.terms(request, options)
        memories = await translator.memories(request, options)
        yield pb.TranslateStreamResponse(start=translator.start(options))
        async with aclosing(translator.stream(request, options, deadline, terms=terms, memories=memories)) as events:
            async for event in events:
                yield stream_message(event)

    async def _live(self, start: pb.TranslateLiveRequest, spoken: _Spoken) -> Messages:
        """Yield the answers to a speaker."""
        wanted = start.start.model, start.start.source_language_code, start.start.target_language_code

        @asynccontextmanager
        async def open_model() -> AsyncIterator[Translator]:
            if not self._engine().healthy:  # nothing replaces an engine that died
                raise EngineLost("the engine failed; load the model again")
            found = self._catalog.find(*wanted)
            yield found.model.for_pair(found.source, found.target)

        async with aclosing(Speaker(start.start, open_model).talk(spoken.messages())) as replies:
            async for reply in replies:
                yield reply

    def _find(self, request: pb.TranslateRequest | pb.TranslateStreamRequest | pb.ScoreRequest) -> Translator:
        """Return the translator. Raises UnknownModel if the request is for another model or other languages."""
        found = self._catalog.find(request.model, request.source_language_code, request.target_language_code)
        return found.model.for_pair(found.source, found.target)

    @functools.cached_property
    def _detector(self) -> Detector:
        return Detector(self._translator.profiles, self._catalog.language_codes())

    def _entry(self) -> Entry[Translator]:
        return Entry.of(self._translator.manifest, self._translator)

    def _wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        if self._on_callers is not None and asyncio._get_running_loop() is None:
            return self._run_here(work, self._on_callers)
        try:
            return self._on_loop(work).result()
        except CancelledError:
            raise Cancelled(CLOSED) from None

    def _on_loop(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Run a call on the event loop of this translator. The lock lets no call begin on a loop that closes."""
        with self._beginning:
            if self._closed:
                work.close()
                raise Cancelled(CLOSED)
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _run_here(self, work: Coroutine[Any, Any, Result], loops: CallerLoops) -> Result:
        """Run a call on the calling thread, which takes the turns of the engine if it has no other work."""
        engine = self._engine()
        engine.scheduler.volunteer()
        try:
            return loops.run(work, engine.take_turns)
        finally:
            engine.scheduler.retire()

    def _engine(self) -> Engine:
        """Return the engine, or a new one if a signal handler interrupted a turn of it."""
        if self._translator.engine.interrupted:
            with self._restarting:
                if self._translator.engine.interrupted:
                    self._translator.restart()
        return self._translator.engine


class LocalStream(Iterator[Any]):
    """The messages of a stream, for a thread other than the event loop's.

    It ends with the RequestError with which a server would end the call, if there is one.
    """

    def __init__(self, messages: Messages, loop: AbstractEventLoop) -> None:
        self._arrived: SimpleQueue[Answer | BaseException] = SimpleQueue()
        self._end: BaseException | None = None
        self._reading = _deliver(messages, loop, self._arrived.put)

    def __next__(self) -> Any:
        found = self._end or self._arrived.get()
        if isinstance(found, BaseException):
            self._end = found
            raise found
        return found

    def cancel(self) -> None:
        """End the stream, and the work on it."""
        self._reading.cancel()


class AsyncLocalStream(AsyncIterator[Any]):
    """A LocalStream for another event loop, on which it is created."""

    def __init__(self, messages: Messages, loop: AbstractEventLoop) -> None:
        self._arrived: asyncio.Queue[Answer | BaseException] = asyncio.Queue()
        self._end: BaseException | None = None
        self._own_loop = asyncio.get_running_loop()
        self._reading = _deliver(messages, loop, self._pass_on)

    async def __anext__(self) -> Any:
        found = self._end or await self._arrived.get()
        if isinstance(found, BaseException):
            self._end = found
            raise StopAsyncIteration if isinstance(found, StopIteration) else found
        return found

    def cancel(self) -> None:
        """End the stream, and the work on it."""
        self._reading.cancel()

    def _pass_on(self, arrived: Answer | BaseException) -> None:
        with suppress(RuntimeError):  # the loop is closed, so that nothing reads the stream any more
            self._own_loop.call_soon_threadsafe(self._arrived.put_nowait, arrived)


class _Spoken:
    """The messages of a speaker on their way to the loop of the translator."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop, self._arrived = loop, asyncio.Queue[pb.TranslateLiveRequest]()

    def put(self, message: pb.TranslateLiveRequest) -> None:
        """Add a message, from any thread. Raises Cancelled if the translator is closed."""
        try:
            self._loop.call_soon_threadsafe(self._arrived.put_nowait, message)
        except RuntimeError:
            raise Cancelled(CLOSED) from None

    async def messages(self) -> AsyncGenerator[pb.TranslateLiveRequest, None]:
        """Yield the messages, up to the end of the speaker."""
        while True:
            message = await self._arrived.get()
            yield message
            if message.HasField("end"):
                return


class LocalTalk:
    """See lingon.client.live.Talk. Its errors are those with which a server would end the call."""

    def __init__(self, spoken: _Spoken, replies: LocalStream) -> None:
        self.write, self._replies, self.cancel = spoken.put, replies, replies.cancel

    def read(self) -> pb.TranslateLiveResponse | None:
        """Return the next message, or None after the last one."""
        return next(self._replies, None)


class AsyncLocalTalk:
    """`LocalTalk` for the event loop of the caller."""

    def __init__(self, spoken: _Spoken, replies: AsyncLocalStream) -> None:
        self._spoken, self._replies, self.cancel = spoken, replies, replies.cancel

    async def write(self, message: pb.TranslateLiveRequest) -> None:
        """See LocalTalk."""
        self._spoken.put(message)

    async def read(self) -> pb.TranslateLiveResponse | None:
        """See LocalTalk."""
        return await anext(self._replies, None)


def _deliver(
    messages: Messages, loop: AbstractEventLoop, put: Callable[[Answer | BaseException], object]
) -> Future[None]:
    """Read messages on a loop. `put` gets each, and then an error or StopIteration. Cancelling the future ends it."""

    async def read() -> None:
        async with aclosing(messages):
            async for message in messages:
                put(message)

    def ended(reading: Future[None]) -> None:
        put(Cancelled(CLOSED) if reading.cancelled() else reading.exception() or StopIteration())

    reading = asyncio.run_coroutine_threadsafe(read(), loop)
    reading.add_done_callback(ended)
    return reading


def _deadline(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


def translate_lines(
    bundle: Path,
    lines: list[str],
    *,
    beam_size: int,
    length_penalty: float,
    device: str = "auto",
    precision: str | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    on_progress: Progress = lambda done, of: None,
) -> TranslatedLines:
    """Return the best translation of each line by the serving engine. A line that is too long is translated in parts.

    on_progress: see `LocalTranslator.translate_lines`
    """
    options = pb.DecodingOptions(
        beam_size=beam_size, num_hypotheses=1, length_penalty=length_penalty, long_text=pb.LONG_TEXT_POLICY_SPLIT
    )
    with LocalTranslator(bundle, device=device, precision=precision) as translator:
        languages = {"source_language": source_language or "", "target_language": target_language or ""}
        return translator.translate_lines(lines, options, on_progress, **languages)


async def _translate_lines(
    translator: Translator, lines: list[str], options: pb.DecodingOptions, on_progress: Progress
) -> list[str]:
    translations = [""] * len(lines)
    waiting, done = iter(enumerate(lines)), itertools.count(1)

    async def work() -> None:
        for index, line in waiting:
            translations[index] = await _translate_line(translator, index + 1, line, options)
            on_progress(next(done), len(lines))

    workers = (work() for _ in range(min(IN_FLIGHT, len(lines))))
    await asyncio.gather(*workers)  # raises the first error; close() cancels the others
    return translations


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _translate_line(translator: Translator, number: int, line: str, options: pb.DecodingOptions) -> str:
    if not normalise(line):
        return ""
    response = await translator.translate(pb.TranslateRequest(texts=[line], options=options, text=WHOLE))
    (result,) = response.results
    if result.status.code:
        message = result.status.message
        own = message.removeprefix("texts[0] ")  # the field of the line in its request
        raise LingonError(f"line {number}: {message}" if own == message else f"line {number} {own}")
    return " ".join(result.hypotheses[0].text.split())
