"""What the gateway asks of the languages of the served models: how many beams, their names, which are missing."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Literal

from babel import Locale, UnknownLocaleError

from lingon.errors import UnknownModel
from lingon.gateway.requests.problem import Problem
from lingon.language_pairs import Pairs, is_one_language, pairs_of, serves
from lingon.language_tags import primary
from lingon.translation.v1 import translation_pb2 as pb

SHOWN = 40  # characters of a language that a message shows


class Untranslated(Problem):
    """No model translates a pair of languages that a request names.

    side: which of them no model has on this side; empty if models have both, but not together
    language: that of the side
    known: whether a model has this language on the other side
    """

    def __init__(
        self, refused: Problem, message: str, side: Literal["source", "target", ""], language: str, *, known: bool
    ) -> None:
        """refused: what is said of the pair without its sides."""
        super().__init__(refused.http_status, message, code=refused.code, reason=UnknownModel.reason, field=side)
        self.side, self.language, self.known = side, language, known


def untranslated(
    models: pb.ListModelsResponse, source: str, target: str, refused: Problem | None = None
) -> Untranslated:
    """Return the error of a pair that no model translates.

    source: empty for any; refused: the answer of the server to a request with the pair, if there was one
    """
    pairs, message = Pairs.of(models), ""
    refused = refused or Problem(400, "")
    if refused.reason == UnknownModel.reason:  # else it is about a field that has another name here
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
    pairs = Pairs.of(models).pairs
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
    """Return so many beams, or as many as the models between two languages allow, or those out of the pivot."""
    found = _models_of(models, source, target) or _models_of(models, models.pivot_language_code, target)
    return min([wanted, *(model.max_beam_size for model in found)])


def stays_unchanged(models: pb.ListModelsResponse, source: str, target: str) -> bool:
    """Whether one language is both source and target and served, and no model translates between its varieties."""
    known = Pairs.of(models)
    served = any(is_one_language(tag, source) for tag in (*known.sources, *known.targets))
    return served and not _models_of(models, source, target)


@functools.lru_cache(maxsize=4096)
def name_of(tag: str) -> str:
    """Return the English name of a language; the tag itself if it has none."""
    try:
        return Locale.parse(tag.replace("_", "-"), sep="-").get_display_name("en") or tag
    except (UnknownLocaleError, ValueError):
        names = Locale("en").languages
        return str(names.get(primary(tag), tag))
