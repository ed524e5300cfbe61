"""The text data of a bundle: from its training text, and from its own translations of held-out text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from lingon.bundle import Confidence, TextData
from lingon.errors import SettingsError
from lingon.export.gates.translations.decode import engine_search
from lingon.export.text_data.lengths import LEAST_PAIRS, length_ranges
from lingon.export.text_data.regression import auroc, calibration_error, cross_predicted, fit, reliability, rounded
from lingon.export.text_data.words import self_translating_words
from lingon.scoring import sentence_chrf
from lingon.serving.guard.confidence import FEATURES, GOOD, features
from lingon.serving.guard.languages import profile
from lingon.serving.runtime.runner import Runner
from lingon.text import Tokenizer

LEAST_SENTENCES = 200  # of held-out text: fewer do not determine the regression
MOST_SENTENCES = 2500  # of held-out text of each kind: more make it no surer
MOST_PAIRS = 200_000  # of the training text, evenly spaced
OTHER_WEIGHT = 0.25  # of held-out text of other kinds; that of the bundle's own kind has 1
BELOW_LOW = 0.01  # share of the held-out text of the bundle's own kind that has LOW_CONFIDENCE

Pairs = Sequence[tuple[str, str]]
Log = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class TranslationSearch:
    """The graphs of a bundle, and how it searches; greedy search is measured too."""

    runner: Runner
    tokenizer: Tokenizer
    beam_size: int
    length_penalty: float


@dataclass(frozen=True, slots=True)
class _Examples:
    """Translations: features (examples, features), whether each is right, and the number of its sentence."""

    features: np.ndarray
    right: np.ndarray
    sentence: np.ndarray


def text_data(training: Pairs, tokenizer: Tokenizer) -> tuple[TextData, bytes]:
    """Return what training pairs tell about the texts of a model, and the content of PROFILES.

    training: what the model was trained on, or text of that kind; of few pairs there are only words, and no profiles
    """
    words = tuple(each.word for each in self_translating_words(training))
    if len(training) < LEAST_PAIRS:
        return TextData(words), b""
    chosen = _spaced(training, MOST_PAIRS)
    profiles = profile(source for source, _ in chosen) + profile(target for _, target in chosen)
    return TextData(words, length_ranges(_lengths(tokenizer, chosen))), profiles


def fit_confidence(search: TranslationSearch, own: Pairs, other: Pairs, log: Log) -> Confidence:
    """Return the confidence of a bundle, fitted to its translations of text that it was not trained on.

    own, other: text of the kind that the bundle is for, and of other kinds, which may be empty
    Raises SettingsError if there are too few sentences of the own kind.
    """
    found = _examples(search, _spaced(own, MOST_SENTENCES), sorted({1, search.beam_size}))
    count = len(set(found.sentence.tolist()))
    if count < LEAST_SENTENCES:
        raise SettingsError(
            f"the confidence needs {LEAST_SENTENCES} held-out sentences that the model reads, got {count}"
        )
    right = found.right.mean()
    log(f"confidence: {len(found.right):,} translations of held-out text, {right:.1%} with a chrF of {GOOD} or more")
    if not found.right.any() or found.right.all():
        raise SettingsError(
            f"the confidence needs translations below and above a chrF of {GOOD}, got {right:.0%} above"
        )
    confidence, area, error = _fitted(found, _examples(search, _spaced(other, MOST_SENTENCES), [1]))
    log(f"confidence: AUROC {area:.3f}, calibration error {error:.3f} by cross-validation")
    return confidence


def _fitted(own: _Examples, other: _Examples) -> tuple[Confidence, float, float]:
    """Return the confidence, and its AUROC and calibration error on text of the own kind."""
    share = OTHER_WEIGHT * len(own.right) / max(len(other.right), 1)
    weights = np.concatenate([np.ones(len(own.right)), np.full(len(other.right), share)])
    measured = np.concatenate([own.features, other.features])
    right = np.concatenate([own.right, other.right])
    sentence = np.concatenate([own.sentence, other.sentence])
    crossed = cross_predicted(measured, right, weights, sentence)[: len(own.right)]
    *factors, bias = fit(measured, right, weights).tolist()
    bins = reliability(crossed, own.right)
    low = rounded(float(np.quantile(crossed, BELOW_LOW)))
    found = Confidence(rounded(bias), dict(zip(FEATURES, map(rounded, factors), strict=True)), low, bins)
    return found, auroc(crossed, own.right), calibration_error(bins)


def _examples(search: TranslationSearch, pairs: Pairs, beam_sizes: Sequence[int]) -> _Examples:
    """Translate the sources that the model can read, with each beam size."""
    runner, tokenizer = search.runner, search.tokenizer
    encoded = [(tuple(tokenizer.encode_source(source)), source, target) for source, target in pairs]
    readable = [
        each for each in encoded if tokenizer.unframed(each[0]) and len(each[0]) <= runner.limits.max_source_tokens
    ]
    readable.sort(key=lambda each: len(each[0]))
    measured, right = [], []
    for beam_size in beam_sizes:
        found = engine_search(runner, [ids for ids, _, _ in readable], beam_size, search.length_penalty)
        for (ids, source, target), (best, *_) in zip(readable, found, strict=True):
            text = tokenizer.decode(best.tokens).strip()
            measured.append(features(source, text, tokenizer.unframed(ids), best.log_probs))
            right.append(sentence_chrf(text, target) >= GOOD)
    sentence = np.tile(np.arange(len(readable)), len(beam_sizes))
    return _Examples(np.array(measured).reshape(-1, len(FEATURES)), np.array(right, bool), sentence)


def _spaced(pairs: Pairs, most: int) -> Pairs:
    """Return at most so many pairs, evenly spaced."""
    return pairs[:: -(-len(pairs) // most)] if pairs else pairs


def _lengths(tokenizer: Tokenizer, pairs: Pairs) -> list[tuple[int, int]]:
    sources = tokenizer.source.encode([source for source, _ in pairs])
    targets = tokenizer.target.encode([target for _, target in pairs])
    return [(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
