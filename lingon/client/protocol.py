"""The exchanges of every call, which `Client`, `AsyncClient` and `Model` all drive.

`ClientProtocol` comes first; then how the language of texts is found, streams are joined, and documents are translated.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message
from google.rpc import code_pb2

from lingon.client.large_texts import ask_in_halves, check_count, in_halves
from lingon.client.messages import (
    Item,
    Request,
    check_options,
    cut,
    keep_lists,
    live_start,
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
from lingon.client.options import FORMATS, LiveOptions, ScoreOptions, TranslateOptions
from lingon.client.results import (
    DetectedLanguage,
    DocumentResult,
    ModelInfo,
    ScoreResult,
    StreamEvent,
    StreamStart,
    TextDelta,
    TextDone,
    TextResult,
    Translation,
)
from lingon.client.steps import (
    DETECT_LANGUAGES,
    HEALTH,
    HEALTH_STATES,
    LIST_MODELS,
    LIVE,
    SCORE,
    STREAM,
    TRANSLATE,
    Compute,
    Exchange,
    HealthCheckRequest,
    Method,
    Reply,
    Result,
    Retry,
    Send,
    Sleep,
)
from lingon.errors import ServerError, SettingsError, UnknownModel
from lingon.language_tags import ServedPairs, is_one_language
from lingon.source_language import (
    AUTO,
    NotTranslated,
    Probabilities,
    TextLanguage,
    by_way,
    check_named,
    sources_of,
    starts_of,
    takes_long,
)
from lingon.translation.v1 import translation_pb2 as pb

if TYPE_CHECKING:
    from lingon.documents import Document

Sendable = Message | Iterable[Message]
"""What `Send.request` may be."""

MODELS_SECONDS = 2.0  # for which the list of models is kept that tells what a detected language is translated into


@dataclass(kw_only=True)
class ClientProtocol:
    """The exchanges of one client.

    timeout: seconds for each request, its retries included. The first request of a list shares its timeout with the
        request that asks the server for its limit of texts
    max_texts: texts in one request, or None until the server has been asked
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

    def call(self, method: Method[Reply], request: Sendable, timeout: float | None = None) -> Exchange[Reply]:
        """Return one request, repeated as `retry` decides. No try begins or ends after the deadline."""
        return (yield from self.call_until(self._deadline(timeout), method, request))

    def _deadline(self, timeout: float | None) -> float:
        return self.clock() + _check_timeout(self.timeout if timeout is None else timeout)

    def call_until(self, deadline: float, method: Method[Reply], request: Sendable) -> Exchange[Reply]:
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
        """Return the texts and the prefix of each. Raises SettingsError or TypeError for arguments that cannot be sent.

        Iterators among the options become lists, because several requests may need them.
        """
        read = self._read(texts, options)
        translate_request(pb.TranslateRequest, [], [], options)
        return read

    def _read(self, texts: str | Sequence[str], options: TranslateOptions) -> tuple[list[str], list[str]]:
        """As `check`, without the checks that `translate_request` does for a request."""
        check_options(options, TranslateOptions)
        keep_lists(options)
        if options.get("source") == AUTO and not options.get("target"):
            raise SettingsError('the source language "auto" needs a target language')
        if options.get("same_language") and options.get("source") != AUTO:
            raise SettingsError(f'same_language needs the source "{AUTO}", got {options.get("source")!r}')
        several = texts_of(texts)
        self._deadline(options.get("timeout"))
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
        """Return a copy for calls that fill the queue of the server together: they wait for each other."""
        return replace(self, retry=replace(self.retry, wait_when_full=True))

    def translate(self, texts: str | Sequence[str], options: TranslateOptions, first: int = 0) -> Exchange[Any]:
        """Return the result of one text or raise its error, or return for several texts a result for each, errors
        included.

        first: the index of the first text in the caller's list, if these are a part of it
        """
        at_once = isinstance(texts, str) and options.get("source") != AUTO  # the only request is the first step
        several, prefixes = (self._read if at_once else self.check)(texts, options)
        found: dict[int, TextResult] = {}
        for way in (yield from self._ways(several, prefixes, options)):
            results = (yield from self._translated(way, options, first)) if way.answers is None else way.answers
            found.update(zip(way.positions, results, strict=True))
        if not isinstance(texts, str):
            return [found[position] for position in range(len(several))]
        if found[0].error is not None:
            raise found[0].error
        return found[0]

    def _translated(self, way: Way, options: TranslateOptions, first: int) -> Exchange[list[TextResult]]:
        """Return the results of texts of one language; first: added to the index of each in the seed of its random
        numbers.
        """

        def ask(begin: int, end: int, deadline: float) -> Exchange[list[TextResult]]:
            request = way.request(pb.TranslateRequest, begin, end, options, first)
            reply = yield from self.call_until(deadline, TRANSLATE, request)
            return check_count(text_results(reply, way.source), end - begin)

        def refused(error: ServerError) -> TextResult:
            return TextResult(error=error, source=way.source)

        results = yield from self._collect(way.texts, way.prefixes, options.get("timeout"), ask, refused)
        for position, result in enumerate(results):
            if result.error is not None:
                results[position] = yield from self._in_halves(way, position, result, options, first)
        return results

    def _in_halves(
        self, way: Way, position: int, result: TextResult, options: TranslateOptions, first: int
    ) -> Exchange[TextResult]:
        """Return the result of a text that was refused, of its halves if it has more sentences than a request may
        have.
        """

        def ask(text: str, prefix: str) -> Exchange[TextResult]:
            part = replace(way, texts=[text], prefixes=[prefix] if prefix else [], positions=[0])

            def ask_part(begin: int, end: int, deadline: float) -> Exchange[list[TextResult]]:
                request = part.request(pb.TranslateRequest, begin, end, options, first + position)
                reply = yield from self.call_until(deadline, TRANSLATE, request)
                return check_count(text_results(reply, way.source), end - begin)

            def refused(error: ServerError) -> TextResult:
                return TextResult(error=error, source=way.source)

            (found,) = yield from ask_in_halves(ask_part, refused, 0, 1, self._deadline(options.get("timeout")))
            return found

        asked = way.request(pb.TranslateRequest, 0, 0, options).text
        prefix = way.prefixes[position] if way.prefixes else ""
        return (
            yield from in_halves(way.texts[position], prefix, result, asked, {**options, "source": way.source}, ask)
        )

    def _ways(self, texts: list[str], prefixes: list[str], options: TranslateOptions) -> Exchange[list[Way]]:
        """Return the texts by their source language, which is detected if it is to be."""
        source = options.get("source") or ""
        if source != AUTO:
            return [Way(source, range(len(texts)), texts, prefixes)]
        if not texts:
            return []
        return ways_of((yield from self._sources(texts, options, may_refuse_each=True)), texts, prefixes)

    def _sources(
        self, texts: Sequence[str], options: TranslateOptions, *, may_refuse_each: bool
    ) -> Exchange[list[TextLanguage]]:
        """Return the source language of each text; may_refuse_each: see `sources_of`."""
        ask = partial(self._ask, self._deadline(options.get("timeout")))
        text_format = FORMATS[options.get("format") or "plain"]
        target, model = options.get("target") or "", options.get("model") or ""
        how = {"may_refuse_each": may_refuse_each, "same_language": bool(options.get("same_language"))}
        try:
            return (yield from find_sources(ask, texts, target, text_format, model, **how))
        except NotTranslated as error:
            raise refusal_error(error) from None

    def find_source(self, texts: str | Sequence[str], options: TranslateOptions) -> Exchange[str]:
        """Return the language that texts are translated from, all of them together; the target if they are in it
        already.
        """
        several, _ = self.check(texts, {**options, "source": AUTO})
        (source,) = yield from self._sources(["\n".join(several)], options, may_refuse_each=False)
        return source.tag_for(options.get("target") or "")

    def translate_document(
        self, name: str, content: bytes, column: str | int, options: TranslateOptions
    ) -> Exchange[DocumentResult]:
        """Return the translation of a file."""
        self.check((), options)
        exchanges = self.find_source, self.translate, self.list_models
        return (yield from translate_document(name, content, column, options, *exchanges))

    def _ask(self, deadline: float, method: Method[Any], request: Message) -> Exchange[Any]:
        """As `call_until`. The list of models may be one of a moment ago, because every text needs it."""
        if method is not LIST_MODELS:
            return (yield from self.call_until(deadline, method, request))
        if self._kept is None or self._kept[0] < self.clock():
            self._kept = self.clock() + MODELS_SECONDS, (yield from self._models(deadline))
        return self._kept[1]

    def score(self, pairs: Sequence[tuple[str, str]], options: ScoreOptions) -> Exchange[list[ScoreResult]]:
        """Return a result for each (source, target) pair, errors included."""
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
        """Return the streams that translate the texts, one after the other, and the events of those that stay as they
        are.
        """
        several, prefixes = self.check(texts, options)
        found: list[StreamPart | StreamEvent] = []
        for way in (yield from self._ways(several, prefixes, options)):
            if way.answers is not None:
                found += way.events()
                continue
            timeout = options.get("timeout")
            for begin, end, deadline in (yield from self._requests_of(way.texts, way.prefixes, timeout)):
                for request, positions in way.streams(begin, end, options):
                    # Streams of another language begin later, and have their time limit then.
                    found.append(StreamPart(request, positions, None if found else deadline))
        return found

    def begin(self, part: StreamPart, options: TranslateOptions) -> Exchange[Any]:
        """Start a stream and return its first message and the iterator of the others."""
        deadline = self._deadline(options.get("timeout")) if part.deadline is None else part.deadline
        return (yield from self.call_until(deadline, STREAM, part.request))

    def live_start(self, options: LiveOptions) -> pb.TranslateLiveRequest:
        """Return the first message of a speaker. Raises SettingsError or TypeError for options that cannot be sent."""
        check_options(options, LiveOptions)
        self._deadline(options.get("timeout"))
        return live_start(options)

    def begin_live(self, start: pb.TranslateLiveRequest, options: LiveOptions) -> Exchange[Any]:
        """Begin the call of a speaker and return the first message of the server, and the talk of the others."""
        return (yield from self.call(LIVE, start, options.get("timeout")))

    def _requests_of(
        self, items: Sequence[Item], prefixes: Sequence[str], timeout: float | None
    ) -> Exchange[list[tuple[int, int, float | None]]]:
        """Return for each request of a list the indices of its first and its last item plus one, and its deadline.

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
        """Return the results of all items; ask: sends the request of items begin to end; refused: the result of an
        error.
        """
        results: list[Result] = []
        for begin, end, deadline in (yield from self._requests_of(items, prefixes, timeout)):
            until = self._deadline(timeout) if deadline is None else deadline
            results += yield from ask_in_halves(ask, refused, begin, end, until)
        return results

    def list_models(self) -> Exchange[list[ModelInfo]]:
        """Return the models that the server serves."""
        return model_infos((yield from self._models(self._deadline(None))))

    def detect_languages(self, texts: str | Sequence[str], *, same_language: bool = False) -> Exchange[Any]:
        """Return the languages of one text, the likeliest first, or those of each of several."""
        several, deadline = texts_of(texts), self._deadline(None)
        most = yield from self._limit_of_texts(len(several), deadline)
        detected = yield from detect(partial(self.call_until, deadline), several, most, same_language=same_language)
        found = [tuple(DetectedLanguage(*each) for each in languages) for languages in detected]
        return found[0] if isinstance(texts, str) else found

    def health(self, service: str) -> Exchange[str]:
        """Return one of HEALTH_STATES. A service that the server does not know raises a ServerError NOT_FOUND."""
        request = write_request(HealthCheckRequest, value=service)
        reply = yield from self.call(HEALTH, request)
        return HEALTH_STATES[reply.value] if 0 <= reply.value < len(HEALTH_STATES) else "UNKNOWN"

    def _limit_of_texts(self, wanted: int, deadline: float) -> Exchange[int]:
        """Return the limit of texts in one request. The server is asked once, by the first list of several texts."""
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


DEFAULT_MAX_TEXTS = 256
"""Texts in one request if the server does not report its limit."""

Ask = Callable[[Method[Any], Message], Exchange[Any]]
"""Sends a request and returns the reply."""


def detect(ask: Ask, texts: Sequence[str], most: int, *, same_language: bool = False) -> Exchange[list[Probabilities]]:
    """Return the languages of each text with their probabilities, the likeliest first.

    most: texts of a request
    same_language: whether the texts of a request are in one language
    """
    found: list[Probabilities] = []
    for _, part in cut(texts, most):
        reply = yield from ask(
            DETECT_LANGUAGES, write_request(pb.DetectLanguagesRequest, texts=part, same_language=same_language)
        )
        results: list[Probabilities] = [
            [(each.language_code, each.confidence) for each in one.languages] for one in reply.results
        ]
        found += check_count(results, len(part))
    return found


def find_sources(
    ask: Ask,
    texts: Sequence[str],
    target: str,
    text_format: pb.TextFormat.ValueType,
    model: str = "",
    *,
    may_refuse_each: bool = False,
    same_language: bool = False,
) -> Exchange[list[TextLanguage]]:
    """Return the language that each text is translated from. Raises NotTranslated.

    model: "name" or "name/version" of the model that translates, empty for any
    same_language: see `detect`
    may_refuse_each: see `sources_of`
    """
    read = partial(starts_of, texts, text_format)
    starts: list[str] = (yield Compute(read)) if takes_long(texts, text_format) else read()
    models: pb.ListModelsResponse = yield from ask(LIST_MODELS, pb.ListModelsRequest())
    detected = yield from detect(ask, starts, models.max_texts or DEFAULT_MAX_TEXTS, same_language=same_language)
    served = ServedPairs.of(_named(models, model) if model else models).sources_of(target)
    is_target = partial(is_one_language, target)
    return sources_of(starts, detected, served, target, is_target, may_refuse_each=may_refuse_each)


@dataclass(frozen=True, slots=True)
class Way:
    """The texts of a list that are translated from one language.

    source: the language, empty for that of the model
    positions: the indices of the texts in the list
    prefixes: the prefix of each translation, or an empty list
    answers: their results if they are not sent to a server
    """

    source: str
    positions: Sequence[int]
    texts: list[str]
    prefixes: list[str]
    answers: Sequence[TextResult] | None = None

    def request(self, kind: type[Request], begin: int, end: int, options: TranslateOptions, first: int = 0) -> Request:
        """Return the request for the texts `begin` to `end` of these; first: see `translate_request`, of the first
        text.
        """
        options = {**options, "source": self.source}
        return translate_request(kind, self.texts[begin:end], self.prefixes[begin:end], options, first + begin)

    def streams(
        self, begin: int, end: int, options: TranslateOptions
    ) -> Iterator[tuple[pb.TranslateStreamRequest, Sequence[int]]]:
        """Yield the requests of streams for the texts `begin` to `end`, several if these have more terms than one may
        have, and the indices of their texts.
        """
        try:
            yield self.request(pb.TranslateStreamRequest, begin, end, options), self.positions[begin:end]
        except ServerError:
            if end - begin < 2:
                raise
            middle = (begin + end) // 2
            yield from self.streams(begin, middle, options)
            yield from self.streams(middle, end, options)

    def events(self) -> list[StreamEvent]:
        """Return the events of texts that are not sent to a server."""
        found: list[StreamEvent] = []
        for position, result in zip(self.positions, self.answers or (), strict=True):
            if result.error is None:
                found.append(TextDelta(position, result.text))
            found.append(TextDone(position, result))
        return found


def ways_of(sources: Sequence[TextLanguage], texts: Sequence[str], prefixes: Sequence[str]) -> list[Way]:
    """Return the texts of a list by their languages. Those that are refused, and those that stay, have their
    results.
    """
    found = []
    for (language, stays), positions in by_way(sources).items():
        some = [texts[position] for position in positions]
        answers = [_unchanged(text, language) for text in some] if stays else None
        found.append(
            Way(language, positions, some, [prefixes[position] for position in positions] if prefixes else [], answers)
        )
    for position, source in enumerate(sources):
        if source.refusal is not None:
            refused = TextResult(error=refusal_error(source.refusal), source=source.language)
            found.append(Way(source.language, [position], [texts[position]], [], [refused]))
    return found


def _unchanged(text: str, language: str) -> TextResult:
    """Return the result of a text in the target language: itself, which is certain."""
    return TextResult((Translation(text, 0.0, "end"),), source=language)


def refusal_error(refusal: NotTranslated) -> ServerError:
    """Return the error of a request or a text that no model translates."""
    violations = ((refusal.side, str(refusal)),)
    return ServerError(str(refusal), UnknownModel.code, reason=UnknownModel.reason, violations=violations)


def _named(models: pb.ListModelsResponse, model: str) -> pb.ListModelsResponse:
    """Return the models of this name; all if there is none, so that the server says so."""
    named = [each for each in models.models if model in (each.name, f"{each.name}/{each.version}")]
    return pb.ListModelsResponse(models=named) if named else models


@dataclass(frozen=True, slots=True)
class StreamPart:
    """One of the streams that translate a long list.

    positions: the indices of its texts in the list
    deadline: on the clock of the protocol, or None if the stream gets a deadline of its own when it begins
    """

    request: pb.TranslateStreamRequest
    positions: Sequence[int]
    deadline: float | None


class StreamReader:
    """A reader that joins the events of the streams of one list into one sequence."""

    def __init__(self) -> None:
        self._start: StreamStart | None = None
        self._done = self._expected = 0

    def read(self, part: StreamPart, message: pb.TranslateStreamResponse | None) -> Iterator[StreamEvent]:
        """Yield the event of a message of this part's stream; the start of a later one only if it has another
        language.
        """
        if message is None:
            return
        event = stream_event(message, self._start, part.positions)
        if isinstance(event, StreamStart):
            begun, self._start = self._start, event
            if begun is not None and begun.source_language == event.source_language:
                return
        self._done += isinstance(event, TextDone)
        yield event

    def end(self, part: StreamPart) -> None:
        """Check at the end of a stream without error that each of its texts is done."""
        self._expected += len(part.positions)
        if self._done != self._expected:
            raise ServerError(f"the stream ended with {self._done} texts done", code_pb2.INTERNAL)


READING = ("format", "splitting_tags", "non_splitting_tags")
"""Options that say how a text is read, which a document says itself."""


def options_of(document: Document, options: TranslateOptions) -> TranslateOptions:
    """Return the options with those by which the texts of a document are read."""
    formats = {number: name for name, number in FORMATS.items()}
    found: TranslateOptions = {
        **options,
        "format": formats.get(document.options.format, "plain"),  # type: ignore[typeddict-item]
        "splitting_tags": list(document.options.splitting_tags),
        "non_splitting_tags": list(document.options.non_splitting_tags),
        "ignore_tags": [*document.options.ignore_tags, *(options.get("ignore_tags") or ())],
    }
    if document.options.keep and not options.get("forced_words"):
        found["keep"] = [*(options.get("keep") or ()), *document.options.keep]
    if options.get("source") == AUTO:  # one language is detected for the whole document
        found["same_language"] = None
    return found


def write(document: Document, results: Sequence[TextResult]) -> bytes:
    """Return the document with its translations. A text that was not translated stays as it is."""
    pairs = zip(document.texts, results, strict=True)
    return document.write([result.text if result.translations else text for text, result in pairs])


def only_target(models: Iterable[ModelInfo], model: str) -> str:
    """Return the language that the models translate to, if it is one, empty if there are several.

    model: "name" or "name/version" of the one to look at, empty for all
    """
    wanted = [each for each in models if model in ("", each.name, f"{each.name}/{each.version}")]
    targets = {target for each in wanted for target in each.target_languages or (each.target_language,)}
    return targets.pop() if len(targets) == 1 else ""


def translate_document(
    name: str,
    content: bytes,
    column: str | int,
    options: TranslateOptions,
    find_source: Callable[[Sequence[str], TranslateOptions], Exchange[str]],
    translate: Callable[[Sequence[str], TranslateOptions], Exchange[list[TextResult]]],
    list_models: Callable[[], Exchange[list[ModelInfo]]],
) -> Exchange[DocumentResult]:
    """Translate the file of this name. Raises UnreadableDocument, or SettingsError for what is no content or no option.

    column: of a table, its name or its number, empty if it is not given
    find_source, translate: exchanges of the texts; list_models: tells the target language of a file that says it
    """
    if not isinstance(content, bytes | bytearray):
        raise SettingsError(f"the content of a document must be bytes, got {type(content).__name__}")
    if given := [each for each in READING if options.get(each) is not None]:
        raise SettingsError(f"{given[0]} is for text; a document says itself how it is written")
    from lingon.documents import read_document, says_target  # 40 ms, which most clients do not need

    source, target = options.get("source") or "", options.get("target") or ""
    if not target and says_target(name):
        target = only_target((yield from list_models()), options.get("model") or "")
    own = "" if source == AUTO else source
    document: Document = yield Compute(partial(read_document, name, content, target, own, str(column)))
    options = options_of(document, options)
    source, target = options.get("source") or "", options.get("target") or ""
    if source == AUTO:
        source = (yield from find_source(document.texts, options)) if document.texts else ""
        if source in ("", target):
            return DocumentResult(content, source, document.characters)
    results: list[TextResult] = yield from translate(document.texts, {**options, "source": source})
    failures = tuple(
        (text, result.error) for text, result in zip(document.texts, results, strict=True) if result.error is not None
    )
    without_terms = tuple(text for text, result in zip(document.texts, results, strict=True) if result.lacks_terms)
    written: bytes = yield Compute(partial(write, document, results))
    return DocumentResult(written, source, document.characters, failures, tuple(document.notes), without_terms)
