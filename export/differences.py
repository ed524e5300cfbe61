"""How far values of graphs may differ, and how far they do. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from lingon.errors import ParityError


@dataclass(frozen=True, kw_only=True, slots=True)
class Tolerance:
    """How far values may differ: each of them, and on average. None is no bound."""

    largest: float | None = None
    mean: float | None = None

    def allowing(self, mean: float) -> Tolerance:
        """Return a tolerance that allows this mean difference too, if the mean is bounded."""
        return self if self.mean is None else replace(self, mean=max(self.mean, mean))

    def __str__(self) -> str:
        bounds = ((self.largest, "at most"), (self.mean, "on average at most"))
        return ", ".join(f"{words} {bound:g}" for bound, words in bounds if bound is not None)


EXACT = ("fp32", "fp32-cuda", "fp32-native")
"""The precisions whose translations must be those of fp32 on the CPU, token by token."""

LOG_PROBS = {
    "fp32": Tolerance(largest=1e-3, mean=1e-5),  # few random rows are so badly conditioned that they differ by 1e-4
    "fp32-cuda": Tolerance(largest=1e-3, mean=1e-5),
    "fp16": Tolerance(largest=5e-2),
    "fp16-native": Tolerance(largest=5e-2),
    "int8": Tolerance(mean=0.25),  # on random text; the quality gate compares translations of real text
    "int8-native": Tolerance(mean=0.25),
    "fp32-native": Tolerance(largest=1e-3, mean=1e-5),
}
"""Of log-probabilities from those of exact arithmetic, by precision."""


@dataclass(slots=True)
class Differences:
    """The absolute differences of values, collected over cases."""

    largest: float = 0.0
    total: float = 0.0
    count: int = 0

    @property
    def mean(self) -> float:
        """The mean difference."""
        return self.total / max(self.count, 1)

    def add(self, differences: np.ndarray) -> None:
        """Add absolute differences."""
        self.largest = max(self.largest, float(differences.max(initial=0)))
        self.total += float(differences.sum(dtype=np.float64))
        self.count += differences.size

    def check(self, what: str, tolerance: Tolerance) -> None:
        """Raise ParityError, whose message begins with `what`, if values differ too much."""
        if tolerance.largest is not None and self.largest > tolerance.largest:
            raise ParityError(f"{what} differ by {self.largest:.2e}, more than {tolerance.largest:.0e}")
        if tolerance.mean is not None and self.mean > tolerance.mean:
            raise ParityError(f"{what} differ by {self.mean:.2e} on average, more than {tolerance.mean:.0e}")


def finite(values: np.ndarray, what: str) -> np.ndarray:
    """Return the values. Raise ParityError if one is NaN or infinite, because comparisons with NaN never fail."""
    nonfinite = values[~np.isfinite(values)]
    if nonfinite.size:
        raise ParityError(f"{what} are not all finite: one is {nonfinite.flat[0]}")
    return values


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Return log-probabilities of logits (n), in float64."""
    wide = logits.astype(np.float64)
    shifted = wide - wide.max()
    log_probs: np.ndarray = shifted - np.log(np.exp(shifted).sum())
    return log_probs
