"""The calls of a client for asyncio, whatever answers them."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, aclosing, contextmanager
from types import TracebackType
from typing import Any, Self, Unpack, overload

from google.rpc import code_pb2

from lingon.client.calls.async_iterables import PartTasks
from lingon.client.calls.blocking import Languages, Texts
from lingon.client.calls.iterables import Result
from lingon.client.calls.parts import IN_FLIGHT, Part, check_iterable
from lingon.client.protocol.exchanges import ClientProtocol
from lingon.client.protocol.steps import Exchange, Send, Sleep, drive_async
from lingon.client.protocol.streams import StreamPart, StreamReader
from lingon.client.values.options import ScoreOptions, TranslateOptions
from lingon.client.values.results import DocumentResult, ModelInfo, ScoreResult, StreamEvent, TextResult
from lingon.errors import ServerError


class AsyncCalls(ABC):
    """The calls of `AsyncClient` and of `AsyncModel`; subclasses carry out the steps of their exchanges."""

    _protocol: ClientProtocol

    @abstractmethod
    async def _perform(self, step: Send | Sleep) -> Any:
        """Carry out a step and return its reply; raises ServerError."""

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
    async def translate(self, texts: Texts, **options: Unpack[TranslateOptions]) -> list[TextResult]: ...

    async def translate(self, texts: str | Texts, **options: Unpack[TranslateOptions]) -> TextResult | list[TextResult]:
        """As `Client.translate`."""
        result: TextResult | list[TextResult] = await self._drive(self._protocol.translate(texts, options))
        return result

    def translate_iterable(
        self, texts: Iterable[str] | AsyncIterable[str], **options: Unpack[TranslateOptions]
    ) -> AsyncGenerator[TextResult, None]:
        """As `Client.translate_iterable`, of an iterable or an asynchronous one; do not await it.

        An iterable is read on the event loop, and blocks it while a text is not there; then use an asynchronous one.
        """
        check_iterable(texts, (Iterable, AsyncIterable))
        self._protocol.check_for_iterable(options)
        return self._results(texts, options)

    async def _results(
        self, texts: Iterable[str] | AsyncIterable[str], options: TranslateOptions
    ) -> AsyncGenerator[TextResult, None]:
        protocol = self._protocol.waiting_when_full()

        async def translate(part: Part) -> list[TextResult]:
            return list(await self._drive(protocol.translate(part.texts, part.options, part.first)))

        tasks = PartTasks(translate, IN_FLIGHT, options)
        async with aclosing(tasks.results(texts)) as answers:
            async for results in answers:
                for result in results:
                    yield result

    def translate_stream(
        self, texts: str | Texts, **options: Unpack[TranslateOptions]
    ) -> AsyncGenerator[StreamEvent, None]:
        """As `Client.translate_stream`; do not await it: `async for event in client.translate_stream(...)`."""
        several, _ = self._protocol.check(texts, options)
        return self._events(several, options)

    async def _events(self, texts: Texts, options: TranslateOptions) -> AsyncGenerator[StreamEvent, None]:
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

    async def score(self, pairs: Sequence[tuple[str, str]], **options: Unpack[ScoreOptions]) -> list[ScoreResult]:
        """As `Client.score`."""
        return await self._drive(self._protocol.score(pairs, options))

    @overload
    async def detect_languages(self, texts: str, *, same_language: bool = False) -> Languages: ...

    @overload
    async def detect_languages(self, texts: Texts, *, same_language: bool = False) -> list[Languages]: ...

    async def detect_languages(self, texts: str | Texts, *, same_language: bool = False) -> Languages | list[Languages]:
        """As `Client.detect_languages`."""
        found: Languages | list[Languages] = await self._drive(
            self._protocol.detect_languages(texts, same_language=same_language)
        )
        return found

    async def find_source(self, texts: str | Texts, **options: Unpack[TranslateOptions]) -> str:
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
