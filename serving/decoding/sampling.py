"""Draws a token at random; the time is a few passes over the vocabulary, which is not sorted."""

from __future__ import annotations

import numpy as np

from lingon.serving.decoding.job import Sampling

SUMMED = 256  # tokens that are added up together
BINS = 4096  # intervals of probability, of which at most one is sorted
NEAR = 6.0  # difference of logits; usually a few tokens are so near to the likeliest and have most of the probability
MOST_SCALED = 1e6  # logit divided by the temperature, for which float32 is exact enough: it rounds by 0.03 at most
SPREAD = 40.0  # difference of logits that the intervals cover: exp(-40) is below the precision of float64


def draw(logits: np.ndarray, sampling: Sampling, step: int) -> int:
    """Return a token sampled from logits (vocab); one with logit -inf is never drawn; not all may be -inf.

    The token is a function of the logits, the settings, and (seed, stream, step) alone.
    """
    scaled = _scaled(logits, sampling.temperature)
    weights = np.exp(scaled)
    if sampling.top_k and sampling.top_k < len(weights):
        weights[~_likeliest(scaled, np.ones_like(weights), sampling.top_k)] = 0
    if sampling.top_p < 1:
        weights[~_likeliest(scaled, weights, sampling.top_p * _total(weights))] = 0
    random = np.random.Generator(np.random.Philox(key=sampling.seed, counter=[step, sampling.stream, 0, 0]))
    return _at(weights, random.random())


def _scaled(logits: np.ndarray, temperature: float) -> np.ndarray:
    """Return logits (vocab) divided by the temperature, less the highest.

    A tiny temperature leaves the highest at 0 and the others far below, where float32 would overflow.
    """
    top = logits.max()
    if max(abs(float(top)), 1.0) <= MOST_SCALED * temperature:
        scaled: np.ndarray = logits * np.float32(1 / temperature)
        scaled -= scaled.max()
        return scaled
    with np.errstate(over="ignore"):
        differences: np.ndarray = (logits.astype(np.float64) - float(top)) / temperature
    return differences


def _total(weights: np.ndarray) -> float:
    return float(weights.sum(dtype=np.float64))


def _at(weights: np.ndarray, share: float) -> int:
    """Return the index at which the sum of weights passes this share, 0 to 1, of their total."""
    blocks = np.cumsum(np.add.reduceat(weights, np.arange(0, len(weights), SUMMED), dtype=np.float64))
    wanted = min(share * blocks[-1], np.nextafter(blocks[-1], 0))
    block = int(np.searchsorted(blocks, wanted, side="right"))
    first = block * SUMMED
    within = np.cumsum(weights[first : first + SUMMED], dtype=np.float64)
    # Rounding may lead beyond either end of the block, to a weight of 0.
    wanted = max(wanted - (blocks[block] - within[-1]), 0.0)
    index = int(np.searchsorted(within, wanted, side="right"))
    return first + min(index, int(np.flatnonzero(weights[first : first + SUMMED])[-1]))


def _likeliest(scaled: np.ndarray, amounts: np.ndarray, wanted: float) -> np.ndarray:
    """Return a mask of the fewest tokens with the highest logits whose amounts come to `wanted`.

    scaled: logits (vocab), the highest is 0; of equal ones, the lower index comes first
    """
    mask = np.zeros(len(scaled), np.bool_)
    near = np.flatnonzero(scaled >= -NEAR)
    if 8 * len(near) <= len(scaled) and _total(amounts[near]) >= wanted:
        mask[near[_first(scaled[near], amounts[near], wanted)]] = True
    else:
        mask[_first(scaled, amounts, wanted)] = True
    return mask


def _first(scaled: np.ndarray, amounts: np.ndarray, wanted: float) -> np.ndarray:
    """Return the indices of these tokens. All are put into intervals by their logit; only the last one is sorted."""
    bins = np.minimum(scaled * np.float32(-BINS / SPREAD), BINS - 1).astype(np.int64)
    sums = np.cumsum(np.bincount(bins, weights=amounts, minlength=BINS))
    last = min(int(np.searchsorted(sums, wanted, side="left")), BINS - 1)
    places = np.flatnonzero(bins == last)
    places = places[np.argsort(-scaled[places], kind="stable")]
    before = np.cumsum(amounts[places], dtype=np.float64) - amounts[places] + (sums[last - 1] if last else 0.0)
    return np.concatenate([np.flatnonzero(bins < last), places[before < wanted]])
