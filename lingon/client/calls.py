"""The calls of the clients and of the models in this process, blocking and for asyncio, whatever answers them.

Texts of an iterable are sent in parts, several at once. Their results come in order, and all calls end together.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, aclosing, closing, contextmanager
from types import TracebackType
from typing import Any, Generic, NamedTuple, NoReturn, Protocol, Self, TypeVar, Unpack, overload

from google.rpc import code_pb2

from lingon.client.live import AsyncLiveCall, LiveCall
from lingon.client.options import LiveOptions, ScoreOptions, TranslateOptions
from lingon.client.protocol import ClientProtocol, StreamPart, StreamReader
from lingon.client.results import DetectedLanguage, DocumentResult, ModelInfo, ScoreResult, StreamEvent, TextResult
from lingon.client.steps import Exchange, Send, Sleep, drive, drive_async
from lingon.errors import ServerError, SettingsError

TEXTS = 64  # of a part
IN_FLIGHT = 4  # parts; enough to keep the rows of an engine in use
SLOW = 0.05  # seconds after which a part is sent although it is not full: its texts come slowly


class CallPart(NamedTuple):
    """Texts of an iterable; first: the index of the first one in it; options: those of the call, for these texts."""

    first: int
    texts: list[str]
    options: TranslateOptions


class TextCollector:
    """A collection of texts, each with its target prefix if there is one for each, until they are taken as a part."""

    def __init__(self, options: TranslateOptions) -> None:
        self._first, self._texts, self._begin, self._options = 0, list[str](), 0.0, options
        prefix = options.get("target_prefix")
        self._left: Iterator[Any] | None = None if prefix is None or isinstance(prefix, str) else iter(prefix)
        self._prefixes = list[str]()

    def add(self, text: Any) -> None:
        """Add a text. Raises SettingsError, which names its index, if it is no str, or if there is no prefix for it."""
        place = self._first + len(self._texts)
        if not isinstance(text, str):
            raise SettingsError(f"texts[{place}] must be a str, got {type(text).__name__}")
        if self._left is not None:
            prefix = next(self._left, None)
            if not isinstance(prefix, str):
                found = "there is no more" if prefix is None else f"got {type(prefix).__name__}"
                raise SettingsError(f"target_prefix must have a str for texts[{place}], {found}")
            self._prefixes.append(prefix)
        if not self._texts:
            self._begin = time.monotonic()
        self._texts.append(text)

    def end(self) -> None:
        """Raise SettingsError if there are more prefixes than texts."""
        if self._left is not None and next(self._left, None) is not None:
            raise SettingsError(
                f"target_prefix has more than {self._first + len(self._texts)} prefixes, one for each text"
            )

    @property
    def empty(self) -> bool:
        """Whether there is no text."""
        return not self._texts

    @property
    def full(self) -> bool:
        """Whether the texts are as many as a part has."""
        return len(self._texts) == TEXTS

    @property
    def seconds(self) -> float:
        """Seconds since the first text was added."""
        return time.monotonic() - self._begin

    def take(self) -> CallPart:
        """Return the texts, and begin a new part."""
        options = self._options.copy()
        if self._left is not None:
            options["target_prefix"] = self._prefixes
        part = CallPart(self._first, self._texts, options)
        self._first, self._texts, self._prefixes = self._first + len(part.texts), [], []
        return part


def parts_of(texts: Iterable[str], options: TranslateOptions) -> Iterator[CallPart]:
    """Yield the parts of texts. An exception of the iterable is raised after those before it.

    After each text it is looked at whether a part that is not full ends, since its texts come slowly.
    """
    collector, longest = TextCollector(options), longest_part(options)
    try:
        for text in texts:
            collector.add(text)
            if collector.full or collector.seconds > longest:
                yield collector.take()
        collector.end()
    except Exception:
        if not collector.empty:
            yield collector.take()
        raise
    if not collector.empty:
        yield collector.take()


def longest_part(options: TranslateOptions) -> float:
    """Return seconds after which a part is sent. A sampled one is always full, so that the same seed gives the same
    texts.
    """
    return SLOW if options.get("sampling") is None else float("inf")


def check_iterable(texts: Any, kinds: tuple[type, ...] = (Iterable,)) -> None:
    """Raise SettingsError if texts are no iterable, or a str, which is one of its letters."""
    if isinstance(texts, str | bytes) or not isinstance(texts, kinds):
        also = " or an asynchronous one" if AsyncIterable in kinds else ""
        raise SettingsError(f"texts must be an iterable of str{also}, got {type(texts).__name__}")


Item = TypeVar("Item")
Result = TypeVar("Result")
Perform = Callable[[Send | Sleep], Any]

CHECK = 0.1  # seconds between two looks at whether a pause is still wanted


class Pending(Protocol):
    """A call that has been sent."""

    def result(self) -> Any:
        """Wait for the reply. Raises ServerError."""

    def cancel(self) -> Any:
        """End the call: `result` raises."""


class CallGroup:
    """The execution of exchanges on several threads. All calls end together."""

    def __init__(self, begin: Callable[[Send], Pending], closed: threading.Event) -> None:
        """begin: sends a request; closed: set when the client is closed, which ends pauses too."""
        self._begin, self._closed = begin, closed
        self._cancelled, self._lock, self._calls = False, threading.Lock(), set[Pending]()

    def perform(self, step: Send | Sleep) -> Any:
        """Carry out a step and return its reply. Raises ServerError."""
        if isinstance(step, Sleep):
            return self._pause(time.monotonic() + step.seconds)
        with self._lock:
            if self._cancelled:
                raise ServerError("the iterator was closed during this call", code_pb2.CANCELLED)
            call = self._begin(step)
            self._calls.add(call)
        try:
            return call.result()
        finally:
            with self._lock:
                self._calls.discard(call)

    def cancel(self) -> None:
        """End the calls in progress and their pauses, and take no more."""
        with self._lock:
            self._cancelled, calls = True, list(self._calls)
        for call in calls:
            call.cancel()

    def _pause(self, until: float) -> None:
        while (left := until - time.monotonic()) > 0 and not self._cancelled:
            if self._closed.wait(min(left, CHECK)):
                return


def in_order(
    items: Iterable[Item], work: Callable[[Item, Perform], Result], group: CallGroup, in_flight: int
) -> Generator[Result, None, None]:
    """work(item, perform) of every item, in_flight at once, in order.

    The items are read on the thread of the caller, because a cursor of a database may belong to it. An exception of
    theirs, or of the work, is raised after the results before it. Closing the generator cancels the work.
    """
    pool, waiting = ThreadPoolExecutor(in_flight, "lingon iterable"), deque[Future[Result]]()
    try:
        for future in _begun(items, lambda item: pool.submit(work, item, group.perform)):
            waiting.append(future)
            while len(waiting) == in_flight or (waiting and waiting[0].done()):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        group.cancel()
        pool.shutdown(cancel_futures=True)  # waits for the threads, whose calls end now


def _begun(items: Iterable[Item], begin: Callable[[Item], Future[Result]]) -> Iterator[Future[Result]]:
    """Yield the futures of the items. If reading one fails, the last one has the exception."""
    try:
        for item in items:
            yield begin(item)
    except Exception as error:
        failed: Future[Result] = Future()
        failed.set_exception(error)
        yield failed


class PartTasks(Generic[Result]):
    """One task that reads texts, because what an asynchronous generator opens may belong to it, and tasks for their
    parts.

    A part is sent when it is full, or by a timer: its first text does not wait for a text that comes much later.
    """

    def __init__(
        self, work: Callable[[CallPart], Awaitable[Result]], in_flight: int, options: TranslateOptions
    ) -> None:
        """in_flight: parts that are collected or worked on at once; options: of the call."""
        self._work, self._longest, self._collector = work, longest_part(options), TextCollector(options)
        self._places, self._running = asyncio.Semaphore(in_flight), set[asyncio.Future[Result]]()
        self._ordered: asyncio.Queue[asyncio.Future[Result] | None] = asyncio.Queue()
        self._timer: asyncio.TimerHandle | None = None

    async def results(self, texts: Iterable[str] | AsyncIterable[str]) -> AsyncGenerator[Result, None]:
        """Yield the results of the parts, in order. An exception is raised after the results before it.

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
    """Yield texts. Other tasks run after each, because reading it may have taken long."""
    for text in texts:
        yield text
        await asyncio.sleep(0)


TextSequence = list[str] | tuple[str, ...]
LanguageDetections = tuple[DetectedLanguage, ...]


class Blocking(ABC):
    """A driver of the exchanges of a protocol. Subclasses carry out their steps."""

    _protocol: ClientProtocol

    @abstractmethod
    def _perform(self, step: Send | Sleep) -> Any:
        """Carry out a step and return its reply. Raises ServerError."""

    @abstractmethod
    def close(self) -> None:
        """End the calls in progress, and take no more."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        kind = type(self).__name__
        raise TypeError(
            f"a {kind} cannot be pickled or copied: it has threads of this process; make one in each process"
        )

    def _drive(self, exchange: Exchange[Result]) -> Result:
        return drive(exchange, self._perform)


class BlockingCalls(Blocking):
    """The calls of `Client` and of `Model`."""

    _closed: threading.Event

    @abstractmethod
    def _begin(self, step: Send) -> Pending:
        """Send a request without waiting for its reply."""

    @abstractmethod
    def _received(self, rest: Any) -> Iterator[Any]:
        """Yield the other messages of a stream that has begun. Raises ServerError."""

    @overload
    def translate(self, texts: str, **options: Unpack[TranslateOptions]) -> TextResult: ...

    @overload
    def translate(self, texts: TextSequence, **options: Unpack[TranslateOptions]) -> list[TextResult]: ...

    def translate(
        self, texts: str | TextSequence, **options: Unpack[TranslateOptions]
    ) -> TextResult | list[TextResult]:
        """Translate one text or several. In a list the error of a text is in its result and affects no other text.

        options: see `lingon.TranslateOptions`
        """
        result: TextResult | list[TextResult] = self._drive(self._protocol.translate(texts, options))
        return result

    def translate_iterable(
        self, texts: Iterable[str], **options: Unpack[TranslateOptions]
    ) -> Generator[TextResult, None, None]:
        """Translate the texts of any iterable, such as a file of many lines, and yield their results in order.

        Up to 256 texts are read ahead, in the thread of the caller, and translated in the background, so that memory is
        bounded. A few only if they come slowly. As in a list, the error of a text is in its result. An error of a call,
        or an exception of the iterable, is raised after the results before it. A request waits while the server is
        full, until its timeout. Closing the iterator cancels what is in progress.

        options: as those of `translate`; target_prefix is one str for all texts, or an iterable with one for each
        """
        check_iterable(texts)
        self._protocol.check_for_iterable(options)  # raises now, not when the first result is asked for
        return self._results(texts, options)

    def _results(self, texts: Iterable[str], options: TranslateOptions) -> Generator[TextResult, None, None]:
        protocol, group = self._protocol.waiting_when_full(), CallGroup(self._begin, self._closed)

        def translate(part: CallPart, perform: Perform) -> list[TextResult]:
            return list(drive(protocol.translate(part.texts, part.options, part.first), perform))

        parts = parts_of(texts, options)
        with closing(in_order(parts, translate, group, IN_FLIGHT)) as answers:
            for results in answers:
                yield from results

    def translate_stream(
        self, texts: str | TextSequence, **options: Unpack[TranslateOptions]
    ) -> Generator[StreamEvent, None, None]:
        """Translate and yield each result as soon as it is ready. Greedy decoding also yields the text as it grows.

        Once the first event has arrived, a stream that ends early is not repeated: the ServerError is raised.
        """
        several, _ = self._protocol.check(texts, options)  # raises now, not when the first event is asked for
        return self._events(several, options)

    def _events(self, texts: TextSequence, options: TranslateOptions) -> Generator[StreamEvent, None, None]:
        reader = StreamReader()
        for part in self._drive(self._protocol.streams(texts, options)):
            if not isinstance(part, StreamPart):
                yield part
                continue
            first, rest = self._drive(self._protocol.begin(part, options))
            try:
                for message in itertools.chain((first,), self._received(rest)):
                    yield from reader.read(part, message)
            finally:
                rest.cancel()
            reader.end(part)

    def live(self, **options: Unpack[LiveOptions]) -> LiveCall:
        """Translate the words of a speaker while they come: `with client.live(target="de") as live`.

        Text that was agreed is never taken back. The call begins with the block, and is repeated until the server is
        ready. It is not repeated after that: an error ends the iterator.

        options: see `lingon.LiveOptions`
        """
        start = self._protocol.live_start(options)  # raises now, not when the block begins
        return LiveCall(lambda: self._drive(self._protocol.begin_live(start, options)))

    def score(self, pairs: Sequence[tuple[str, str]], **options: Unpack[ScoreOptions]) -> list[ScoreResult]:
        """Return the log-probabilities of given translations; pairs: (source, target)."""
        return self._drive(self._protocol.score(pairs, options))

    @overload
    def detect_languages(self, texts: str, *, same_language: bool = False) -> LanguageDetections: ...

    @overload
    def detect_languages(self, texts: TextSequence, *, same_language: bool = False) -> list[LanguageDetections]: ...

    def detect_languages(
        self, texts: str | TextSequence, *, same_language: bool = False
    ) -> LanguageDetections | list[LanguageDetections]:
        """Return the languages that a text may be in, or each of several, the likeliest first, among those of the
        models.

        same_language: the texts are in one language, such as the words of a menu: those beside a text tell its language
            too, of as many as are sent in one request
        """
        found: LanguageDetections | list[LanguageDetections] = self._drive(
            self._protocol.detect_languages(texts, same_language=same_language)
        )
        return found

    def find_source(self, texts: str | TextSequence, **options: Unpack[TranslateOptions]) -> str:
        """Return the language that texts are translated from, all of them together; the target if they are in it
        already.

        Raises ServerError if no model translates from it into the target.

        options: target, and those that say how the texts are read; `source` is not among them
        """
        return self._drive(self._protocol.find_source(texts, options))

    def translate_document(
        self, name: str, content: bytes, *, column: str | int = "", **options: Unpack[TranslateOptions]
    ) -> DocumentResult:
        """Translate a file into a file of the same kind, such as .docx, .xlsx, .pptx, .odt, .epub, .html or .md.

        A text that cannot be translated stays as it is, and is in the failures of the result. With the source "auto"
        the language of the whole document is detected. Raises UnreadableDocument, a LingonError.

        name: of the file, which says of what kind it is. Nothing is read or written there
        column: of a .csv or .tsv file with the texts, its name in the first row, or its number, from 1 on
        options: as those of `translate`, but for format, splitting_tags and non_splitting_tags
        """
        return self._drive(self._protocol.translate_document(name, content, column, options))

    def list_models(self) -> list[ModelInfo]:
        """Return the models that translate."""
        return self._drive(self._protocol.list_models())


class AsyncCalls(ABC):
    """The calls of `AsyncClient` and of `AsyncModel`. Subclasses carry out the steps of their exchanges."""

    _protocol: ClientProtocol

    @abstractmethod
    async def _perform(self, step: Send | Sleep) -> Any:
        """Carry out a step and return its reply. Raises ServerError."""

    @abstractmethod
    def _server_errors(self) -> AbstractContextManager[None]:
        """Raise the errors of a call, and its cancellation by `close`, as ServerError."""

    @abstractmethod
    async def close(self) -> None:
        """End the calls in progress, and take no more."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @overload
    async def translate(self, texts: str, **options: Unpack[TranslateOptions]) -> TextResult: ...

    @overload
    async def translate(self, texts: TextSequence, **options: Unpack[TranslateOptions]) -> list[TextResult]: ...

    async def translate(
        self, texts: str | TextSequence, **options: Unpack[TranslateOptions]
    ) -> TextResult | list[TextResult]:
        """As `Client.translate`."""
        result: TextResult | list[TextResult] = await self._drive(self._protocol.translate(texts, options))
        return result

    def translate_iterable(
        self, texts: Iterable[str] | AsyncIterable[str], **options: Unpack[TranslateOptions]
    ) -> AsyncGenerator[TextResult, None]:
        """As `Client.translate_iterable`, of an iterable or an asynchronous one. Do not await it.

        An iterable is read on the event loop, and blocks it while a text is not there. Then use an asynchronous one.
        """
        check_iterable(texts, (Iterable, AsyncIterable))
        self._protocol.check_for_iterable(options)
        return self._results(texts, options)

    async def _results(
        self, texts: Iterable[str] | AsyncIterable[str], options: TranslateOptions
    ) -> AsyncGenerator[TextResult, None]:
        protocol = self._protocol.waiting_when_full()

        async def translate(part: CallPart) -> list[TextResult]:
            return list(await self._drive(protocol.translate(part.texts, part.options, part.first)))

        tasks = PartTasks(translate, IN_FLIGHT, options)
        async with aclosing(tasks.results(texts)) as answers:
            async for results in answers:
                for result in results:
                    yield result

    def translate_stream(
        self, texts: str | TextSequence, **options: Unpack[TranslateOptions]
    ) -> AsyncGenerator[StreamEvent, None]:
        """As `Client.translate_stream`. Do not await it: `async for event in client.translate_stream(...)`."""
        several, _ = self._protocol.check(texts, options)
        return self._events(several, options)

    async def _events(self, texts: TextSequence, options: TranslateOptions) -> AsyncGenerator[StreamEvent, None]:
        reader = StreamReader()
        for part in await self._drive(self._protocol.streams(texts, options)):
            if not isinstance(part, StreamPart):
                yield part
                continue
            first, rest = await self._drive(self._protocol.begin(part, options))
            try:
                for event in reader.read(part, first):
                    yield event
                with self._server_errors():
                    async for message in rest:
                        for event in reader.read(part, message):
                            yield event
            finally:
                rest.cancel()
            reader.end(part)

    def live(self, **options: Unpack[LiveOptions]) -> AsyncLiveCall:
        """As `Client.live`: `async with client.live(target="de") as live`."""
        start = self._protocol.live_start(options)
        return AsyncLiveCall(lambda: self._drive(self._protocol.begin_live(start, options)))

    async def score(self, pairs: Sequence[tuple[str, str]], **options: Unpack[ScoreOptions]) -> list[ScoreResult]:
        """As `Client.score`."""
        return await self._drive(self._protocol.score(pairs, options))

    @overload
    async def detect_languages(self, texts: str, *, same_language: bool = False) -> LanguageDetections: ...

    @overload
    async def detect_languages(
        self, texts: TextSequence, *, same_language: bool = False
    ) -> list[LanguageDetections]: ...

    async def detect_languages(
        self, texts: str | TextSequence, *, same_language: bool = False
    ) -> LanguageDetections | list[LanguageDetections]:
        """As `Client.detect_languages`."""
        found: LanguageDetections | list[LanguageDetections] = await self._drive(
            self._protocol.detect_languages(texts, same_language=same_language)
        )
        return found

    async def find_source(self, texts: str | TextSequence, **options: Unpack[TranslateOptions]) -> str:
        """As `Client.find_source`."""
        return await self._drive(self._protocol.find_source(texts, options))

    async def translate_document(
        self, name: str, content: bytes, *, column: str | int = "", **options: Unpack[TranslateOptions]
    ) -> DocumentResult:
        """As `Client.translate_document`."""
        return await self._drive(self._protocol.translate_document(name, content, column, options))

    async def list_models(self) -> list[ModelInfo]:
        """As `Client.list_models`."""
        return await self._drive(self._protocol.list_models())

    async def _drive(self, exchange: Exchange[Result]) -> Result:
        return await drive_async(exchange, self._perform)


@contextmanager
def closed_as_error(closed: threading.Event, message: str) -> Iterator[None]:
    """Raise a call that was cancelled, but not its task, as a ServerError with this message once `closed` is set."""
    try:
        yield
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if not closed.is_set() or (task is not None and task.cancelling()):
            raise  # the task that called was cancelled, not the client closed
        raise ServerError(message, code_pb2.CANCELLED) from None
