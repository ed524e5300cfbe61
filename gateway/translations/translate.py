"""Translates the texts of a request of any API: finds their languages, and joins the results of their calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from google.rpc import code_pb2

from lingon.client.protocol.languages import detect as detect_languages
from lingon.client.protocol.languages import find_sources
from lingon.client.values.messages import write_request
from lingon.errors import ServerError, UnknownModel
from lingon.gateway.backend import Backend, Caller
from lingon.gateway.requests.problem import Problem, problem_of
from lingon.gateway.translations.calls import Calls, Piece
from lingon.gateway.translations.languages import most_beams, stays_unchanged, untranslated
from lingon.language_pairs import Pairs, is_one_language
from lingon.source_language import DETECTED_CHARACTERS, NotTranslated, Source, assumed, by_way
from lingon.status import server_error
from lingon.translation.v1 import translation_pb2 as pb

LANGUAGE_FIELDS = "source_language_code", "target_language_code"


@dataclass(frozen=True, slots=True)
class Wanted:
    """How texts are to be translated.

    source: language tag; empty to detect it for each text
    alternatives: further translations of each text, as many as the model can give
    unchanged: whether the texts are in the target language, and stay as they are
    """

    target: str
    source: str = ""
    text: pb.TextOptions = field(default_factory=pb.TextOptions)
    options: pb.DecodingOptions = field(default_factory=pb.DecodingOptions)
    alternatives: int = 0
    unchanged: bool = False


@dataclass(frozen=True, slots=True)
class Translated:
    """A text that was translated.

    source: its language, given or detected
    """

    text: str
    source: Source
    alternatives: tuple[str, ...] = ()


async def translate(backend: Backend, texts: Sequence[str], wanted: Wanted, caller: Caller) -> list[Translated]:
    """Return the translations of texts, in their order.

    Raises Problem, which names the text, if one cannot be translated: most APIs have no place for an error of one text.
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
        known = Source(wanted.source, 1.0, stays=wanted.unchanged)
        sources = [known] * len(texts)
    else:
        sources = await detect(backend, texts, caller, wanted)
    found: dict[int, Translated] = {}
    for (language, stays), places in by_way(sources).items():
        some, languages = [texts[place] for place in places], [sources[place] for place in places]
        if stays:
            results = [Translated(text, each) for text, each in zip(some, languages, strict=True)]
        else:
            results = await _of_one_language(backend, some, languages, language, wanted, caller)
        found.update(zip(places, results, strict=True))
    return [found[place] for place in range(len(texts))]


async def if_unchanged(backend: Backend, wanted: Wanted, caller: Caller) -> Wanted:
    """Return how texts are to be translated: not at all if their language is the target, which has no model."""
    if not wanted.source or not is_one_language(wanted.source, wanted.target):
        return wanted
    models = await backend.models(caller, fresh=False)
    return replace(wanted, unchanged=stays_unchanged(models, wanted.source, wanted.target))


async def detect(backend: Backend, texts: Sequence[str], caller: Caller, wanted: Wanted) -> list[Source]:
    """Return the language of each text that is to be translated; raises Problem if no model translates from it."""
    exchange = find_sources(backend.ask, texts, wanted.target, wanted.text.format)
    try:
        return await backend.drive(exchange, caller)
    except NotTranslated as error:
        if error.side == "target":
            raise untranslated(await backend.models(caller, fresh=False), "", wanted.target) from None
        raise Problem(400, str(error), reason=UnknownModel.reason, field=error.side) from None


async def likeliest(backend: Backend, texts: Sequence[str], caller: Caller) -> list[Source]:
    """Return the likeliest language of each text; if nothing was detected, the one that its script leaves first."""
    starts = [text[:DETECTED_CHARACTERS] for text in texts]
    detected = await backend.drive(detect_languages(backend.ask, starts, await _most(backend, caller)), caller)
    served = Pairs.of(await backend.models(caller, fresh=False)).sources or ["en"]
    return [
        Source(*found[0]) if found else Source(assumed(text, served), 0.0)
        for text, found in zip(starts, detected, strict=True)
    ]


async def _most(backend: Backend, caller: Caller) -> int:
    return max((await backend.models(caller, fresh=False)).max_texts, 1)


async def _of_one_language(
    backend: Backend, texts: Sequence[str], languages: Sequence[Source], source: str, wanted: Wanted, caller: Caller
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
    )
    most = len(texts) if len(texts) == 1 else await _most(backend, caller)
    found = await Calls(backend, caller, like).pieces(texts, most)
    return [
        _joined(pieces, place, len(texts), language)
        for place, (pieces, language) in enumerate(zip(found, languages, strict=True))
    ]


def _joined(pieces: Sequence[Piece], place: int, count: int, language: Source) -> Translated:
    """Return the translation of a text of its pieces; place: its index among so many texts, for an error."""
    try:
        found = [_hypotheses(result) for _, result in pieces]
    except ServerError as error:
        problem = problem_of(error)
        if count > 1 and problem.reason != UnknownModel.reason:
            problem.args = (f"text {place + 1}: {problem}",)
        raise problem from None
    best, *others = ["".join(texts) for texts in zip(*found, strict=False)]
    return Translated(best, language, tuple(dict.fromkeys(each for each in others if each != best)))


def _hypotheses(result: pb.TextResult | ServerError) -> list[str]:
    """Return the translations of a piece, the best first; raises ServerError."""
    if isinstance(result, ServerError):
        raise result
    if result.status.code == code_pb2.OK:
        return [each.text for each in result.hypotheses]
    raise server_error(result.status)
