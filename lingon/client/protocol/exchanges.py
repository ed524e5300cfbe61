"""The exchanges of every call, which `Client`, `AsyncClient` and `Model` all drive."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Real
from typing import Any

from google.protobuf.message import Message

from lingon.client.protocol.documents import translate_document
from lingon.client.protocol.halves import ask_in_halves, check_count
from lingon.client.protocol.languages import DEFAULT_MAX_TEXTS, Way, detect, find_sources, refusal_error, ways_of
from lingon.client.protocol.large_texts import in_halves
from lingon.client.protocol.steps import (
    HEALTH,
    HEALTH_STATES,
    LIST_MODELS,
    SCORE,
    STREAM,
    TRANSLATE,
    Exchange,
    HealthCheckRequest,
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
from lingon.client.values.options import FORMATS, ScoreOptions, TranslateOptions
from lingon.client.values.replies import model_infos, score_results, text_results
from lingon.client.values.results import (
    DetectedLanguage,
    DocumentResult,
    ModelInfo,
    ScoreResult,
    StreamEvent,
    TextResult,
)
from lingon.errors import ServerError, SettingsError
from lingon.source_language import AUTO, NotTranslated, Source, check_named
from lingon.translation.v1 import translation_pb2 as pb

MODELS_SECONDS = 2.0  # for which the list of models is kept that tells what a detected language is translated into


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
    _kept: tuple[float, pb.ListModelsResponse] | None = field(default=None, init=False)  # until when, and the models

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
        if options.get("source") == AUTO and not options.get("target"):
            raise SettingsError('the source language "auto" needs a target language')
        if options.get("same_language") and options.get("source") != AUTO:
            raise SettingsError(f'same_language needs the source "{AUTO}", got {options.get("source")!r}')
        several = texts_of(texts)
        self._deadline(options.get("timeout"))
        translate_request(pb.TranslateRequest, [], [], options)
        return several, prefixes_of(several, options)

    def check_for_iterable(self, options: TranslateOptions) -> None:
        """As `check`, without the texts and a prefix for each of them, whose number is not known."""
        prefix = options.get("target_prefix")
        if prefix is not None and not isinstance(prefix, Iterable):
            kind = type(prefix).__name__
            raise SettingsError(f"target_prefix must be a str, or an iterable with one for each text, got {kind}")
        rest = options.copy()
        rest.pop("target_prefix", None)
        self.check((), rest)
        options.update(rest)

    def waiting_when_full(self) -> ClientProtocol:
        """A copy for calls that fill the queue of the server together: they wait for each other."""
        return replace(self, retry=replace(self.retry, wait_when_full=True))

    def translate(self, texts: str | Sequence[str], options: TranslateOptions, first: int = 0) -> Exchange[Any]:
        """For one text return its result or raise its error; for several return a result for each, errors included.

        first: the index of the first text in the caller's list, if these are a part of it
        """
        several, prefixes = self.check(texts, options)
        found: dict[int, TextResult] = {}
        for way in (yield from self._ways(several, prefixes, options)):
            results = (yield from self._translated(way, options, first)) if way.answers is None else way.answers
            found.update(zip(way.places, results, strict=True))
        if not isinstance(texts, str):
            return [found[place] for place in range(len(several))]
        if found[0].error is not None:
            raise found[0].error
        return found[0]

    def _translated(self, way: Way, options: TranslateOptions, first: int) -> Exchange[list[TextResult]]:
        """The results of texts of one language; first: added to the index of each in the seed of its random numbers."""

        def ask(begin: int, end: int, deadline: float) -> Exchange[list[TextResult]]:
            request = way.request(pb.TranslateRequest, begin, end, options, first)
            reply = yield from self.call_until(deadline, TRANSLATE, request)
            return check_count(text_results(reply, way.source), end - begin)

        def refused(error: ServerError) -> TextResult:
            return TextResult(error=error, source=way.source)

        results = yield from self._collect(way.texts, way.prefixes, options.get("timeout"), ask, refused)
        for place, result in enumerate(results):
            if result.error is not None:
                results[place] = yield from self._in_halves(way, place, result, options, first)
        return results

    def _in_halves(
        self, way: Way, place: int, result: TextResult, options: TranslateOptions, first: int
    ) -> Exchange[TextResult]:
        """The result of a text that was refused, of its halves if it has more sentences than a request may have."""

        def ask(text: str, prefix: str) -> Exchange[TextResult]:
            part = replace(way, texts=[text], prefixes=[prefix] if prefix else [], places=[0])

            def ask_part(begin: int, end: int, deadline: float) -> Exchange[list[TextResult]]:
                request = part.request(pb.TranslateRequest, begin, end, options, first + place)
                reply = yield from self.call_until(deadline, TRANSLATE, request)
                return check_count(text_results(reply, way.source), end - begin)

            def refused(error: ServerError) -> TextResult:
                return TextResult(error=error, source=way.source)

            (found,) = yield from ask_in_halves(ask_part, refused, 0, 1, self._deadline(options.get("timeout")))
            return found

        asked = way.request(pb.TranslateRequest, 0, 0, options).text
        prefix = way.prefixes[place] if way.prefixes else ""
        return (yield from in_halves(way.texts[place], prefix, result, asked, {**options, "source": way.source}, ask))

    def _ways(self, texts: list[str], prefixes: list[str], options: TranslateOptions) -> Exchange[list[Way]]:
        """The texts by their source language, which is detected if it is to be."""
        source = options.get("source") or ""
        if source != AUTO:
            return [Way(source, range(len(texts)), texts, prefixes)]
        if not texts:
            return []
        return ways_of((yield from self._sources(texts, options, may_refuse_each=True)), texts, prefixes)

    def _sources(
        self, texts: Sequence[str], options: TranslateOptions, *, may_refuse_each: bool
    ) -> Exchange[list[Source]]:
        """The source language of each text; may_refuse_each: see `sources_of`."""
        ask = partial(self._ask, self._deadline(options.get("timeout")))
        text_format = FORMATS[options.get("format") or "plain"]
        target, model = options.get("target") or "", options.get("model") or ""
        how = {"may_refuse_each": may_refuse_each, "same_language": bool(options.get("same_language"))}
        try:
            return (yield from find_sources(ask, texts, target, text_format, model, **how))
        except NotTranslated as error:
            raise refusal_error(error) from None

    def find_source(self, texts: str | Sequence[str], options: TranslateOptions) -> Exchange[str]:
        """The language that texts are translated from, all of them together; the target if they are in it already."""
        several, _ = self.check(texts, {**options, "source": AUTO})
        (source,) = yield from self._sources(["\n".join(several)], options, may_refuse_each=False)
        return source.tag_for(options.get("target") or "")

    def translate_document(
        self, name: str, content: bytes, column: str | int, options: TranslateOptions
    ) -> Exchange[DocumentResult]:
        """The translation of a file."""
        self.check((), options)
        exchanges = self.find_source, self.translate, self.list_models
        return (yield from translate_document(name, content, column, options, *exchanges))

    def _ask(self, deadline: float, method: Method[Any], request: Message) -> Exchange[Any]:
        """As `call_until`; the list of models may be one of a moment ago, because every text needs it."""
        if method is not LIST_MODELS:
            return (yield from self.call_until(deadline, method, request))
        if self._kept is None or self._kept[0] < self.clock():
            self._kept = self.clock() + MODELS_SECONDS, (yield from self._models(deadline))
        return self._kept[1]

    def score(self, pairs: Sequence[tuple[str, str]], options: ScoreOptions) -> Exchange[list[ScoreResult]]:
        """A result for each (source, target) pair, errors included."""
        check_options(options, ScoreOptions)
        check_named(options.get("source"), "score")
        several = pairs_of(pairs)

        def ask(begin: int, end: int, deadline: float) -> Exchange[list[ScoreResult]]:
            request = score_request(several[begin:end], options)
            return check_count(score_results((yield from self.call_until(deadline, SCORE, request))), end - begin)

        timeout = options.get("timeout")
        return (yield from self._collect(several, [], timeout, ask, lambda error: ScoreResult(error=error)))

    def streams(
        self, texts: str | Sequence[str], options: TranslateOptions
    ) -> Exchange[list[StreamPart | StreamEvent]]:
        """The streams that translate the texts, one after the other, and the events of those that stay as they are."""
        several, prefixes = self.check(texts, options)
        found: list[StreamPart | StreamEvent] = []
        for way in (yield from self._ways(several, prefixes, options)):
            if way.answers is not None:
                found += way.events()
                continue
            timeout = options.get("timeout")
            for begin, end, deadline in (yield from self._requests_of(way.texts, way.prefixes, timeout)):
                request = way.request(pb.TranslateStreamRequest, begin, end, options)
                # Streams of another language begin later, and have their time limit then.
                found.append(StreamPart(request, way.places[begin:end], None if found else deadline))
        return found

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

    def detect_languages(self, texts: str | Sequence[str], *, same_language: bool = False) -> Exchange[Any]:
        """For one text its languages, the likeliest first; for several those of each."""
        several, deadline = texts_of(texts), self._deadline(None)
        most = yield from self._limit_of_texts(len(several), deadline)
        detected = yield from detect(partial(self.call_until, deadline), several, most, same_language=same_language)
        found = [tuple(DetectedLanguage(*each) for each in languages) for languages in detected]
        return found[0] if isinstance(texts, str) else found

    def health(self, service: str) -> Exchange[str]:
        """One of HEALTH_STATES; a service that the server does not know raises a ServerError NOT_FOUND."""
        request = write_request(HealthCheckRequest, value=service)
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
