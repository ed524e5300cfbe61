"""Detection of the language of a text.

The profiles in bundles, which the guard uses, distinguish the languages of the models. The extra `detect` knows 200
languages: it errs less, recognises languages without a model, and needs no profiles.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from lingon.identifiers import MACROLANGUAGES, Identifiers, load_identifiers
from lingon.serving.event_loop import TimeSlice
from lingon.serving.guard import Languages, trigrams
from lingon.source_language import DECIDED, DETECTED_CHARACTERS, written_in
from lingon.translation.v1 import translation_pb2 as pb

MANY_LETTERS = 40  # letters; a shorter text always gets a language of a model
FOREIGN = 0.95  # probability of languages without a model from which on a text is taken to be in one
MOST_NAMED = 20  # languages of a text, the likeliest ones
LIKELY = 0.05  # probability from which on a language without a model is named
ENGLISH = 2.0  # ratio of the priors of English and another language, because others also use English words
ANOTHER = 0.05  # probability that a text is in another language than its neighbours, if they share one
LEAST = 1e-3  # least share of the fit of each language in one of several texts that share one

Found = list[tuple[str, float]]
"""Languages with their probabilities, the likeliest first."""

Shares = dict[str, float]
"""The probabilities of languages by their tags; empty if nothing is known of a text."""


class Detector:
    """The detector of the languages of several models.

    Without profiles of two languages, and without the extra, it only detects a language that is the only one with the
    script of a text.
    """

    def __init__(self, profiles: Iterable[tuple[str, bytes]], codes: Mapping[str, str] | None = None) -> None:
        """profiles: language tags with their profiles; the first one of a language is used.

        codes: the code of each language of the models by its tag, with or without a profile
        """
        found: dict[str, bytes] = {}
        for tag, content in profiles:
            found.setdefault(tag, content)
        self._codes = dict(codes or {})
        self._tags, self._profiled = tuple({**found, **self._codes}), tuple(found)
        self._known = {*self._codes.values(), *(MACROLANGUAGES.get(code, code) for code in self._codes.values())}
        self._languages = Languages(list(found.values())) if len(found) > 1 else None

    async def detect_all(self, request: pb.DetectLanguagesRequest, time_slice: TimeSlice) -> pb.DetectLanguagesResponse:
        """Return the languages of all texts of a request."""
        if not load_identifiers.cache_info().currsize:  # otherwise every request would wait for a thread
            await asyncio.to_thread(load_identifiers)
        identifiers = load_identifiers() if self._codes else None
        foreign, shares = list[Found](), list[Shares]()
        for text in request.texts:
            start = text[:DETECTED_CHARACTERS]
            foreign.append(self._foreign(start, identifiers))
            shares.append({} if foreign[-1] else self._shares(start, identifiers))
            await time_slice.yield_if_due()
        if request.same_language:
            shares = beside_each_other(shares, self._prior)
        results = []
        for other, each in zip(foreign, shares, strict=True):
            found = other or self._named(each)
            languages = [pb.DetectedLanguage(language_code=tag, confidence=share) for tag, share in found]
            results.append(pb.DetectedLanguages(languages=languages, undecided=not found or found[0][1] < DECIDED))
        return pb.DetectLanguagesResponse(results=results)

    def detect(self, text: str, identifiers: Identifiers | None = None) -> Found:
        """Return the languages of a text, or none for a text without letters."""
        start = text[:DETECTED_CHARACTERS]
        return self._foreign(start, identifiers) or self._named(self._shares(start, identifiers))

    def _shares(self, start: str, identifiers: Identifiers | None) -> Shares:
        """Return the probability of each language of the models, with equal priors."""
        if not len(trigrams(start)):
            return {}
        possible = written_in(start, self._tags)
        if identifiers is not None:
            return _normalised(possible, identifiers.fits(start, [self._codes.get(tag, tag) for tag in possible]))
        if len(possible) == 1 < len(self._tags):
            return {possible[0]: 1.0}
        profiled = [index for index, tag in enumerate(self._profiled) if tag in possible]
        if self._languages is None or not profiled:
            return {}
        fits = self._languages.fits(start)
        return _normalised([self._profiled[index] for index in profiled], [fits[index] for index in profiled])

    def _foreign(self, start: str, identifiers: Identifiers | None) -> Found:
        """Return the languages of a text that is in no language of the models, or none if it may be in one."""
        if identifiers is None or sum(map(str.isalpha, start)) < MANY_LETTERS:
            return []
        ranked = identifiers.rank(start)
        known = sum(share for code, share in ranked if code in self._known)
        if ranked[0][0] in self._known or known > 1 - FOREIGN:
            return []
        return [(code, share) for code, share in ranked if share >= LIKELY and code not in self._known]

    def _named(self, shares: Shares) -> Found:
        """Return the likeliest languages of a text, with a higher prior for English."""
        weights = {tag: share * self._prior(tag) for tag, share in shares.items()}
        total = sum(weights.values())
        found = [(tag, weight / total) for tag, weight in weights.items() if weight]
        return sorted(found, key=lambda each: each[1], reverse=True)[:MOST_NAMED]

    def _prior(self, tag: str) -> float:
        return ENGLISH if self._codes.get(tag, tag) == "en" else 1.0


def beside_each_other(texts: Sequence[Shares], prior: Callable[[str], float]) -> list[Shares]:
    """Return the probabilities of the languages of texts that share one: of each by itself and by all others.

    A text is in another language than the others with the probability ANOTHER. A text without shares is assumed to be
    in the language of the others.

    prior: probability of a language, up to a constant; neither the given nor the returned shares include it
    """
    tags = list(dict.fromkeys(tag for shares in texts for tag in shares))
    if not tags:
        return list(texts)
    own = np.array([[shares.get(tag, 0.0) if shares else 1.0 for tag in tags] for shares in texts])  # (texts, tags)
    before = np.array([prior(tag) for tag in tags])
    before /= before.sum()
    logs = np.log(own + LEAST)
    others = logs.sum(axis=0) - logs + np.log(before)
    shared = np.exp(others - others.max(axis=1, keepdims=True))
    shared /= shared.sum(axis=1, keepdims=True)
    found = own * ((1 - ANOTHER) * shared / before + ANOTHER)
    found /= found.sum(axis=1, keepdims=True)
    return [dict(zip(tags, row, strict=True)) for row in found.tolist()]


def _normalised(tags: Sequence[str], fits: Sequence[float]) -> Shares:
    """Return probabilities from log-likelihoods, or none if no language is known."""
    best = max(fits, default=-math.inf)
    if best == -math.inf:
        return {}
    weights = [math.exp(fit - best) for fit in fits]
    total = sum(weights)
    return {tag: weight / total for tag, weight in zip(tags, weights, strict=True)}
