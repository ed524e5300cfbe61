"""The text data of a bundle: from its training text, and from its own translations of held-out text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from lingon import bundle as names
from lingon.bundle import Confidence, TextData
from lingon.errors import SettingsError
from lingon.export.gates.decode import engine_search
from lingon.export.text_data.lengths import length_ranges
from lingon.export.text_data.regression import auroc, calibration_error, cross_predicted, fit, reliability, rounded
from lingon.export.text_data.words import self_translating_words
from lingon.scoring import sentence_chrf
from lingon.serving.guard.confidence import FEATURES, GOOD, features
from lingon.serving.guard.languages import profile
from lingon.serving.runtime.runner import Runner
from lingon.text import Tokenizer

LEAST_SENTENCES = 200  # of held-out text: fewer do not determine the regression
MOST_PAIRS = 200_000  # of the training text, evenly spaced
OTHER_WEIGHT = 0.25  # of all other held-out texts together; that of the bundle's own kind has 1
BELOW_LOW = 0.01  # share of the held-out text of the bundle's own kind that has LOW_CONFIDENCE

Pairs = Sequence[tuple[str, str]]
Log = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CalibrationText:
    """The text for the text data, normalised pairs of source and target.

    training: what the model was trained on, or text of that kind
    held_out: text that it was not trained on: of the kind that the bundle is for, then of other kinds
    """

    training: Pairs
    held_out: Sequence[Pairs]


@dataclass(frozen=True, slots=True)
class Figures:
    """What the confidence is worth on held-out text of the bundle's own kind, by cross-validation."""

    sentences: int
    auroc: float
    calibration_error: float


@dataclass(frozen=True, slots=True)
class _Examples:
    """Translations: features (examples, features), whether each is right, and the number of its sentence."""

    features: np.ndarray
    right: np.ndarray
    sentence: np.ndarray


def build_text_data(
    runner: Runner, tokenizer: Tokenizer, text: CalibrationText, beam_size: int, length_penalty: float, log: Log
) -> tuple[TextData, bytes, Figures]:
    """Return the text data, the content of PROFILES, and the figures of the confidence.

    runner: the graphs that will serve; beam_size, length_penalty: of the bundle; greedy search is tried too

    Raises SettingsError if there is too little text.
    """
    own, *others = text.held_out
    found = _examples(runner, tokenizer, own, sorted({1, beam_size}), length_penalty)
    if len(set(found.sentence.tolist())) < LEAST_SENTENCES:
        raise SettingsError(
            f"text data needs {LEAST_SENTENCES} held-out sentences, got {len(set(found.sentence.tolist()))}"
        )
    log(f"text data: {len(found.right):,} translations of held-out text, {found.right.mean():.1%} with chrF >= {GOOD}")
    more = [_examples(runner, tokenizer, other, [1], length_penalty) for other in others]
    confidence, figures = _confidence(found, more)
    log(f"text data: AUROC of the confidence {figures.auroc:.3f}, calibration error {figures.calibration_error:.3f}")
    training = text.training[:: max(len(text.training) // MOST_PAIRS, 1)]
    lengths = length_ranges(_lengths(tokenizer, training))
    if not lengths:
        raise SettingsError("text data needs training pairs with text on both sides, got none")
    words = tuple(each.word for each in self_translating_words(training))
    log(f"text data: {len(training):,} pairs, {len(lengths)} ranges of length, {len(words)} words")
    profiles = profile(source for source, _ in training) + profile(target for _, target in training)
    return TextData(lengths, confidence, words), profiles, figures


def add_text_data(manifest: names.Manifest, text: TextData) -> dict[str, object]:
    """Return the fields of a manifest that change with its text data."""
    return {"text": text, "format": max(manifest.format, names.TEXT_DATA_FORMAT)}


def _confidence(own: _Examples, others: Sequence[_Examples]) -> tuple[Confidence, Figures]:
    rest = max(sum(len(other.right) for other in others), 1)
    every = [own, *others]
    weights = np.concatenate(
        [
            np.ones(len(own.right)),
            *(np.full(len(other.right), OTHER_WEIGHT * len(own.right) / rest) for other in others),
        ]
    )
    measured, right, sentence = (
        np.concatenate([getattr(each, name) for each in every]) for name in ("features", "right", "sentence")
    )
    crossed = cross_predicted(measured, right, weights, sentence)[: len(own.right)]
    *factors, bias = fit(measured, right, weights).tolist()
    bins = reliability(crossed, own.right)
    low = rounded(float(np.quantile(crossed, BELOW_LOW)))
    found = Confidence(rounded(bias), dict(zip(FEATURES, map(rounded, factors), strict=True)), low, bins)
    return found, Figures(len(own.right), auroc(crossed, own.right), calibration_error(bins))


def _examples(
    runner: Runner, tokenizer: Tokenizer, pairs: Pairs, beam_sizes: Sequence[int], length_penalty: float
) -> _Examples:
    """Translate the sources that the model can read, with each beam size."""
    readable = [(tuple(tokenizer.encode_source(source)), source, target) for source, target in pairs]
    longest = runner.limits.max_source_tokens
    readable = sorted((each for each in readable if len(each[0]) <= longest), key=lambda each: len(each[0]))
    measured, right = [], []
    for beam_size in beam_sizes:
        found = engine_search(runner, [ids for ids, _, _ in readable], beam_size, length_penalty)
        for (ids, source, target), (best, *_) in zip(readable, found, strict=True):
            text = tokenizer.decode(best.tokens).strip()
            measured.append(features(source, text, ids[:-1], best.log_probs))
            right.append(sentence_chrf(text, target) >= GOOD)
    sentence = np.tile(np.arange(len(readable)), len(beam_sizes))
    return _Examples(np.array(measured).reshape(-1, len(FEATURES)), np.array(right, bool), sentence)


def _lengths(tokenizer: Tokenizer, pairs: Pairs) -> list[tuple[int, int]]:
    sources = tokenizer.source.encode([source for source, _ in pairs])
    targets = tokenizer.target.encode([target for _, target in pairs])
    return [(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
