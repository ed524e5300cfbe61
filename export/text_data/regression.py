"""Logistic regression, and what its probabilities are worth."""

from __future__ import annotations

import numpy as np

from lingon.bundle import ReliabilityBin

RIDGE = 1e-3  # of the weights of standardised features, for each example
ROUNDS = 50  # of Newton's method, which converges in about ten
BINS, FOLDS = 10, 5


def fit(features: np.ndarray, right: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the weight of each feature and last the bias, (features + 1).

    features: (examples, features); right: (examples) bool; weights: (examples), how much each example counts
    """
    mean, spread = features.mean(axis=0), features.std(axis=0) + 1e-9
    standard = _with_ones((features - mean) / spread)
    ridge = np.diag([RIDGE * weights.sum()] * features.shape[1] + [1e-6 * weights.sum()])
    found = np.zeros(standard.shape[1])
    for _ in range(ROUNDS):
        expected = _sigmoid(standard @ found)
        gradient = standard.T @ (weights * (expected - right)) + ridge @ found
        curvature = (standard * (weights * expected * (1 - expected))[:, None]).T @ standard + ridge
        step = np.linalg.solve(curvature, gradient)
        found = found - step
        if np.abs(step).max() < 1e-9:
            break
    scaled = found[:-1] / spread
    return np.append(scaled, found[-1] - scaled @ mean)


def predict(model: np.ndarray, features: np.ndarray) -> np.ndarray:
    """Return the probability of each example, (examples)."""
    return _sigmoid(_with_ones(features) @ model)


def cross_predicted(features: np.ndarray, right: np.ndarray, weights: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Return the probability of each example by a model that was fitted to the others.

    group: (examples); examples of one group, such as translations of one sentence, are left out together
    """
    found = np.zeros(len(right))
    for fold in range(FOLDS):
        held = group % FOLDS == fold
        found[held] = predict(fit(features[~held], right[~held], weights[~held]), features[held])
    return found


def auroc(scores: np.ndarray, right: np.ndarray) -> float:
    """Return the probability that an example that is right scores higher than one that is not; 0.5 without both."""
    count = int(right.sum())
    if not 0 < count < len(right):
        return 0.5
    order = np.argsort(scores, kind="stable")
    values, ranks = scores[order], np.empty(len(scores))
    begins = np.flatnonzero(np.r_[True, values[1:] != values[:-1]])
    ends = np.r_[begins[1:], len(values)]
    ranks[order] = np.repeat((begins + ends + 1) / 2, ends - begins)  # equal scores share their mean rank
    return float((ranks[right].sum() - count * (count + 1) / 2) / (count * (len(right) - count)))


def reliability(confidence: np.ndarray, right: np.ndarray) -> tuple[ReliabilityBin, ...]:
    """Return bins of equal width of the confidence, without empty ones."""
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    chosen = [place == each for each in range(BINS)]
    return tuple(
        ReliabilityBin(int(these.sum()), rounded(float(confidence[these].mean())), rounded(float(right[these].mean())))
        for these in chosen
        if these.any()
    )


def calibration_error(bins: tuple[ReliabilityBin, ...]) -> float:
    """Return the expected calibration error (Naeini et al. 2015): the mean of |confidence - share right|."""
    total = sum(each.sentences for each in bins)
    return sum(each.sentences * abs(each.confidence - each.right) for each in bins) / total


def rounded(value: float) -> float:
    """Return a number as a manifest has it, with six significant digits."""
    return float(f"{value:.6g}")


def _sigmoid(value: np.ndarray) -> np.ndarray:
    found: np.ndarray = 1 / (1 + np.exp(-np.clip(value, -700, 700)))
    return found


def _with_ones(features: np.ndarray) -> np.ndarray:
    return np.column_stack([features, np.ones(len(features))])
