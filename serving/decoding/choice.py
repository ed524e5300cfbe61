"""The choice of the next token of one row from its logits: sampled, or under the rules of its request.

Sampling takes a few passes over the vocabulary, which is not sorted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lingon.serving.decoding.job import Alternative, DecodeJob, Sampling
from lingon.serving.decoding.rules import Progress, Rules, TokenLimits
from lingon.serving.decoding.spelling import penalise
from lingon.text import EOS

SUMMED = 256  # tokens in one partial sum
BINS = 4096  # intervals of probability; at most one is sorted
NEAR = 6.0  # difference of logits to the likeliest token; a few tokens within it have most of the probability
MOST_SCALED = 1e6  # largest logit divided by the temperature; float32 then rounds by 0.03 at most
SPREAD = 40.0  # difference of logits that the intervals cover: exp(-40) is below the precision of float64


def draw(logits: np.ndarray, sampling: Sampling, step: int) -> int:
    """Return a token sampled from logits (vocab). A token with logit -inf is never drawn. Not all may be -inf.

    The token depends only on the logits, the settings, and (seed, stream, step).
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

    A tiny temperature keeps the highest logit at 0 and the others far below, although float32 would overflow.
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
    """Return the index at which the sum of weights exceeds this share, 0 to 1, of their total."""
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
    """Return a mask of the fewest tokens with the highest logits whose amounts sum to `wanted`.

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
    """Return the indices of these tokens. All are put into intervals by their logits. Only the last one is sorted."""
    bins = np.minimum(scaled * np.float32(-BINS / SPREAD), BINS - 1).astype(np.int64)
    sums = np.cumsum(np.bincount(bins, weights=amounts, minlength=BINS))
    last = min(int(np.searchsorted(sums, wanted, side="left")), BINS - 1)
    indices = np.flatnonzero(bins == last)
    indices = indices[np.argsort(-scaled[indices], kind="stable")]
    before = np.cumsum(amounts[indices], dtype=np.float64) - amounts[indices] + (sums[last - 1] if last else 0.0)
    return np.concatenate([np.flatnonzero(bins < last), indices[before < wanted]])


BLOCK = 128  # logits; at first only the largest of a block is compared


class Candidates(NamedTuple):
    """Tokens and their log-probabilities, (candidates) each, likeliest first; -inf where there are no more tokens."""

    ids: np.ndarray
    log_probs: np.ndarray


class RowState(NamedTuple):
    """The progress of a translation in tokens.

    tokens: so far, with the prefix; generated: their number without the prefix
    remaining: tokens that it may still have, with the next one
    """

    progress: Progress
    tokens: Sequence[int]
    generated: int
    remaining: int


class TokenBias(NamedTuple):
    """The bias of one step towards a soft prefix: see `lingon.serving.decoding.job.PrefixBias`."""

    token: int
    weight: float

    def applied(self, ids: np.ndarray, log_probs: np.ndarray) -> np.ndarray:
        """Return the log-probabilities of tokens, (tokens) each, after the bias."""
        scaled: np.ndarray = log_probs + np.float32(math.log1p(-self.weight))
        with_weight = np.logaddexp(scaled, np.float32(math.log(self.weight)))
        return np.where(ids == self.token, with_weight, scaled)


def bias_of(job: DecodeJob, tokens: Sequence[int]) -> TokenBias | None:
    """Return the bias of the next token of a hypothesis; tokens: so far, the prefix first."""
    token = job.biased_token(tokens)
    return None if token is None or job.bias is None else TokenBias(token, job.bias.weight)


class RuledRow:
    """The logits of a row whose request has rules, (vocab), and the likeliest tokens of the graph.

    This object changes the logits.
    """

    def __init__(
        self,
        rules: Rules,
        state: RowState,
        logits: np.ndarray,
        likeliest: Candidates,
        bias: TokenBias | None = None,
    ) -> None:
        self.rules, self.state, self.likeliest = rules, state, likeliest
        self.limits = rules.limits(state.progress, state.tokens, state.generated, state.remaining)
        self._logits = logits[: rules.vocab]
        # A log-probability is the likeliest token's log-probability plus the difference of their logits.
        self._reference, self._log_prob = self._logits[likeliest.ids[0]], likeliest.log_probs[0]
        self._penalised = rules.repetition_penalty != 1 and len(state.tokens) > 0
        if self._penalised:
            self._penalise()
        self._bias = bias if bias is not None and self.limits.permits(bias.token) else None

    def next(self, sampling: Sampling | None, step: int) -> tuple[int, float, Progress]:
        """Return the next token without beam search, its log-probability, and the progress after it.

        The token is sampled or the likeliest. Where the translation would end without a forced word, the word begins,
        and its tokens come before all others.
        """
        token, chosen = self._likeliest() if sampling is None else self._sample(sampling, step)
        progress, rules = self.state.progress, self.rules
        if token == EOS and rules.lacks_words(progress) and (words := self.advancing()):
            token, chosen = self._likeliest_of(words)
            progress = progress._replace(forced=progress.forced._replace(committed=True))
        return token, chosen, rules.read(progress, token)

    def candidates(self, count: int, *, end: bool = True) -> Candidates:
        """Return the `count` likeliest permitted tokens; end: whether the end token may be one of them.

        If there is no such token, the end token is returned.
        """
        permitted = all(
            self.limits.permits(int(token)) and (end or token != EOS) for token in self.likeliest.ids[:count]
        )
        plain = not self._penalised and self._bias is None
        if permitted and plain and count <= len(self.likeliest.ids):
            return Candidates(self.likeliest.ids[:count], self.likeliest.log_probs[:count])
        logits = self.allowed()
        if not end:
            logits[EOS] = -np.inf
        ids = largest(logits, count)
        if self._bias is not None and self._bias.token not in ids:
            ids = np.append(ids, self._bias.token)
        found = np.where(np.isneginf(logits[ids]), np.float32(-np.inf), self.log_probs(ids))
        if self._bias is not None:
            order = np.argsort(-found, kind="stable")[:count]
            ids, found = ids[order], found[order]
        if np.isneginf(found[0]):
            ids[ids == EOS], ids[0] = ids[0], EOS
            found[0] = self.log_probs(ids[:1])[0]
        return Candidates(ids, found)

    def alternative(self, wanted: Alternative, count: int) -> Candidates:
        """Return the first token of an alternative as the first of `count` candidates.

        All others have a log-probability of -inf. That one has it too if there is no such token.
        """
        found = self.candidates(max(wanted.rank + 1, count), end=not self.rules.lacks_words(self.state.progress))
        ids, log_probs = found.ids[:count].copy(), np.full(count, -np.inf, np.float32)
        if wanted.rank < len(found.ids):
            chosen = found.log_probs[wanted.rank]
            if wanted.rank == 0 or np.exp(chosen) >= wanted.min_probability:
                ids[0], log_probs[0] = found.ids[wanted.rank], chosen
        return Candidates(ids, log_probs)

    def advancing(self) -> list[int]:
        """Return the permitted tokens that continue or begin a missing forced word."""
        assert self.rules.forced is not None
        return [
            token for token in self.rules.forced.advancing(self.state.progress.forced) if self.limits.permits(token)
        ]

    def log_probs(self, ids: np.ndarray) -> np.ndarray:
        """Return the log-probabilities of tokens, (tokens), float32."""
        found: np.ndarray = (self._logits[ids] - self._reference) + self._log_prob
        return found if self._bias is None else self._bias.applied(ids, found)

    def allowed(self) -> np.ndarray:
        """Return the logits, (vocab), with -inf for tokens that the rules forbid."""
        return restricted(self._logits, self.limits)

    def _likeliest(self) -> tuple[int, float]:
        ids, log_probs = self.candidates(1)
        return int(ids[0]), float(log_probs[0])

    def _sample(self, sampling: Sampling, step: int) -> tuple[int, float]:
        logits = self.allowed()
        if self._bias is not None:
            logits = np.where(np.isneginf(logits), logits, self.log_probs(np.arange(len(logits))))
        token = EOS if np.isneginf(logits.max()) else draw(logits, sampling, step)
        return token, float(self.log_probs(np.array([token]))[0])

    def _likeliest_of(self, tokens: Sequence[int]) -> tuple[int, float]:
        log_probs = self.log_probs(np.array(tokens))
        best = int(np.argmax(log_probs))
        return tokens[best], float(log_probs[best])

    def _penalise(self) -> None:
        penalise(self._logits, self.state.tokens, self.rules.repetition_penalty)
        self._reference = self._logits.max()
        total = np.exp(self._logits - self._reference).sum(dtype=np.float64)
        self._log_prob = np.float32(-np.log(total))


def log_prob(logits: np.ndarray, token: int, likeliest: Candidates) -> float:
    """Return the log-probability of a token under logits (vocab); likeliest: the known likeliest tokens."""
    return float((logits[token] - logits[likeliest.ids[0]]) + likeliest.log_probs[0])


def restricted(logits: np.ndarray, limits: TokenLimits) -> np.ndarray:
    """Return a copy of logits (vocab) with -inf for every token that the limits do not permit."""
    if limits.only is not None:
        found = np.full_like(logits, -np.inf)
        found[limits.only.ids] = logits[limits.only.ids]
    else:
        found = logits.copy()
    for banned in limits.banned:
        found[banned.ids] = -np.inf
    return found


def largest(logits: np.ndarray, count: int) -> np.ndarray:
    """Return the indices of the `count` largest logits, the largest first; of equal ones, the lower index first.

    logits: (vocab), -inf for forbidden tokens; if too few are permitted, others fill the end of the result
    """
    tops = np.maximum.reduceat(logits, np.arange(0, len(logits), BLOCK))
    if len(tops) < count:
        tops = logits
    # At least `count` logits are as large as the count-th largest block maximum.
    least = np.partition(tops, len(tops) - count)[len(tops) - count]
    found = np.flatnonzero(logits >= least if least > -np.inf else logits > -np.inf)
    found = found[np.argsort(-logits[found], kind="stable")[:count]]
    if len(found) < count:
        others = np.setdiff1d(np.arange(min(2 * count, len(logits))), found, assume_unique=True)
        found = np.concatenate([found, others[: count - len(found)]])
    return found
