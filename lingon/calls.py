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

from lingon.errors import ServerError, SettingsError
from lingon.results import ModelInfo, ScoreResult, StreamEvent, StreamStart, TextDone, TextResult
from lingon.retry import Retry
from lingon.translation.v1 import translation_pb2 as pb
from lingon.wire import (
    ScoreOptions,
    TranslateOptions,
    check_options,
    cut,
    model_infos,
    prefixes_of,
    score_request,
    score_results,
    stream_event,
    text_results,
    translate_request,
)

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
    """One stream of a long list: its request, the place of its first text in the list, and how many it has."""

    request: pb.TranslateStreamRequest
    start: int
    count: int


Talk = Generator[Send | Sleep, Any, Result]


@dataclass(kw_only=True)
class Calls:
    """The talks of one client.

    timeout: seconds for each request, its retries included
    max_texts: in one request; None until the server was asked
    """

    timeout: float = 30.0
    retry: Retry = field(default_factory=Retry)
    max_texts: int | None = None
    clock: Callable[[], float] = time.monotonic
    random: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        _check_timeout(self.timeout)

    def call(self, method: Method[Reply], request: Message, timeout: float | None = None) -> Talk[Reply]:
        """One request, tried again as `retry` says; no try begins or ends after the deadline."""
        deadline = self.clock() + _check_timeout(self.timeout if timeout is None else timeout)
        failures = 0
        while True:
            try:
                reply: Reply = yield Send(method, request, deadline - self.clock())
            except ServerError as error:
                failures += 1
                pause = self.retry.pause(failures, error, deadline - self.clock(), self.random)
                if pause is None:
                    raise
                yield Sleep(pause)
                if self.clock() >= deadline:  # a sleep may last longer than it was asked to
                    raise
            else:
                return reply

    def translate(self, texts: str | Sequence[str], options: TranslateOptions) -> Talk[Any]:
        """One text: its result, or its error raised. Several: a result for each, errors within."""
        check_options(options, TranslateOptions)
        if isinstance(texts, str):
            (result,) = yield from self._translate_all([texts], options)
            if result.error is not None:
                raise result.error
            return result
        return (yield from self._translate_all(texts, options))

    def _translate_all(self, texts: Sequence[str], options: TranslateOptions) -> Talk[list[TextResult]]:
        prefixes = prefixes_of(texts, options)
        results: list[TextResult] = []
        for start, part in cut(texts, (yield from self._most(len(texts)))):
            own = prefixes[start : start + len(part)]
            request = translate_request(pb.TranslateRequest, part, own, options, start)
            reply = yield from self.call(TRANSLATE, request, options.get("timeout"))
            results += _as_many(text_results(reply), part)
        return results

    def streams(self, texts: str | Sequence[str], options: TranslateOptions) -> Talk[list[StreamPart]]:
        """The streams that texts are translated in, one after the other."""
        check_options(options, TranslateOptions)
        several = [texts] if isinstance(texts, str) else texts
        prefixes = prefixes_of(several, options)
        parts = []
        for start, part in cut(several, (yield from self._most(len(several)))):
            own = prefixes[start : start + len(part)]
            request = translate_request(pb.TranslateStreamRequest, part, own, options, start)
            parts.append(StreamPart(request, start, len(part)))
        return parts

    def score(self, pairs: Sequence[tuple[str, str]], options: ScoreOptions) -> Talk[list[ScoreResult]]:
        """A result for each (source, target) pair, errors within."""
        check_options(options, ScoreOptions)
        results: list[ScoreResult] = []
        for _, part in cut(pairs, (yield from self._most(len(pairs)))):
            reply = yield from self.call(SCORE, score_request(part, options), options.get("timeout"))
            results += _as_many(score_results(reply), part)
        return results

    def list_models(self) -> Talk[list[ModelInfo]]:
        """The models that the server has."""
        return model_infos((yield from self._models()))

    def health(self, service: str) -> Talk[str]:
        """One of HEALTH_STATES; a service that the server does not know is an error NOT_FOUND."""
        reply = yield from self.call(HEALTH, wrappers_pb2.StringValue(value=service))
        return HEALTH_STATES[reply.value] if 0 <= reply.value < len(HEALTH_STATES) else "UNKNOWN"

    def _most(self, wanted: int) -> Talk[int]:
        """How many texts go into one request; the server is asked once, when first it matters."""
        if self.max_texts is None and wanted > 1:
            yield from self._models()
        return self.max_texts or DEFAULT_MAX_TEXTS

    def _models(self) -> Talk[pb.ListModelsResponse]:
        reply: pb.ListModelsResponse = yield from self.call(LIST_MODELS, pb.ListModelsRequest())
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


def _as_many(results: list[Result], asked: Sequence[Any]) -> list[Result]:
    if len(results) != len(asked):
        raise ServerError(f"the server answered {len(asked)} texts with {len(results)} results", code_pb2.INTERNAL)
    return results
