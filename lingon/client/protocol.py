"""The client's side of every call, without sockets and threads: `Client` and `AsyncClient` both drive these exchanges.

An exchange is a generator. It yields steps (`Send` a request, `Sleep`). Its driver sends it the reply of each step, or
throws the ServerError into it. It returns the result of the call.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Generic, TypeVar

from google.protobuf import wrappers_pb2
from google.protobuf.message import Message
from google.rpc import code_pb2

from lingon.client.retry import Retry
from lingon.client.values.messages import (
    Item,
    check_options,
    cut,
    detected_languages,
    keep_lists,
    model_infos,
    pairs_of,
    prefixes_of,
    score_request,
    score_results,
    stream_event,
    text_results,
    texts_of,
    translate_request,
    write_request,
)
from lingon.client.values.options import ScoreOptions, TranslateOptions
from lingon.client.values.results import (
    DetectedLanguage,
    ModelInfo,
    ScoreResult,
    StreamEvent,
    StreamStart,
    TextDone,
    TextResult,
)
from lingon.errors import RequestTooLarge, ServerError, SettingsError, TextTooLong
from lingon.translation.v1 import translation_pb2 as pb

DEFAULT_MAX_TEXTS = 256
"""Texts in one request if the server does not report its limit."""

Reply = TypeVar("Reply")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Method(Generic[Reply]):
    """A method of a service; the reply of a streaming method is its first message and the iterator of the others."""

    path: str
    parse: Callable[[bytes], Reply]
    streams: bool = False


_SERVICE = f"/{pb.DESCRIPTOR.services_by_name['TranslationService'].full_name}"
TRANSLATE = Method(f"{_SERVICE}/Translate", pb.TranslateResponse.FromString)
STREAM: Method[Any] = Method(f"{_SERVICE}/TranslateStream", pb.TranslateStreamResponse.FromString, streams=True)
SCORE = Method(f"{_SERVICE}/Score", pb.ScoreResponse.FromString)
LIST_MODELS = Method(f"{_SERVICE}/ListModels", pb.ListModelsResponse.FromString)
DETECT_LANGUAGES = Method(f"{_SERVICE}/DetectLanguages", pb.DetectLanguagesResponse.FromString)

# These messages have the same bytes as those of grpc.health.v1 (one string, one enum), whose package is not installed.
HEALTH = Method("/grpc.health.v1.Health/Check", wrappers_pb2.Int32Value.FromString)
HEALTH_STATES = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request; timeout: seconds from now."""

    method: Method[Any]
    request: Message
    timeout: float


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait before the next try."""

    seconds: float


@dataclass(frozen=True, slots=True)
class StreamPart:
    """One of the streams that translate a long list.

    start, count: the index of its first text in the list, and its number of texts
    deadline: on the clock of the protocol; None if the stream gets a deadline of its own when it begins
    """

    request: pb.TranslateStreamRequest
    start: int
    count: int
    deadline: float | None


Exchange = Generator[Send | Sleep, Any, Result]


def drive(exchange: Exchange[Result], perform: Callable[[Send | Sleep], Any]) -> Result:
    """Run an exchange to its end and return its result; perform: carries out a step and returns its reply."""
    try:
        step = next(exchange)
        while True:
            try:
                reply = perform(step)
            except ServerError as error:
                step = exchange.throw(error)
            else:
                step = exchange.send(reply)
    except StopIteration as end:
        result: Result = end.value
        return result


async def drive_async(exchange: Exchange[Result], perform: Callable[[Send | Sleep], Awaitable[Any]]) -> Result:
    """As `drive`, for asyncio."""
    try:
        step = next(exchange)
        while True:
            try:
                reply = await perform(step)
            except ServerError as error:
                step = exchange.throw(error)
            else:
                step = exchange.send(reply)
    except StopIteration as end:
        result: Result = end.value
        return result


@dataclass(kw_only=True)
class ClientProtocol:
    """The exchanges of one client.

    timeout: seconds for each request, its retries included; the first request of a list shares its timeout with the
        request that asks the server for its limit of texts
    max_texts: texts in one request; None until the server has been asked
    answered: whether the server has ever answered
    """

    timeout: float = 30.0
    retry: Retry = field(default_factory=Retry)
    max_texts: int | None = None
    clock: Callable[[], float] = time.monotonic
    random: Callable[[], float] = random.random
    answered: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        _check_timeout(self.timeout)

    def call(self, method: Method[Reply], request: Message, timeout: float | None = None) -> Exchange[Reply]:
        """One request, repeated as `retry` decides; no try begins or ends after the deadline."""
        return (yield from self.call_until(self._deadline(timeout), method, request))

    def _deadline(self, timeout: float | None) -> float:
        return self.clock() + _check_timeout(self.timeout if timeout is None else timeout)

    def call_until(self, deadline: float, method: Method[Reply], request: Message) -> Exchange[Reply]:
        """As `call`, with a deadline on the clock of the protocol."""
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
                if self.clock() >= deadline:  # a sleep may last longer than asked for
                    raise
            else:
                self.answered = True
                return reply

    def check(self, texts: str | Sequence[str], options: TranslateOptions) -> tuple[list[str], list[str]]:
        """The texts and the prefix of each; raises SettingsError or TypeError for arguments that cannot be sent.

        Iterators among the options become lists, because several requests may need them.
        """
        check_options(options, TranslateOptions)
        keep_lists(options)
        several = texts_of(texts)
        self._deadline(options.get("timeout"))
        translate_request(pb.TranslateRequest, [], [], options)
        return several, prefixes_of(several, options)

    def translate(self, texts: str | Sequence[str], options: TranslateOptions) -> Exchange[Any]:
        """For one text return its result or raise its error; for several return a result for each, errors included."""
        several, prefixes = self.check(texts, options)

        def ask(begin: int, end: int, deadline: float) -> Exchange[list[TextResult]]:
            batch = several[begin:end], prefixes[begin:end]
            request = translate_request(pb.TranslateRequest, *batch, options, begin)
            return _check_count(text_results((yield from self.call_until(deadline, TRANSLATE, request))), end - begin)

        timeout = options.get("timeout")
        results = yield from self._collect(several, prefixes, timeout, ask, lambda error: TextResult(error=error))
        if not isinstance(texts, str):
            return results
        if results[0].error is not None:
            raise results[0].error
        return results[0]

    def score(self, pairs: Sequence[tuple[str, str]], options: ScoreOptions) -> Exchange[list[ScoreResult]]:
        """A result for each (source, target) pair, errors included."""
        check_options(options, ScoreOptions)
        several = pairs_of(pairs)

        def ask(begin: int, end: int, deadline: float) -> Exchange[list[ScoreResult]]:
            request = score_request(several[begin:end], options)
            return _check_count(score_results((yield from self.call_until(deadline, SCORE, request))), end - begin)

        timeout = options.get("timeout")
        return (yield from self._collect(several, [], timeout, ask, lambda error: ScoreResult(error=error)))

    def streams(self, texts: str | Sequence[str], options: TranslateOptions) -> Exchange[list[StreamPart]]:
        """The streams that translate the texts, one after the other."""
        several, prefixes = self.check(texts, options)
        parts = []
        for begin, end, deadline in (yield from self._requests_of(several, prefixes, options.get("timeout"))):
            batch = several[begin:end], prefixes[begin:end]
            request = translate_request(pb.TranslateStreamRequest, *batch, options, begin)
            parts.append(StreamPart(request, begin, end - begin, deadline))
        return parts

    def begin(self, part: StreamPart, options: TranslateOptions) -> Exchange[Any]:
        """Start a stream; returns its first message and the iterator of the others."""
        deadline = self._deadline(options.get("timeout")) if part.deadline is None else part.deadline
        return (yield from self.call_until(deadline, STREAM, part.request))

    def _requests_of(
        self, items: Sequence[Item], prefixes: Sequence[str], timeout: float | None
    ) -> Exchange[list[tuple[int, int, float | None]]]:
        """For each request of a list the indices of its first and its last item plus one, and its deadline.

        The deadline is None if the request gets one of its own when it begins.
        """
        deadline = self._deadline(timeout)
        most = yield from self._limit_of_texts(len(items), deadline)
        return [(begin, begin + len(part), None if begin else deadline) for begin, part in cut(items, most, prefixes)]

    def _collect(
        self,
        items: Sequence[Item],
        prefixes: Sequence[str],
        timeout: float | None,
        ask: Callable[[int, int, float], Exchange[list[Result]]],
        refused: Callable[[ServerError], Result],
    ) -> Exchange[list[Result]]:
        """The results of all items; ask: sends the request of items begin to end; refused: the result of an error."""
        results: list[Result] = []
        for begin, end, deadline in (yield from self._requests_of(items, prefixes, timeout)):
            until = self._deadline(timeout) if deadline is None else deadline
            results += yield from ask_in_halves(ask, refused, begin, end, until)
        return results

    def list_models(self) -> Exchange[list[ModelInfo]]:
        """The models that the server serves."""
        return model_infos((yield from self._models(self._deadline(None))))

    def detect_languages(self, texts: str | Sequence[str]) -> Exchange[Any]:
        """For one text its languages, the likeliest first; for several those of each."""
        several, found, deadline = texts_of(texts), list[tuple[DetectedLanguage, ...]](), self._deadline(None)
        most = yield from self._limit_of_texts(len(several), deadline)
        for _, part in cut(several, most):
            request = write_request(pb.DetectLanguagesRequest, texts=part)
            reply = yield from self.call_until(deadline, DETECT_LANGUAGES, request)
            found += _check_count(detected_languages(reply), len(part))
        return found[0] if isinstance(texts, str) else found

    def health(self, service: str) -> Exchange[str]:
        """One of HEALTH_STATES; a service that the server does not know raises a ServerError NOT_FOUND."""
        request = write_request(wrappers_pb2.StringValue, value=service)
        reply = yield from self.call(HEALTH, request)
        return HEALTH_STATES[reply.value] if 0 <= reply.value < len(HEALTH_STATES) else "UNKNOWN"

    def _limit_of_texts(self, wanted: int, deadline: float) -> Exchange[int]:
        """The limit of texts in one request; the server is asked once, by the first list of several texts."""
        if self.max_texts is None and wanted > 1:
            yield from self._models(deadline)
        return self.max_texts or DEFAULT_MAX_TEXTS

    def _models(self, deadline: float) -> Exchange[pb.ListModelsResponse]:
        reply: pb.ListModelsResponse = yield from self.call_until(deadline, LIST_MODELS, pb.ListModelsRequest())
        self.max_texts = reply.max_texts or DEFAULT_MAX_TEXTS
        return reply


class StreamReader:
    """Joins the events of the streams of one list into one sequence."""

    def __init__(self) -> None:
        self._start: StreamStart | None = None
        self._done = 0

    def read(self, part: StreamPart, message: pb.TranslateStreamResponse | None) -> Iterator[StreamEvent]:
        """The event of a message of this part's stream; the start of a later stream yields nothing."""
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
        """Check at the end of a stream without error that each of its texts is done."""
        if self._done != part.start + part.count:
            raise ServerError(f"the stream ended with {self._done} texts done", code_pb2.INTERNAL)


def _check_timeout(timeout: float) -> float:
    if not (isinstance(timeout, Real) and 0 < timeout < 1e7):
        raise SettingsError(f"timeout must be above 0 seconds and below 1e7, got {timeout!r}")
    return timeout


def ask_in_halves(
    ask: Callable[[int, int, float], Exchange[list[Result]]],
    refused: Callable[[ServerError], Result],
    begin: int,
    end: int,
    deadline: float,
) -> Exchange[list[Result]]:
    """The results of items begin to end; a request that is too large is sent as two halves.

    Its message may be too large for gRPC, or its texts may have more sentences or tokens than the server queues.
    """
    try:
        return (yield from ask(begin, end, deadline))
    except ServerError as error:
        queue_refuses = error.reason == RequestTooLarge.reason
        grpc_refuses = (
            error.code == code_pb2.RESOURCE_EXHAUSTED and not error.reason and "larger than max" in str(error)
        )
        if not (queue_refuses or grpc_refuses):
            raise
        if end - begin == 1 and queue_refuses:
            return [refused(error)]
        if end - begin == 1:
            message = _too_large(str(error))
            return [refused(ServerError(message, code_pb2.INVALID_ARGUMENT, reason=TextTooLong.reason))]
    middle = (begin + end) // 2
    first = yield from ask_in_halves(ask, refused, begin, middle, deadline)
    return first + (yield from ask_in_halves(ask, refused, middle, end, deadline))


def _too_large(details: str) -> str:
    """The error of one text that no message can hold; details: gRPC's message, which names the side that refused it."""
    numbers = re.search(r"(CLIENT)?: Received message larger than max \((\d+) vs\. (\d+)\)", details)
    if numbers is None:
        return f"is too large for a message: {details}"
    what, side = ("its result", "this client") if numbers[1] else ("its request", "the server")
    return f"is too large: {what} has {int(numbers[2]):,} bytes, {side} takes {int(numbers[3]):,} at most; split it"


def _check_count(results: list[Result], expected: int) -> list[Result]:
    if len(results) != expected:
        raise ServerError(f"the server answered {expected} texts with {len(results)} results", code_pb2.INTERNAL)
    return results
