"""Tells languages apart by the trigrams of letters in a text, hashed into small profiles."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from lingon.bundle import PROFILE_BYTES

STEPS = 16  # of a byte of a profile for each nat: 255 is a log-probability of -15.9
EVIDENCE = 0.5  # share of the difference of two log-probabilities that counts: neighbouring trigrams share letters
CLEAR = 1.0  # nats for each token by which a text fits a language better than another one, so that there is no doubt
_OTHER = re.compile(r"[\W\d_]+")


def trigrams(text: str) -> np.ndarray:
    """Return the bucket of each trigram of a text, (trigrams); digits and punctuation are one space."""
    return _buckets(_OTHER.sub(" ", f" {text.lower()} "))


def _buckets(text: str) -> np.ndarray:
    letters = np.frombuffer(text.encode("utf-32-le", "replace"), "<u4")
    if len(letters) <= 2:
        return np.zeros(0, np.uint32)
    first, second, third = letters[:-2], letters[1:-1], letters[2:]
    mixed = (first * np.uint32(0x9E3779B1) + second) * np.uint32(0x85EBCA6B) + third
    found: np.ndarray = (mixed * np.uint32(0xC2B2AE35)) >> np.uint32(32 - 13)
    return found


def profile(texts: Iterable[str]) -> bytes:
    """Return the profile of a language: for each bucket, -STEPS times its log-probability, at most 255."""
    counts = np.zeros(PROFILE_BYTES, np.int64)
    for text in texts:
        counts += np.bincount(trigrams(text), minlength=PROFILE_BYTES)
    surprise = -np.log((counts + 0.5) / (counts.sum() + 0.5 * PROFILE_BYTES))
    found: bytes = np.minimum(np.rint(STEPS * surprise), 255).astype(np.uint8).tobytes()
    return found


class Languages:
    """The profiles of several languages."""

    def __init__(self, profiles: Sequence[bytes]) -> None:
        """profiles: of each language, as `profile` returns them."""
        table = np.frombuffer(b"".join(profiles), np.uint8).reshape(len(profiles), PROFILE_BYTES)
        self._surprise = table.T.astype(np.float32) / STEPS  # (PROFILE_BYTES, languages)

    def surprise(self, text: str) -> list[float]:
        """Return -log-probability of a text in each language, in nats: the smallest fits best."""
        return self._summed(trigrams(text))

    def fits(self, text: str) -> list[float]:
        """Return the log-likelihood of a text in each language up to a constant; without letters equal ones."""
        return [-EVIDENCE * surprise for surprise in self.surprise(text)]

    def excess(self, text: str) -> float:
        """Return by how many nats another language fits a text better than the last one; negative if none does."""
        *others, own = self._summed(trigrams(text))
        return own - min(others)

    def excess_inside(self, piece: str) -> float:
        """Return the same of a part of a text: what is before and after it is not known."""
        *others, own = self._summed(_buckets(_OTHER.sub(" ", piece.lower())))
        return own - min(others)

    def _summed(self, buckets: np.ndarray) -> list[float]:
        found: list[float] = self._surprise[buckets].sum(axis=0).tolist()
        return found


class PieceLanguages:
    """Tells quickly that tokens are in the last language, by the trigrams inside each: nearly all translations are."""

    def __init__(self, languages: Languages, piece_of: Callable[[int], str]) -> None:
        """piece_of: returns the text of a token, with spaces."""
        self._languages, self._piece_of = languages, piece_of
        self._excesses: dict[int, float] = {}  # of the tokens that were seen

    def excess(self, text: str, token_ids: Sequence[int]) -> float:
        """Return by how many nats another language fits a text of these tokens better, or 0 where none clearly does."""
        return self._languages.excess(text) if self.may_be_other(token_ids) else 0.0

    def may_be_other(self, token_ids: Sequence[int]) -> bool:
        """Whether the trigrams inside the tokens do not clearly fit the last language best: then the text needs a look.

        A token of one or two letters has no trigram inside, so that texts of such tokens always need one.
        """
        known, total = self._excesses, 0.0
        for token in token_ids:
            excess = known.get(token)
            if excess is None:
                excess = known[token] = self._languages.excess_inside(self._piece_of(token))
            total += excess
        return total > -CLEAR * len(token_ids)
