"""Which sentences a server sends to its second translator: thresholds that are chosen on a text with references, and
what they are worth on text that they were not chosen on.

Each half of the text is measured with the threshold that is chosen on the other half (cross-fitting), so that all
sentences count, and none for a choice that has seen it (Chernozhukov et al. 2018).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lingon.errors import SettingsError
from lingon.scoring import score, sentence_chrf

LEAST_SENTENCES = 200  # of a text: fewer determine no threshold
SHARES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8)  # of the sentences that are sent, beside none and all
LENGTHS = 20  # least lengths that are tried, evenly spaced in the sentences
SEED = 1  # of the halves
RESAMPLES = 1000  # of the sentences, for the bounds of the share of the gain
BOUNDS = (0.025, 0.975)  # quantiles


@dataclass(frozen=True, slots=True)
class Candidate:
    """A sentence with a reference, and its translation with and without the second translator.

    confidence: of `ours`, 0 to 1
    suspect: whether the guard suspects `ours`, so that it is sent whatever its confidence is
    ours: the translation of the server's own model
    theirs: what the server returns if the sentence is sent: the checked answer, or `ours` if that does not pass
    """

    source: str
    reference: str
    confidence: float
    suspect: bool
    ours: str
    theirs: str


class Threshold(NamedTuple):
    """The settings `second_below` and `second_characters`: a sentence is sent if its confidence is below the first and
    it has at least as many characters as the second.
    """

    below: float
    characters: int


@dataclass(frozen=True, slots=True)
class Point:
    """What a choice of sentences is worth.

    sent: share of the sentences, 0 to 1; characters: share of the characters of their sources
    chrf, bleu: of all translations. gain_chrf, gain_bleu: share of the gain of sending all, nan without a gain
    threshold: chosen on all sentences; None for a choice that needs the references, or for all sentences or none
    """

    sent: float
    characters: float
    chrf: float
    bleu: float
    gain_chrf: float
    gain_bleu: float
    threshold: Threshold | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """The choices by name, each as points from the fewest to the most sentences, and the threshold for a share.

    sentences: their number
    chosen: the point of `threshold`; bounds: of its share of the gain in chrF, 95 %
    """

    sentences: int
    nothing: Point
    all: Point
    curves: dict[str, list[Point]]
    chosen: Point
    bounds: tuple[float, float]


CHOSEN, BY_CONFIDENCE, BEST = "confidence and length", "confidence alone", "best possible"
"""The names of the curves: thresholds of both settings, of the first alone, and a choice that knows the references."""


class Sentences:
    """Candidates as arrays, and the scores of any choice of them."""

    def __init__(self, candidates: Sequence[Candidate], language: str) -> None:
        """language: of the translations, for the tokens of BLEU."""
        self._candidates, self._language = candidates, language
        self.confidence = np.array([each.confidence for each in candidates])
        self.suspect = np.array([each.suspect for each in candidates], bool)
        self.characters = np.array([len(each.source) for each in candidates])
        self.gain = self.characters * np.array([_gain(each) for each in candidates])  # (sentences)

    def __len__(self) -> int:
        return len(self._candidates)

    def sent(self, threshold: Threshold) -> np.ndarray:
        """Return whether each sentence is sent, (sentences)."""
        unsure = (self.confidence < threshold.below) & (self.characters >= threshold.characters)
        found: np.ndarray = unsure | self.suspect
        return found

    def scores(self, sent: np.ndarray) -> tuple[float, float]:
        """Return chrF and BLEU if these sentences are sent."""
        texts = [each.theirs if own else each.ours for each, own in zip(self._candidates, sent, strict=True)]
        found = score(texts, [each.reference for each in self._candidates], self._language)
        return found.chrf, found.bleu


def _gain(candidate: Candidate) -> float:
    """Return by how much the translation is better if a sentence is sent, in points of chrF."""
    if candidate.theirs == candidate.ours:
        return 0.0
    return sentence_chrf(candidate.theirs, candidate.reference) - sentence_chrf(candidate.ours, candidate.reference)


def halves(candidates: Sequence[Candidate]) -> np.ndarray:
    """Return whether each sentence is in the first of two halves, drawn at random, (sentences).

    Those with the same source are in the same half.
    """
    sources = sorted({each.source for each in candidates})
    first = set(random.Random(SEED).sample(sources, len(sources) // 2))
    return np.array([each.source in first for each in candidates])


def best_threshold(sentences: Sentences, share: float, *, by_length: bool = True) -> Threshold:
    """Return the threshold with the most gain that sends at most this share of sentences, suspects included.

    The gain of a sentence is that of its chrF, weighted by its characters as chrF of a whole text does. A sentence
    that is long has more to gain, so that a least length pays although it leaves out the least sure of the short
    ones.

    by_length: whether a least length is tried; otherwise it is 0
    """
    lengths = np.unique(np.quantile(sentences.characters, np.linspace(0, 1, LENGTHS + 1)[:-1]).astype(int))
    tried = [_within(sentences, share, int(least)) for least in ([0, *lengths] if by_length else [0])]
    return max([Threshold(0.0, 0), *tried], key=lambda each: float(sentences.gain[sentences.sent(each)].sum()))


def _within(sentences: Sentences, share: float, characters: int) -> Threshold:
    """Return the highest threshold for sentences of this length with which at most a share of all is sent."""
    room = int(share * len(sentences)) - int(sentences.suspect.sum())
    long_enough = (sentences.characters >= characters) & ~sentences.suspect
    ordered = np.sort(sentences.confidence[long_enough])
    if room <= 0:
        return Threshold(0.0, characters)
    return Threshold(1.0 if room >= len(ordered) else _rounded(float(ordered[room])), characters)


def _rounded(value: float) -> float:
    """Return a threshold with three digits, not above the value, so that no more sentences are sent."""
    return int(1000 * value) / 1000


def report(candidates: Sequence[Candidate], share: float, language: str) -> Report:
    """Choose thresholds, and measure them.

    share: of the sentences that the chosen threshold may send, 0 to 1
    language: of the translations
    Raises SettingsError if there are too few sentences.
    """
    if len(candidates) < LEAST_SENTENCES:
        raise SettingsError(f"a threshold needs {LEAST_SENTENCES} sentences with references, got {len(candidates)}")
    return Measured(candidates, language).report(share)


class Measured:
    """The points of choices of sentences."""

    def __init__(self, candidates: Sequence[Candidate], language: str) -> None:
        """language: of the translations."""
        self._all = Sentences(candidates, language)
        in_first = halves(candidates)
        self._halves = [
            (own, Sentences([each for each, is_in in zip(candidates, own, strict=True) if not is_in], language))
            for own in (in_first, ~in_first)
        ]  # whether each sentence is in a half, and the sentences of the other one
        self._from, self._to = self._all.scores(self._none), self._all.scores(~self._none)

    @property
    def _none(self) -> np.ndarray:
        return np.zeros(len(self._all), bool)

    def report(self, share: float) -> Report:
        """Return the points; share: see `report`."""
        chosen = self._crossed(share)
        points = {
            CHOSEN: [self._of_threshold(each) for each in SHARES],
            BY_CONFIDENCE: [self._of_threshold(each, by_length=False) for each in SHARES],
            BEST: [self._point(self._best(each)) for each in SHARES],
        }
        point = self._point(chosen, best_threshold(self._all, share))
        ends = self._point(self._none), self._point(~self._none)
        return Report(len(self._all), *ends, points, point, self._bounds(chosen, point.gain_chrf))

    def _of_threshold(self, share: float, *, by_length: bool = True) -> Point:
        return self._point(
            self._crossed(share, by_length=by_length), best_threshold(self._all, share, by_length=by_length)
        )

    def _crossed(self, share: float, *, by_length: bool = True) -> np.ndarray:
        """Return whether each sentence is sent by the threshold of the half that it is not in, (sentences)."""
        sent = self._none
        for own, others in self._halves:
            threshold = best_threshold(others, share, by_length=by_length)
            sent[own] = self._all.sent(threshold)[own]
        return sent

    def _point(self, sent: np.ndarray, threshold: Threshold | None = None) -> Point:
        chrf, bleu = self._all.scores(sent)
        characters = self._all.characters
        return Point(
            sent=float(sent.mean()),
            characters=float(characters[sent].sum() / characters.sum()),
            chrf=chrf,
            bleu=bleu,
            gain_chrf=_share(chrf, self._from[0], self._to[0]),
            gain_bleu=_share(bleu, self._from[1], self._to[1]),
            threshold=threshold,
        )

    def _best(self, share: float) -> np.ndarray:
        """Return the choice of at most a share of the sentences with the largest gain, by the references."""
        order = np.argsort(-self._all.gain, kind="stable")[: int(share * len(self._all))]
        sent = np.zeros(len(self._all), bool)
        sent[order] = True
        return sent

    def _bounds(self, sent: np.ndarray, gain_chrf: float) -> tuple[float, float]:
        """Return bounds of the share of the gain of a choice, by drawing the sentences again (Efron 1979).

        They are drawn with the gain of `Sentences.gain`, which can be added up for any draw, and scaled to the share of
        the gain in chrF, which differs from it by some hundredths.
        """
        count, gain = len(self._all), self._all.gain
        if not gain.sum() > 0 or not (gain * sent).sum() > 0:
            return float("nan"), float("nan")
        drawn = np.random.default_rng(SEED).integers(count, size=(RESAMPLES, count))
        shares = (gain * sent)[drawn].sum(axis=1) / gain[drawn].sum(axis=1)
        low, high = np.quantile(shares, BOUNDS) * gain_chrf / ((gain * sent).sum() / gain.sum())
        return float(low), float(high)


def _share(score: float, low: float, high: float) -> float:
    """Return the share of a gain from low to high that a score has, nan without a gain."""
    return (score - low) / (high - low) if high > low else float("nan")
