"""The exchanges of every call, which `Client`, `AsyncClient` and `Model` all drive."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any

from google.protobuf import wrappers_pb2
from google.protobuf.message import Message

from lingon.client.protocol.halves import ask_in_halves, check_count
from lingon.client.protocol.steps import (
    DETECT_LANGUAGES,
    HEALTH,
    HEALTH_STATES,
    LIST_MODELS,
    SCORE,
    STREAM,
    TRANSLATE,
    Exchange,
    Method,
    Reply,
    Result,
    Send,
    Sleep,
)
from lingon.client.protocol.streams import StreamPart
from lingon.client.retry import Retry
from lingon.client.values.messages import (
    Item,
    check_options,
    cut,
    keep_lists,
    pairs_of,
    prefixes_of,
    score_request,
    texts_of,
    translate_request,
    write_request,
)
from lingon.client.values.options import ScoreOptions, TranslateOptions
from lingon.client.values.replies import detected_languages, model_infos, score_results, text_results
from lingon.client.values.results import (
    DetectedLanguage,
    ModelInfo,
    ScoreResult,
    TextResult,
)
from lingon.errors import ServerError, SettingsError
from lingon.translation.v1 import translation_pb2 as pb

DEFAULT_MAX_TEXTS = 256
"""Texts in one request if the server does not report its limit."""


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

    def check_for_iterable(self, options: TranslateOptions) -> None:
        """As `check`, without the texts; raises SettingsError for a prefix for each text, whose number is not known."""
        prefix = options.get("target_prefix")
        if prefix is not None and not isinstance(prefix, str):
            raise SettingsError(f"target_prefix must be one str for all texts, got {type(prefix).__name__}")
        self.check((), options)

    def waiting_when_full(self) -> ClientProtocol:
        """A copy for calls that fill the queue of the server together: they wait for each other."""
        return replace(self, retry=replace(self.retry, wait_when_full=True))

    def translate(self, texts: str | Sequence[str], options: TranslateOptions, first: int = 0) -> Exchange[Any]:
        """For one text return its result or raise its error; for several return a result for each, errors included.

        first: the index of the first text in the caller's list, if these are a part of it
        """
        several, prefixes = self.check(texts, options)

        def ask(begin: int, end: int, deadline: float) -> Exchange[list[TextResult]]:
            batch = several[begin:end], prefixes[begin:end]
            request = translate_request(pb.TranslateRequest, *batch, options, first + begin)
            return check_count(text_results((yield from self.call_until(deadline, TRANSLATE, request))), end - begin)

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
            return check_count(score_results((yield from self.call_until(deadline, SCORE, request))), end - begin)

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
            found += check_count(detected_languages(reply), len(part))
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


def _check_timeout(timeout: float) -> float:
    if not (isinstance(timeout, Real) and 0 < timeout < 1e7):
        raise SettingsError(f"timeout must be above 0 seconds and below 1e7, got {timeout!r}")
    return timeout
