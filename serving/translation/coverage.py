"""The coverage penalty of a hypothesis. Pure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lingon.serving.decoding.job import Hypothesis

LEAST_COVERAGE = float(np.finfo(np.float32).tiny)
"""Attention to a source token, at least: it is exactly 0 if a softmax underflows."""


def coverage(attention: np.ndarray) -> float:
    """Return the sum over source tokens of log(min(coverage, 1)), at most 0 (Wu et al. 2016, equation 14).

    attention: (target_length, source_length), a row for each token of the translation, its end token too
    """
    covered = attention.sum(axis=0, dtype=np.float64)
    return float(np.log(np.clip(covered, LEAST_COVERAGE, 1.0)).sum())


def with_coverage(hypothesis: Hypothesis, attention: np.ndarray, penalty: float) -> Hypothesis:
    """Return a hypothesis with the penalty in its score.

    attention: see `coverage`; penalty: beta, by which the sum is multiplied
    """
    return replace(hypothesis, score=hypothesis.score + penalty * coverage(attention))


def covering_tokens(hypothesis: Hypothesis) -> tuple[int, ...]:
    """Return the tokens for the scorer, whose attention has a row for each of them and one more, of what follows.

    The last token is left out if it ends the translation at the bound of its length, beyond which no scorer reads.
    """
    return hypothesis.tokens if hypothesis.finished else hypothesis.tokens[:-1]
