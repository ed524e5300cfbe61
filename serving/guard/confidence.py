"""The probability that a translation is good, from log-probabilities and lengths: a logistic regression."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import get_args

from lingon.bundle import Confidence, Feature
from lingon.text import UNK

FEATURES: tuple[Feature, ...] = get_args(Feature)
LEAST_LOG_PROB = -50.0  # of a token; a rule of a request may force tokens of probability 0
GOOD = 50  # chrF of a translation that counts as good


def features(
    source: str, target: str, source_ids: Sequence[int], log_probs: Sequence[float]
) -> tuple[float, float, float, float, float, float]:
    """Return what the confidence is computed from, in the order of FEATURES.

    mean: log-probability of a token
    root: mean root of -log-probability, in which an unlikely token counts less
    total: log-probability of the whole translation
    characters: logarithm of their number, in the translation
    ratio: logarithm of characters of the translation / characters of the source
    unknown: share of the source tokens that are unknown

    source_ids: without the end token; log_probs: of each target token and the end token, natural logarithms
    """
    if log_probs and min(log_probs) < LEAST_LOG_PROB:
        log_probs = [max(value, LEAST_LOG_PROB) for value in log_probs]
    count, total = max(len(log_probs), 1), sum(log_probs)
    root = sum([math.sqrt(-value) for value in log_probs if value < 0]) / count
    characters = math.log(len(target) + 1)
    unknown = sum([token == UNK for token in source_ids]) / max(len(source_ids), 1)
    return total / count, root, total, characters, characters - math.log(len(source) + 1), unknown


def confidence(model: Confidence, found: Sequence[float]) -> float:
    """Return the probability, 0 to 1, that a translation with these `features` has a chrF of at least GOOD."""
    weights = model.weights
    log_odds = model.bias + sum([weights.get(name, 0.0) * value for name, value in zip(FEATURES, found, strict=True)])
    return 1 / (1 + math.exp(-max(min(log_odds, 700.0), -700.0)))
