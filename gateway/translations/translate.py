"""Translates the texts of a request of any API: finds their languages, and joins the results of their calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from google.rpc import code_pb2

from lingon.client.values.messages import cut, write_request
from lingon.errors import ServerError
from lingon.gateway.backend import Backend, Caller
from lingon.gateway.requests.problem import Problem, problem_of
from lingon.gateway.translations.calls import Calls, Piece
from lingon.gateway.translations.languages import Pairs, is_one_language, most_beams, serves
from lingon.status import server_error
from lingon.translation.v1 import translation_pb2 as pb

SURE = 0.5  # confidence from which on a detected language is believed
DETECTED_CHARACTERS = 2000  # of a text; the server looks at no more of it
EMPTY = "EMPTY_TEXT"  # reason of the error of a text without anything to translate


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
class Detected:
    """The language of a text; confidence: 0 to 1, and 0 if it is only assumed."""

    language: str
    confidence: float


@dataclass(frozen=True, slots=True)
class Translated:
    """A text that was translated.

    source: its language, given or detected
    """

    text: str
    source: Detected
    alternatives: tuple[str, ...] = ()


async def translate(backend: Backend, texts: Sequence[str], wanted: Wanted, caller: Caller) -> list[Translated]:
    """Return the translations of texts, in their order.

    Raises Problem, which names the text, if one cannot be translated: most APIs have no place for an error of one text.
    """
    if not texts:
        return []
    if wanted.source:
        known = Detected(wanted.source, 1.0)
        if wanted.unchanged:
            return [Translated(text, known) for text in texts]
        return await _of_one_language(backend, texts, [known] * len(texts), wanted.source, wanted, caller)
    detected = await detect(backend, texts, caller, wanted.target)
    found: dict[int, Translated] = {}
    ways = [(each.language, each.confidence > 0 and is_one_language(each.language, wanted.target)) for each in detected]
    for language, unchanged in dict.fromkeys(ways):
        places = [place for place, way in enumerate(ways) if way == (language, unchanged)]
        some, languages = [texts[place] for place in places], [detected[place] for place in places]
        if unchanged:
            results = [Translated(text, each) for text, each in zip(some, languages, strict=True)]
        else:
            results = await _of_one_language(backend, some, languages, language, wanted, caller)
        found.update(zip(places, results, strict=True))
    return [found[place] for place in range(len(texts))]


async def detect(backend: Backend, texts: Sequence[str], caller: Caller, target: str = "") -> list[Detected]:
    """Return the language of each text; one that is not told is assumed to be the first that is served.

    target: of the translation; languages that no model translates into it are not taken, but for the target itself,
        and a variety of it is assumed only if there is no other language
    """
    starts = [text[:DETECTED_CHARACTERS] for text in texts]
    asked = [
        write_request(pb.DetectLanguagesRequest, texts=part) for _, part in cut(starts, await _most(backend, caller))
    ]
    replies = [await backend.detect(request, caller) for request in asked]
    pairs = Pairs.of(await backend.models(caller, fresh=False))
    sources = pairs.sources_of(target) if target else pairs.sources
    if not sources:
        raise Problem(400, f"no model translates into {target[:40]!r}", reason="UNKNOWN_MODEL", field="target")
    others = (each for each in sources if not target or not is_one_language(each, target))
    assumed = Detected(next(others, sources[0]), 0.0)
    found = []
    for result in (result for reply in replies for result in reply.results):
        fitting = [
            Detected(each.language_code, each.confidence)
            for each in result.languages
            if not target or each.language_code in sources or serves(each.language_code, target)
        ]
        sure = fitting and fitting[0].confidence >= SURE
        found.append(fitting[0] if sure else assumed)
    return found


async def _most(backend: Backend, caller: Caller) -> int:
    return max((await backend.models(caller, fresh=False)).max_texts, 1)


async def _of_one_language(
    backend: Backend, texts: Sequence[str], languages: Sequence[Detected], source: str, wanted: Wanted, caller: Caller
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


def _joined(pieces: Sequence[Piece], place: int, count: int, language: Detected) -> Translated:
    """Return the translation of a text of its pieces; place: its index among so many texts, for an error."""
    try:
        found = [_hypotheses(*piece) for piece in pieces]
    except ServerError as error:
        problem = problem_of(error)
        if count > 1:
            problem.args = (f"text {place + 1}: {problem}",)
        raise problem from None
    best, *others = ["".join(texts) for texts in zip(*found, strict=False)]
    return Translated(best, language, tuple(dict.fromkeys(each for each in others if each != best)))


def _hypotheses(text: str, result: pb.TextResult | ServerError) -> list[str]:
    """Return the translations of a piece, the best first; raises ServerError."""
    if isinstance(result, ServerError):
        raise result
    if result.status.code == code_pb2.OK:
        return [each.text for each in result.hypotheses]
    error = server_error(result.status)
    if error.reason == EMPTY:
        return [text]
    raise error
