"""What the gateway asks of the languages of the served models: how many beams, their names."""

from __future__ import annotations

import functools

from babel import Locale, UnknownLocaleError

from lingon.language_pairs import Pairs, is_one_language, pairs_of, serves
from lingon.language_tags import primary
from lingon.translation.v1 import translation_pb2 as pb


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
