"""A client's side of every call, without sockets and threads: `Client` and `AsyncClient` both play these talks.

A talk is a generator: it yields what is to be done (`Send` a request, `Sleep`), is sent the reply or thrown the
ServerError, and returns the result.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from google.protobuf import wrappers_pb2
from google.protobuf.message import Message
from google.rpc import code_pb2

from lingon.client.messages import (
    Item,
    ScoreOptions,
    TranslateOptions,
    check_options,
    cut,
    in_bounds,
    model_infos,
    pairs_of,
    prefixes_of,
    score_request,
    score_results,
    stream_event,
    text_results,
    texts_of,
    translate_request,
)
from lingon.client.results import ModelInfo, ScoreResult, StreamEvent, StreamStart, TextDone, TextResult
from lingon.client.retry import Retry
from lingon.errors import ServerError, SettingsError, TextTooLong
from lingon.translation.v1 import translation_pb2 as pb

DEFAULT_MAX_TEXTS = 256
"""Texts in one request where the server does not say how many it takes."""

Reply = TypeVar("Reply")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Method(Generic[Reply]):
    """A method of a service; what a call of a streaming one is replied with is its first message and the rest."""

    path: str
    parse: Callable[[bytes], Reply]
    streams: bool = False


_SERVICE = f"/{pb.DESCRIPTOR.services_by_name['TranslationService'].full_name}"
TRANSLATE = Method(f"{_SERVICE}/Translate", pb.TranslateResponse.FromString)
STREAM: Method[Any] = Method(f"{_SERVICE}/TranslateStream", pb.TranslateStreamResponse.FromString, streams=True)
SCORE = Method(f"{_SERVICE}/Score", pb.ScoreResponse.FromString)
LIST_MODELS = Method(f"{_SERVICE}/ListModels", pb.ListModelsResponse.FromString)

# Byte for byte what grpc.health.v1 says (one string, one enum), without a package beyond the base install.
HEALTH = Method("/grpc.health.v1.Health/Check", wrappers_pb2.Int32Value.FromString)
HEALTH_STATES = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")


@dataclass(frozen=True, slots=True)
class Send:
    """A request to be sent; timeout is in seconds from now."""

    method: Method[Any]
    request: Message
    timeout: float


@dataclass(frozen=True, slots=True)
class Sleep:
    """A pause before the next try."""

    seconds: float


@dataclass(frozen=True, slots=True)
class StreamPart:
    """One stream of a long list.

    start, count: the place of its first text in the list, and how many it has
    deadline: on the clock of the calls; None where its time begins with it
    """

    request: pb.TranslateStreamRequest
    start: int
    count: int
    deadline: float | None


Talk = Generator[Send | Sleep, Any, Result]


@dataclass(kw_only=True)
class Calls:
    """The talks of one client.

    timeout: seconds for each request, its retries included; the first of a list has its time with the question how many
        texts the server takes
    max_texts: in one request; None until the server was asked
    answered: whether the server ever was heard of
    """

    timeout: float = 30.0
    retry: Retry = field(default_factory=Retry)
    max_texts: int | None = None
    clock: Callable[[], float] = time.monotonic
    random: Callable[[], float] = random.random
    answered: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        _check_timeout(self.timeout)

    def call(self, method: Method[Reply], request: Message, timeout: float | None = None) -> Talk[Reply]:
        """One request, tried again as `retry` says; no try begins or ends after the deadline."""
        return (yield from self._until(self._deadline(timeout), method, request))

    def _deadline(self, timeout: float | None) -> float:
        return self.clock() + _check_timeout(self.timeout if timeout is None else timeout)

    def _until(self, deadline: float, method: Method[Reply], request: Message) -> Talk[Reply]:
        failures = 0
        while True:
            try:
                reply: Reply = yield Send(method, request, deadline - self.clock())
            except ServerError as error:
                failures += 1
                self.answered = self.answered or bool(error.reason or error.request_id)
                pause = self.retry.pause(failures, error, deadline - self.clock(), self.random, self.answered)
                if pause is None:
                    raise
                yield Sleep(pause)
                if self.clock() >= deadline:  # a sleep may last longer than it was asked to
                    raise
            else:
                self.answered = True
                return reply

    def check(self, texts: str | Sequence[str], options: TranslateOptions) -> tuple[list[str], list[str]]:
        """The texts and the prefix of each; raises SettingsError and TypeError for what no server needs to see."""
        check_options(options, TranslateOptions)
        several = texts_of(texts)
        self._deadline(options.get("timeout"))
        translate_request(pb.TranslateRequest, [], [], options)
        return several, prefixes_of(several, options)

    def translate(self, texts: str | Sequence[str], options: TranslateOptions) -> Talk[Any]:
        """One text: its result, or its error raised. Several: a result for each, errors within."""
        several, prefixes = self.check(texts, options)

        def ask(begin: int, end: int, deadline: float) -> Talk[list[TextResult]]:
            asked = several[begin:end], prefixes[begin:end]
            request = translate_request(pb.TranslateRequest, *asked, options, begin)
            return _as_many(text_results((yield from self._until(deadline, TRANSLATE, request))), end - begin)

        timeout = options.get("timeout")
        parts = yield from self._parts(several, prefixes, timeout)
        results = yield from self._answers(parts, timeout, ask, lambda error: TextResult(error=error))
        if not isinstance(texts, str):
            return results
        if results[0].error is not None:
            raise results[0].error
        return results[0]

    def score(self, pairs: Sequence[tuple[str, str]], options: ScoreOptions) -> Talk[list[ScoreResult]]:
        """A result for each (source, target) pair, errors within."""
        check_options(options, ScoreOptions)
        several = pairs_of(pairs)

        def ask(begin: int, end: int, deadline: float) -> Talk[list[ScoreResult]]:
            request = score_request(several[begin:end], options)
            return _as_many(score_results((yield from self._until(deadline, SCORE, request))), end - begin)

        timeout = options.get("timeout")
        parts = yield from self._parts(several, [], timeout)
        return (yield from self._answers(parts, timeout, ask, lambda error: ScoreResult(error=error)))

    def streams(self, texts: str | Sequence[str], options: TranslateOptions) -> Talk[list[StreamPart]]:
        """The streams that texts are translated in, one after the other."""
        several, prefixes = self.check(texts, options)
        parts = []
        for begin, end, deadline in (yield from self._parts(several, prefixes, options.get("timeout"))):
            asked = several[begin:end], prefixes[begin:end]
            request = translate_request(pb.TranslateStreamRequest, *asked, options, begin)
            parts.append(StreamPart(request, begin, end - begin, deadline))
        return parts

    def begin(self, part: StreamPart, options: TranslateOptions) -> Talk[Any]:
        """The first message of a stream, and the rest."""
        deadline = self._deadline(options.get("timeout")) if part.deadline is None else part.deadline
        return (yield from self._until(deadline, STREAM, part.request))

    def _parts(
        self, items: Sequence[Item], prefixes: Sequence[str], timeout: float | None
    ) -> Talk[list[tuple[int, int, float | None]]]:
        """Where each request of a list begins and ends, and its deadline; None where its time begins with it."""
        deadline = self._deadline(timeout)
        most = yield from self._most(len(items), deadline)
        return [(begin, begin + len(part), None if begin else deadline) for begin, part in cut(items, most, prefixes)]

    def _answers(
        self,
        parts: list[tuple[int, int, float | None]],
        timeout: float | None,
        ask: Callable[[int, int, float], Talk[list[Result]]],
        refused: Callable[[ServerError], Result],
    ) -> Talk[list[Result]]:
        """The results of all parts; ask: one request for items from begin to end; refused: the result of an error."""
        results: list[Result] = []
        for begin, end, deadline in parts:
            until = self._deadline(timeout) if deadline is None else deadline
            results += yield from _halved(ask, refused, begin, end, until)
        return results

    def list_models(self) -> Talk[list[ModelInfo]]:
        """The models that the server has."""
        return model_infos((yield from self._models(self._deadline(None))))

    def health(self, service: str) -> Talk[str]:
        """One of HEALTH_STATES; a service that the server does not know is an error NOT_FOUND."""
        with in_bounds():
            request = wrappers_pb2.StringValue(value=service)
        reply = yield from self.call(HEALTH, request)
        return HEALTH_STATES[reply.value] if 0 <= reply.value < len(HEALTH_STATES) else "UNKNOWN"

    def _most(self, wanted: int, deadline: float) -> Talk[int]:
        """How many texts go into one request; the server is asked once, when first it matters."""
        if self.max_texts is None and wanted > 1:
            yield from self._models(deadline)
        return self.max_texts or DEFAULT_MAX_TEXTS

    def _models(self, deadline: float) -> Talk[pb.ListModelsResponse]:
        reply: pb.ListModelsResponse = yield from self._until(deadline, LIST_MODELS, pb.ListModelsRequest())
        self.max_texts = reply.max_texts or DEFAULT_MAX_TEXTS
        return reply


class StreamReader:
    """Makes one row of events out of the streams that texts were cut into."""

    def __init__(self) -> None:
        self._start: StreamStart | None = None
        self._done = 0

    def read(self, part: StreamPart, message: pb.TranslateStreamResponse | None) -> Iterator[StreamEvent]:
        """The event of a message of this part's stream; the start of a later stream is none."""
        if message is None:
            return
        event = stream_event(message, self._start, part.start)
        if isinstance(event, StreamStart):
            if self._start is not None:
                return
            self._start = event
        self._done += isinstance(event, TextDone)
        yield event

    def end(self, part: StreamPart) -> None:
        """Called when a stream has ended well: every text must be done by then."""
        if self._done != part.start + part.count:
            raise ServerError(f"the stream ended with {self._done} texts done", code_pb2.INTERNAL)


def _check_timeout(timeout: float) -> float:
    if not 0 < timeout < 1e7:
        raise SettingsError(f"timeout must be above 0 seconds and below 1e7, got {timeout}")
    return timeout


def _halved(
    ask: Callable[[int, int, float], Talk[list[Result]]],
    refused: Callable[[ServerError], Result],
    begin: int,
    end: int,
    deadline: float,
) -> Talk[list[Result]]:
    """The results of items from begin to end, in halves where they are too large for a message."""
    try:
        return (yield from ask(begin, end, deadline))
    except ServerError as error:
        if error.code != code_pb2.RESOURCE_EXHAUSTED or error.reason or "larger than max" not in str(error):
            raise
        if end - begin == 1:
            told = f"a text, or what is to be told of it, is too large for a message: {error}"
            return [refused(ServerError(told, code_pb2.INVALID_ARGUMENT, reason=TextTooLong.reason))]
    middle = (begin + end) // 2
    first = yield from _halved(ask, refused, begin, middle, deadline)
    return first + (yield from _halved(ask, refused, middle, end, deadline))


def _as_many(results: list[Result], asked: int) -> list[Result]:
    if len(results) != asked:
        raise ServerError(f"the server answered {asked} texts with {len(results)} results", code_pb2.INTERNAL)
    return results
