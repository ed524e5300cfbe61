"""The languages of the served models: which pairs there are, and their names."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from babel import Locale, UnknownLocaleError

from lingon.translation.v1 import translation_pb2 as pb


@dataclass(frozen=True, slots=True)
class Pairs:
    """The pairs of languages that are served, as tags of the models."""

    pairs: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, models: pb.ListModelsResponse) -> Pairs:
        """Return the pairs of all models, and then those that are translated through the pivot language."""
        direct = cls(tuple(dict.fromkeys(pair for model in models.models for pair in _pairs_of(model))))
        if not models.pivot_language_code:
            return direct
        sources = direct.sources_of(models.pivot_language_code)
        targets = direct.targets_of(models.pivot_language_code)
        through = [(one, other) for one in sources for other in targets if not is_one_language(one, other)]
        return cls(tuple(dict.fromkeys([*direct.pairs, *through])))

    @property
    def sources(self) -> list[str]:
        """The source languages, each once."""
        return list(dict.fromkeys(source for source, _ in self.pairs))

    @property
    def targets(self) -> list[str]:
        """The target languages, each once."""
        return list(dict.fromkeys(target for _, target in self.pairs))

    def sources_of(self, target: str) -> list[str]:
        """Return the languages that are translated into this one, or into the language that it is a variety of."""
        return list(dict.fromkeys(source for source, each in self.pairs if serves(each, target)))

    def targets_of(self, source: str) -> list[str]:
        """Return the languages into which this one is translated."""
        return list(dict.fromkeys(target for each, target in self.pairs if serves(each, source)))


def _pairs_of(model: pb.Model) -> list[tuple[str, str]]:
    """Return the pairs that a model translates."""
    if not model.source_language_codes:
        return [(model.source_language_code, model.target_language_code)]
    sources, targets = model.source_language_codes, model.target_language_codes
    return [(source, target) for source in sources for target in targets if source != target]


def _models_of(models: pb.ListModelsResponse, source: str, target: str) -> list[pb.Model]:
    """Return the models that translate between two languages."""
    return [
        model
        for model in models.models
        if any(serves(one, source) and serves(other, target) for one, other in _pairs_of(model))
    ]


def most_beams(models: pb.ListModelsResponse, source: str, target: str, wanted: int) -> int:
    """Return so many beams, or as many as the models between two languages allow, or those out of the pivot."""
    found = _models_of(models, source, target) or _models_of(models, models.pivot_language_code, target)
    return min([wanted, *(model.max_beam_size for model in found)])


def is_one_language(source: str, target: str) -> bool:
    """Whether two tags name one language, or varieties of one."""
    return serves(source, target) or serves(target, source)


def stays_unchanged(models: pb.ListModelsResponse, source: str, target: str) -> bool:
    """Whether one language is both source and target and served, and no model translates between its varieties."""
    known = Pairs.of(models)
    served = any(is_one_language(tag, source) for tag in (*known.sources, *known.targets))
    return served and not _models_of(models, source, target)


def serves(served: str, wanted: str) -> bool:
    """Whether a served language is the wanted one or what that is a variety of: en serves en-GB."""
    one, other = _canonical(served), _canonical(wanted)
    return one == other or other.startswith(f"{one}-")


def _canonical(tag: str) -> str:
    return tag.replace("_", "-").lower()


def without_variety(tag: str) -> str:
    """Return the language of a tag alone, in lower case: en of EN-GB."""
    return re.split("[-_]", tag, maxsplit=1)[0].lower()


@functools.lru_cache(maxsize=4096)
def name_of(tag: str) -> str:
    """Return the English name of a language; the tag itself if it has none."""
    try:
        return Locale.parse(tag.replace("_", "-"), sep="-").get_display_name("en") or tag
    except (UnknownLocaleError, ValueError):
        names = Locale("en").languages
        return str(names.get(without_variety(tag), tag))
