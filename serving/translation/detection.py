"""Tells in which language a text is written.

The profiles that bundles have for their guard tell their languages apart. What the extra `detect` installs knows 140
languages: it errs less in texts of several words, finds texts in a language that no model has, and needs no profiles.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, cast

from lingon.serving.guard.languages import Languages, trigrams
from lingon.serving.system.event_loop import TimeSlice
from lingon.source_language import DETECTED_CHARACTERS
from lingon.translation.v1 import translation_pb2 as pb

IDENTIFIED_CHARACTERS = 400  # of a text that the identifier looks at, which takes 0.2 ms
FEW_LETTERS = 12  # of a text; of single words profiles tell more, because they know no other languages
MANY_LETTERS = 40  # that a text must have before it is taken to be in a language without a model
FOREIGN = 0.95  # probability that it is in none of the languages of models from which on it is taken to be so
MOST_NAMED = 20  # languages of a text, the likeliest ones
LIKELY = 0.05  # probability of a language without a model from which on it is named
IDENTIFIER_BYTES = 80 << 20  # of memory that the identifier takes
MACROLANGUAGES = {"nb": "no", "nn": "no"}  # codes of which the identifier knows the whole language better

Found = list[tuple[str, float]]
"""Languages with their probabilities, the likeliest first."""


class Identifier(Protocol):
    """Knows many languages by their codes of two or three letters."""

    def rank(self, text: str) -> list[tuple[str, float]]:
        """Return all languages with their probabilities, the likeliest first."""


def identifier_is_installed() -> bool:
    """Whether the extra `detect` is installed."""
    return importlib.util.find_spec("py3langid") is not None


@functools.cache
def load_identifier() -> Identifier | None:
    """Return the identifier, if the extra `detect` is installed; the first call takes half a second."""
    if not identifier_is_installed():
        return None
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return cast(Identifier, LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True))


class Detector:
    """The languages of several models. Without profiles of two languages, and without the extra, it finds none."""

    def __init__(self, profiles: Iterable[tuple[str, bytes]], codes: Mapping[str, str] | None = None) -> None:
        """profiles: language tags with their profiles; of several for one language, the first is taken.

        codes: of the languages of all models, with or without profiles: the code of a language by its tag
        """
        found: dict[str, bytes] = {}
        for tag, content in profiles:
            found.setdefault(tag, content)
        self._tags, self._codes = tuple(found), dict(codes or {})
        self._known = {*self._codes.values(), *(MACROLANGUAGES.get(code, code) for code in self._codes.values())}
        self._languages = Languages(list(found.values())) if len(found) > 1 else None

    async def detect_all(self, texts: Sequence[str], time_slice: TimeSlice) -> pb.DetectLanguagesResponse:
        """Return the languages of all texts of a request."""
        if not load_identifier.cache_info().currsize:  # or every request would wait for a thread
            await asyncio.to_thread(load_identifier)
        identifier = load_identifier() if self._codes else None
        results = []
        for text in texts:
            found = self.detect(text, identifier)
            languages = [pb.DetectedLanguage(language_code=tag, confidence=share) for tag, share in found]
            results.append(pb.DetectedLanguages(languages=languages))
            await time_slice.yield_if_due()
        return pb.DetectLanguagesResponse(results=results)

    def detect(self, text: str, identifier: Identifier | None = None) -> Found:
        """Return the languages of a text; none for a text without letters."""
        start = text[:DETECTED_CHARACTERS]
        if not len(trigrams(start)):
            return []
        if identifier is None:
            return self._by_profiles(start)
        letters = sum(map(str.isalpha, start))
        if letters < FEW_LETTERS and set(self._codes) <= set(self._tags):
            return self._by_profiles(start)
        ranked = identifier.rank(start[:IDENTIFIED_CHARACTERS])
        foreign = self._foreign(ranked) if letters >= MANY_LETTERS else []
        return foreign or self._by_codes(dict(ranked))

    def _by_profiles(self, text: str) -> Found:
        if self._languages is None:
            return []
        return _sorted(zip(self._tags, self._languages.probabilities(text), strict=True))

    def _foreign(self, ranked: Found) -> Found:
        """Return the languages of a text that is in none of those of models; none if it may be."""
        known = sum(share for code, share in ranked if code in self._known)
        if ranked[0][0] in self._known or known > 1 - FOREIGN:
            return []
        return [(code, share) for code, share in ranked if share >= LIKELY and code not in self._known]

    def _by_codes(self, shares: Mapping[str, float]) -> Found:
        """Return the languages of models by what the identifier says of their codes."""
        found = {
            tag: max(shares.get(code, 0.0), shares.get(MACROLANGUAGES.get(code, ""), 0.0))
            for tag, code in self._codes.items()
        }
        total = sum(found.values())
        return _sorted((tag, share / total) for tag, share in found.items())[:MOST_NAMED] if total else []


def _sorted(found: Iterable[tuple[str, float]]) -> Found:
    return sorted(found, key=lambda each: each[1], reverse=True)
