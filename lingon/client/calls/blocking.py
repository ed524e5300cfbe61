"""The calls of a client that block until they are answered, whatever answers them."""

from __future__ import annotations

import itertools
import threading
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from types import TracebackType
from typing import Any, NoReturn, Self, Unpack, overload

from lingon.client.calls.iterables import CallGroup, Pending, Perform, Result, in_order
from lingon.client.calls.parts import IN_FLIGHT, Part, check_iterable, parts_of
from lingon.client.protocol.exchanges import ClientProtocol
from lingon.client.protocol.steps import Exchange, Send, Sleep, drive
from lingon.client.protocol.streams import StreamPart, StreamReader
from lingon.client.values.options import ScoreOptions, TranslateOptions
from lingon.client.values.results import (
    DetectedLanguage,
    DocumentResult,
    ModelInfo,
    ScoreResult,
    StreamEvent,
    TextResult,
)

Texts = list[str] | tuple[str, ...]
Languages = tuple[DetectedLanguage, ...]


class Blocking(ABC):
    """Drives the exchanges of a protocol; subclasses carry out their steps."""

    _protocol: ClientProtocol

    @abstractmethod
    def _perform(self, step: Send | Sleep) -> Any:
        """Carry out a step and return its reply; raises ServerError."""

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
        """The other messages of a stream that has begun; raises ServerError."""

    @overload
    def translate(self, texts: str, **options: Unpack[TranslateOptions]) -> TextResult: ...

    @overload
    def translate(self, texts: Texts, **options: Unpack[TranslateOptions]) -> list[TextResult]: ...

    def translate(self, texts: str | Texts, **options: Unpack[TranslateOptions]) -> TextResult | list[TextResult]:
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
        bounded; a few only if they come slowly. As in a list, the error of a text is in its result. An error of a call,
        or an exception of the iterable, is raised after the results before it. A request waits while the server is
        full, until its timeout. Closing the iterator cancels what is in progress.

        options: as those of `translate`; target_prefix is one str for all texts, or an iterable with one for each
        """
        check_iterable(texts)
        self._protocol.check_for_iterable(options)  # raises now, not when the first result is asked for
        return self._results(texts, options)

    def _results(self, texts: Iterable[str], options: TranslateOptions) -> Generator[TextResult, None, None]:
        protocol, group = self._protocol.waiting_when_full(), CallGroup(self._begin, self._closed)

        def translate(part: Part, perform: Perform) -> list[TextResult]:
            return list(drive(protocol.translate(part.texts, part.options, part.first), perform))

        parts = parts_of(texts, options)
        with closing(in_order(parts, translate, group, IN_FLIGHT)) as answers:
            for results in answers:
                yield from results

    def translate_stream(
        self, texts: str | Texts, **options: Unpack[TranslateOptions]
    ) -> Generator[StreamEvent, None, None]:
        """Translate and yield each result as soon as it is ready; greedy decoding also yields the text as it grows.

        Once the first event has arrived, a stream that ends early is not repeated: the ServerError is raised.
        """
        several, _ = self._protocol.check(texts, options)  # raises now, not when the first event is asked for
        return self._events(several, options)

    def _events(self, texts: Texts, options: TranslateOptions) -> Generator[StreamEvent, None, None]:
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

    def score(self, pairs: Sequence[tuple[str, str]], **options: Unpack[ScoreOptions]) -> list[ScoreResult]:
        """The log-probabilities of given translations; pairs: (source, target)."""
        return self._drive(self._protocol.score(pairs, options))

    @overload
    def detect_languages(self, texts: str, *, same_language: bool = False) -> Languages: ...

    @overload
    def detect_languages(self, texts: Texts, *, same_language: bool = False) -> list[Languages]: ...

    def detect_languages(self, texts: str | Texts, *, same_language: bool = False) -> Languages | list[Languages]:
        """The languages that a text may be in, or each of several, the likeliest first, among those of the models.

        same_language: the texts are in one language, such as the words of a menu: those beside a text tell its language
            too, of as many as are sent in one request
        """
        found: Languages | list[Languages] = self._drive(
            self._protocol.detect_languages(texts, same_language=same_language)
        )
        return found

    def find_source(self, texts: str | Texts, **options: Unpack[TranslateOptions]) -> str:
        """The language that texts are translated from, all of them together; the target if they are in it already.

        Raises ServerError if no model translates from it into the target.

        options: target, and those that say how the texts are read; source is not among them
        """
        return self._drive(self._protocol.find_source(texts, options))

    def translate_document(
        self, name: str, content: bytes, *, column: str | int = "", **options: Unpack[TranslateOptions]
    ) -> DocumentResult:
        """Translate a file into a file of the same kind, such as .docx, .xlsx, .pptx, .odt, .epub, .html or .md.

        A text that cannot be translated stays as it is, and is in the failures of the result. With the source "auto"
        the language of the whole document is detected. Raises UnreadableDocument, a LingonError.

        name: of the file, which says of what kind it is; nothing is read or written there
        column: of a .csv or .tsv file with the texts, its name in the first row, or its number, from 1 on
        options: as those of `translate`, but for format, splitting_tags and non_splitting_tags
        """
        return self._drive(self._protocol.translate_document(name, content, column, options))

    def list_models(self) -> list[ModelInfo]:
        """The models that translate."""
        return self._drive(self._protocol.list_models())
