"""The pairs of languages that models translate, as a list of models tells them."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from lingon.errors import InvalidRequest
from lingon.language_tags import MAX_CHARACTERS, canonical, distance
from lingon.translation.v1 import translation_pb2 as pb


@dataclass(frozen=True, slots=True)
class Pairs:
    """The pairs of languages that are served, as tags of the models."""

    pairs: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, models: pb.ListModelsResponse) -> Pairs:
        """Return the pairs of all models, and then those that are translated through the pivot language."""
        direct = cls(tuple(dict.fromkeys(pair for model in models.models for pair in pairs_of(model))))
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


def pairs_of(model: pb.Model) -> list[tuple[str, str]]:
    """Return the pairs that a model translates."""
    if not model.source_language_codes:
        return [(model.source_language_code, model.target_language_code)]
    sources, targets = model.source_language_codes, model.target_language_codes
    return [(source, target) for source in sources for target in targets if source != target]


def is_one_language(source: str, target: str) -> bool:
    """Whether two tags name one language, or varieties of one."""
    return serves(source, target) or serves(target, source)


def serves(served: str, wanted: str) -> bool:
    """Whether a served language is the wanted one or what that is a variety of: en serves en-GB, and eng_Latn."""
    return max(len(served), len(wanted)) <= MAX_CHARACTERS and _serves(served, wanted)


@functools.lru_cache(maxsize=4096)
def _serves(served: str, wanted: str) -> bool:
    """See `serves`; a model of 200 languages has 40,000 pairs, and this takes some microseconds."""
    try:
        return distance(canonical(wanted, "the language"), canonical(served, "the language")) is not None
    except InvalidRequest:
        return False
