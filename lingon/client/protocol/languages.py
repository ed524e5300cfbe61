"""The languages of texts: exchanges that find them, and the texts of a list by language."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from google.protobuf.message import Message

from lingon.client.protocol.halves import check_count
from lingon.client.protocol.steps import DETECT_LANGUAGES, LIST_MODELS, Compute, Exchange, Method
from lingon.client.values.messages import Request, cut, translate_request, write_request
from lingon.client.values.options import TranslateOptions
from lingon.client.values.results import StreamEvent, TextDelta, TextDone, TextResult, Translation
from lingon.errors import ServerError, UnknownModel
from lingon.language_pairs import Pairs, is_one_language
from lingon.source_language import NotTranslated, Probabilities, Source, by_way, sources_of, starts_of, takes_long
from lingon.translation.v1 import translation_pb2 as pb

DEFAULT_MAX_TEXTS = 256
"""Texts in one request if the server does not report its limit."""

Ask = Callable[[Method[Any], Message], Exchange[Any]]
"""Sends a request and returns the reply."""


def detect(ask: Ask, texts: Sequence[str], most: int, *, same_language: bool = False) -> Exchange[list[Probabilities]]:
    """The languages of each text with their probabilities, the likeliest first.

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
) -> Exchange[list[Source]]:
    """The language that each text is translated from; raises NotTranslated.

    model: "name" or "name/version" of the model that translates; empty for any
    same_language: see `detect`
    may_refuse_each: see `sources_of`
    """
    read = partial(starts_of, texts, text_format)
    starts: list[str] = (yield Compute(read)) if takes_long(texts, text_format) else read()
    models: pb.ListModelsResponse = yield from ask(LIST_MODELS, pb.ListModelsRequest())
    detected = yield from detect(ask, starts, models.max_texts or DEFAULT_MAX_TEXTS, same_language=same_language)
    served = Pairs.of(_named(models, model) if model else models).sources_of(target)
    is_target = partial(is_one_language, target)
    return sources_of(starts, detected, served, target, is_target, may_refuse_each=may_refuse_each)


@dataclass(frozen=True, slots=True)
class Way:
    """The texts of a list that are translated from one language.

    source: the language; empty for that of the model
    places: the indices of the texts in the list
    prefixes: the prefix of each translation, or an empty list
    answers: their results if they are not sent to a server
    """

    source: str
    places: Sequence[int]
    texts: list[str]
    prefixes: list[str]
    answers: Sequence[TextResult] | None = None

    def request(self, kind: type[Request], begin: int, end: int, options: TranslateOptions, first: int = 0) -> Request:
        """The request for the texts `begin` to `end` of these; first: see `translate_request`, of the first text."""
        options = {**options, "source": self.source}
        return translate_request(kind, self.texts[begin:end], self.prefixes[begin:end], options, first + begin)

    def events(self) -> list[StreamEvent]:
        """The events of texts that are not sent to a server."""
        found: list[StreamEvent] = []
        for place, result in zip(self.places, self.answers or (), strict=True):
            if result.error is None:
                found.append(TextDelta(place, result.text))
            found.append(TextDone(place, result))
        return found


def ways_of(sources: Sequence[Source], texts: Sequence[str], prefixes: Sequence[str]) -> list[Way]:
    """The texts of a list by their languages; those that are refused, and those that stay, have their results."""
    found = []
    for (language, stays), places in by_way(sources).items():
        some = [texts[place] for place in places]
        answers = [_unchanged(text, language) for text in some] if stays else None
        found.append(Way(language, places, some, [prefixes[place] for place in places] if prefixes else [], answers))
    for place, source in enumerate(sources):
        if source.refusal is not None:
            refused = TextResult(error=refusal_error(source.refusal), source=source.language)
            found.append(Way(source.language, [place], [texts[place]], [], [refused]))
    return found


def _unchanged(text: str, language: str) -> TextResult:
    """The result of a text in the target language: itself, which is certain."""
    return TextResult((Translation(text, 0.0, "end"),), source=language)


def refusal_error(refusal: NotTranslated) -> ServerError:
    """The error of a request or a text that no model translates."""
    violations = ((refusal.side, str(refusal)),)
    return ServerError(str(refusal), UnknownModel.code, reason=UnknownModel.reason, violations=violations)


def _named(models: pb.ListModelsResponse, model: str) -> pb.ListModelsResponse:
    """The models of this name; all if there is none, so that the server says so."""
    named = [each for each in models.models if model in (each.name, f"{each.name}/{each.version}")]
    return pb.ListModelsResponse(models=named) if named else models
