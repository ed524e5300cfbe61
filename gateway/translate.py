"""Translation of the texts of a request of any API: finds their languages, and joins the results of their calls.

A call has at most as many texts as the server accepts. It is repeated while the server is full.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from babel import Locale, UnknownLocaleError
from google.rpc import code_pb2

from lingon.client.large_texts import ask_in_halves
from lingon.client.messages import MAX_BYTES, cut, write_request
from lingon.client.protocol import ClientProtocol, find_sources
from lingon.client.protocol import detect as detect_languages
from lingon.client.steps import TRANSLATE, Exchange, Retry
from lingon.errors import ServerError, TextTooLong, UnknownModel
from lingon.gateway.backend import Backend, Caller
from lingon.gateway.problem import Problem, problem_of
from lingon.language_tags import ServedPairs, is_one_language, pairs_of, pivots_of, primary, serves
from lingon.segments.halves import halves
from lingon.source_language import DETECTED_CHARACTERS, NotTranslated, TextLanguage, assumed, by_way
from lingon.status import server_error
from lingon.translation.v1 import translation_pb2 as pb

SHOWN = 40  # characters of a language in a message


class Untranslated(Problem):
    """A pair of languages without a model.

    side: the side whose language no model has; empty if models have both, but not together
    language: that language
    known: whether a model has it on the other side
    """

    def __init__(
        self, refused: Problem, message: str, side: Literal["source", "target", ""], language: str, *, known: bool
    ) -> None:
        """refused: the problem of the pair, without its side."""
        super().__init__(refused.http_status, message, code=refused.code, reason=UnknownModel.reason, field=side)
        self.side, self.language, self.known = side, language, known


def untranslated(
    models: pb.ListModelsResponse, source: str, target: str, refused: Problem | None = None
) -> Untranslated:
    """Return the error of a pair that no model translates.

    source: empty for any; refused: the server's error for a request with the pair, or None
    """
    pairs, message = ServedPairs.of(models), ""
    refused = refused or Problem(400, "")
    if refused.reason == UnknownModel.reason:  # other errors name a field that has another name here
        message = str(refused)
    if not _has(pairs.targets, target):
        message = message or f"no model translates into {target[:SHOWN]!r}"
        return Untranslated(refused, message, "target", target, known=_has(pairs.sources, target))
    message = message or f"no model translates from {source[:SHOWN]!r} to {target[:SHOWN]!r}"
    if not _has(pairs.sources, source):
        return Untranslated(refused, message, "source", source, known=_has(pairs.targets, source))
    return Untranslated(refused, message, "", source, known=True)


def _has(tags: Iterable[str], wanted: str) -> bool:
    return any(serves(tag, wanted) for tag in tags)


def check_pair(models: pb.ListModelsResponse, source: str, target: str) -> None:
    """Raise Untranslated if no model translates a pair of languages; source: empty for any."""
    pairs = ServedPairs.of(models).pairs
    if not any((not source or serves(one, source)) and serves(other, target) for one, other in pairs):
        raise untranslated(models, source, target)


def _models_of(models: pb.ListModelsResponse, source: str, target: str) -> list[pb.Model]:
    """Return the models that translate between two languages."""
    return [
        model
        for model in models.models
        if any(serves(one, source) and serves(other, target) for one, other in pairs_of(model))
    ]


def most_beams(models: pb.ListModelsResponse, source: str, target: str, wanted: int) -> int:
    """Return `wanted` beams, or as many as the models between two languages allow, or the models out of the pivot."""
    found = _models_of(models, source, target) or [
        model for pivot in pivots_of(models) for model in _models_of(models, pivot, target)
    ]
    return min([wanted, *(model.max_beam_size for model in found)])


def stays_unchanged(models: pb.ListModelsResponse, source: str, target: str) -> bool:
    """Return whether source and target are one served language without a model between its varieties."""
    known = ServedPairs.of(models)
    served = any(is_one_language(tag, source) for tag in (*known.sources, *known.targets))
    return served and not _models_of(models, source, target)


@functools.lru_cache(maxsize=4096)
def name_of(tag: str) -> str:
    """Return the English name of a language, or its tag if it has none."""
    try:
        return Locale.parse(tag.replace("_", "-"), sep="-").get_display_name("en") or tag
    except (UnknownLocaleError, ValueError):
        names = Locale("en").languages
        return str(names.get(primary(tag), tag))


IN_FLIGHT = 2  # calls for one request: one is decoded while the next is planned

ONCE = Retry(retries=0)
PATIENT = Retry(retries=0, longest_pause=1.0, wait_when_full=True)

Result = pb.TextResult | ServerError
Piece = tuple[str, Result]
"""A text, or a part of a text that was too large for a call, with its result."""


class Calls:
    """The calls of one HTTP request.

    A full server refuses a single call at once, unless it is in the background. Several calls wait for each other in
        the queue, each with the time limit of a call.
    """

    def __init__(self, backend: Backend, caller: Caller, like: pb.TranslateRequest) -> None:
        """like: a request without texts."""
        self._backend, self._caller, self._like = backend, caller, like
        self._limit = asyncio.Semaphore(IN_FLIGHT)

    async def pieces(self, texts: Sequence[str], most: int) -> list[list[Piece]]:
        """Return the pieces of each text; most: texts of one call."""
        parts = [part for _, part in cut(texts, most)]
        if len(parts) == 1:
            return await self._part(texts, patient=self._caller.in_background)
        found = await _all(self._part(part, patient=True) for part in parts)
        return [pieces for part in found for pieces in part]

    async def _part(self, texts: Sequence[str], *, patient: bool) -> list[list[Piece]]:
        if len(texts) == 1 and len(texts[0].encode()) > MAX_BYTES and (halved := await self._halved(texts[0])):
            return [halved]
        async with self._limit:
            results = await self._send(texts, patient=patient)
        return [await self._whole(text, result) for text, result in zip(texts, results, strict=True)]

    async def _send(self, texts: Sequence[str], *, patient: bool) -> list[Result]:
        """Return a result for each text, or an error for a text that is too large for a call by itself."""

        def ask(begin: int, end: int, _: float) -> Exchange[list[Result]]:
            protocol = ClientProtocol(retry=PATIENT if patient or end - begin < len(texts) else ONCE)
            request = write_request(pb.TranslateRequest, texts=texts[begin:end])
            request.MergeFrom(self._like)
            deadline = time.monotonic() + self._caller.seconds(self._backend.timeout)
            reply = yield from protocol.call_until(deadline, TRANSLATE, request)
            return list(reply.results)

        exchange = ask_in_halves(ask, lambda error: error, 0, len(texts), 0.0)
        return await self._backend.drive(exchange, self._caller)

    async def _whole(self, text: str, result: Result) -> list[Piece]:
        """Return the piece of a text, or the pieces of its halves if it was too large."""
        halved = await self._halved(text) if _is_too_large(result) else None
        return halved or [(text, result)]

    async def _halved(self, text: str) -> list[Piece] | None:
        """Return the pieces of a text in two parts, or None if it cannot be cut."""
        # A thread, because a text of megabytes would block the event loop for too long.
        both = await asyncio.to_thread(halves, text, self._like.text, self._like.source_language_code)
        if both is None:
            return None
        return [piece for half in both for pieces in await self._part([half], patient=True) for piece in pieces]


def _is_too_large(result: Result) -> bool:
    """Return whether a text was refused for its size. Its parts may be accepted."""
    if isinstance(result, ServerError):
        return True
    return result.status.code == TextTooLong.code and server_error(result.status).reason == TextTooLong.reason


async def _all(work: Iterable[Coroutine[Any, Any, list[list[Piece]]]]) -> list[list[list[Piece]]]:
    """Return all results. The first error cancels the other calls."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


LANGUAGE_FIELDS = "source_language_code", "target_language_code"


@dataclass(frozen=True, slots=True)
class Wanted:
    """The translation that a request asks for.

    source: language tag; empty to detect it for each text
    alternatives: further translations of each text, as many as the model can give
    unchanged: whether the texts are in the target language and stay unchanged
    glossaries: names of glossaries of the caller
    memory: which translation memories of the caller are used; None for none
    """

    target: str
    source: str = ""
    text: pb.TextOptions = field(default_factory=pb.TextOptions)
    options: pb.DecodingOptions = field(default_factory=pb.DecodingOptions)
    alternatives: int = 0
    unchanged: bool = False
    glossaries: tuple[str, ...] = ()
    memory: pb.MemoryOptions | None = None


@dataclass(frozen=True, slots=True)
class Translated:
    """A translated text.

    source: its language, given or detected
    """

    text: str
    source: TextLanguage
    alternatives: tuple[str, ...] = ()


async def translate(backend: Backend, texts: Sequence[str], wanted: Wanted, caller: Caller) -> list[Translated]:
    """Return the translations of texts, in their order.

    Raises Problem, which names the text, if one cannot be translated. Most APIs have no field for an error of one text.
    It is Untranslated if no model translates the pair that the request names.
    """
    if not texts:
        return []
    try:
        return await _translate(backend, texts, wanted, caller)
    except (ServerError, Problem) as error:
        problem = problem_of(error) if isinstance(error, ServerError) else error
        if not wanted.source or (problem.reason != UnknownModel.reason and problem.field not in LANGUAGE_FIELDS):
            raise
        models = await backend.models(caller, fresh=False)
        raise untranslated(models, wanted.source, wanted.target, problem) from None


async def _translate(backend: Backend, texts: Sequence[str], wanted: Wanted, caller: Caller) -> list[Translated]:
    if wanted.source:
        known = TextLanguage(wanted.source, 1.0, stays=wanted.unchanged)
        sources = [known] * len(texts)
    else:
        sources = await detect(backend, texts, caller, wanted)
    found: dict[int, Translated] = {}
    for (language, stays), indices in by_way(sources).items():
        some, languages = [texts[index] for index in indices], [sources[index] for index in indices]
        if stays:
            results = [Translated(text, each) for text, each in zip(some, languages, strict=True)]
        else:
            results = await _of_one_language(backend, some, languages, language, wanted, caller)
        found.update(zip(indices, results, strict=True))
    return [found[index] for index in range(len(texts))]


async def if_unchanged(backend: Backend, wanted: Wanted, caller: Caller) -> Wanted:
    """Return `wanted`, marked as unchanged if its languages are one language without a model."""
    if not wanted.source or not is_one_language(wanted.source, wanted.target):
        return wanted
    models = await backend.models(caller, fresh=False)
    return replace(wanted, unchanged=stays_unchanged(models, wanted.source, wanted.target))


async def detect(backend: Backend, texts: Sequence[str], caller: Caller, wanted: Wanted) -> list[TextLanguage]:
    """Return the language of each text that is to be translated. Raises Problem if no model translates from it."""
    exchange = find_sources(backend.ask, texts, wanted.target, wanted.text.format)
    try:
        return await backend.drive(exchange, caller)
    except NotTranslated as error:
        if error.side == "target":
            raise untranslated(await backend.models(caller, fresh=False), "", wanted.target) from None
        raise Problem(400, str(error), reason=UnknownModel.reason, field=error.side) from None


async def likeliest(backend: Backend, texts: Sequence[str], caller: Caller) -> list[TextLanguage]:
    """Return the likeliest language of each text, or the first one of its script if none was detected."""
    starts = [text[:DETECTED_CHARACTERS] for text in texts]
    detected = await backend.drive(detect_languages(backend.ask, starts, await _most(backend, caller)), caller)
    served = ServedPairs.of(await backend.models(caller, fresh=False)).sources or ["en"]
    return [
        TextLanguage(*found[0]) if found else TextLanguage(assumed(text, served), 0.0)
        for text, found in zip(starts, detected, strict=True)
    ]


async def _most(backend: Backend, caller: Caller) -> int:
    return max((await backend.models(caller, fresh=False)).max_texts, 1)


async def _of_one_language(
    backend: Backend,
    texts: Sequence[str],
    languages: Sequence[TextLanguage],
    source: str,
    wanted: Wanted,
    caller: Caller,
) -> list[Translated]:
    options = pb.DecodingOptions(long_text=pb.LONG_TEXT_POLICY_SPLIT)
    options.MergeFrom(wanted.options)
    if wanted.alternatives:
        models = await backend.models(caller, fresh=False)
        options.beam_size = most_beams(models, source, wanted.target, max(wanted.alternatives + 1, 4))
        options.num_hypotheses = min(wanted.alternatives + 1, options.beam_size)
    like = write_request(
        pb.TranslateRequest,
        source_language_code=source,
        target_language_code=wanted.target,
        options=options,
        text=wanted.text,
        glossaries=wanted.glossaries,
        memory=wanted.memory,
    )
    most = len(texts) if len(texts) == 1 else await _most(backend, caller)
    found = await Calls(backend, caller, like).pieces(texts, most)
    return [
        _joined(pieces, index, len(texts), language)
        for index, (pieces, language) in enumerate(zip(found, languages, strict=True))
    ]


def _joined(pieces: Sequence[Piece], index: int, count: int, language: TextLanguage) -> Translated:
    """Return the translation of a text from its pieces; index: number of the text among `count`, for an error."""
    try:
        found = [_hypotheses(result) for _, result in pieces]
    except ServerError as error:
        problem = problem_of(error)
        if count > 1 and problem.reason != UnknownModel.reason:
            problem.args = (f"text {index + 1}: {problem}",)
        raise problem from None
    best, *others = ["".join(texts) for texts in zip(*found, strict=False)]
    return Translated(best, language, tuple(dict.fromkeys(each for each in others if each != best)))


def _hypotheses(result: pb.TextResult | ServerError) -> list[str]:
    """Return the translations of a piece, the best first. Raises ServerError."""
    if isinstance(result, ServerError):
        raise result
    if result.status.code == code_pb2.OK:
        return [each.text for each in result.hypotheses]
    raise server_error(result.status)
