"""The coverage penalty of a hypothesis. Pure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lingon.serving.decoding.job import Hypothesis

LEAST_COVERAGE = float(np.finfo(np.float32).tiny)
"""Attention to a source token, at least: it is exactly 0 if a softmax underflows, and in an empty translation."""


def coverage(attention: np.ndarray) -> float:
    """Return the sum over source tokens of log(min(coverage, 1)), at most 0 (Wu et al. 2016, equation 14).

    attention: (target_length, source_length), a row for each token of the translation
    """
    covered = attention.sum(axis=0, dtype=np.float64)
    return float(np.log(np.clip(covered, LEAST_COVERAGE, 1.0)).sum())


def with_coverage(hypothesis: Hypothesis, attention: np.ndarray, penalty: float) -> Hypothesis:
    """Return a hypothesis with the penalty in its score.

    attention: see `coverage`; an empty translation has one row, which does not count
    penalty: beta, by which the sum is multiplied
    """
    if not penalty:
        return hypothesis
    added = penalty * coverage(attention[: len(hypothesis.tokens)])
    return replace(hypothesis, score=hypothesis.score + added)
