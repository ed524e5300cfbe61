"""Greedy and beam search as arithmetic on candidates: no model, no queue. The promises stand in training/search.py.

Beams of a sentence are kept in order of rank; which row of the running batch holds the past of which rank is
`rows`, so that a change of rank copies nothing and only a parent with several children does.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from lingon.serving.decoding.job import Sampling
from lingon.text import EOS


class Ranked(NamedTuple):
    """The best 2 * beam_size continuations of each sentence, best first; (sentences, 2 * beam_size) each.

    parents: the rank that each continues, totals: log-probability of the whole, log_probs: of the token alone
    """

    parents: np.ndarray
    tokens: np.ndarray
    totals: np.ndarray
    log_probs: np.ndarray


class Survivors(NamedTuple):
    """The best beam_size continuations that do not end; (sentences, beam_size) each."""

    parents: np.ndarray
    tokens: np.ndarray
    totals: np.ndarray
    log_probs: np.ndarray


class Copies(NamedTuple):
    """Pasts to copy between the rows of a sentence; (copies) each."""

    sentences: np.ndarray
    sources: np.ndarray
    targets: np.ndarray


def rank(totals: np.ndarray, candidate_ids: np.ndarray, candidate_log_probs: np.ndarray) -> Ranked:
    """Rank every continuation of every sentence; equal ones by parent, then by order of the candidates.

    totals: (sentences, beam_size), candidates: (sentences, beam_size, candidates) in order of rank
    """
    sentences, beam_size, candidates = candidate_ids.shape
    sums = (totals[:, :, None] + candidate_log_probs).reshape(sentences, -1)
    order = np.argsort(-sums, axis=1, kind="stable")[:, : 2 * beam_size]
    place = order + np.arange(0, sums.size, sums.shape[1])[:, None]
    return Ranked(order // candidates, candidate_ids.take(place), sums.take(place), candidate_log_probs.take(place))


def survive(ranked: Ranked, beam_size: int) -> Survivors:
    """Who lives on: at most one continuation of a parent ends, so beam_size of them never do."""
    ends = ranked.tokens == EOS
    if not ends[:, :beam_size].any():
        return Survivors(*(column[:, :beam_size] for column in ranked))
    chosen = np.argsort(ends, axis=1, kind="stable")[:, :beam_size]
    return Survivors(*(np.take_along_axis(column, chosen, axis=1) for column in ranked))


def assign_rows(rows: np.ndarray, parents: np.ndarray) -> tuple[np.ndarray, Copies]:
    """Rows of the new ranks of each sentence, and what has to be copied for it.

    rows: the row of each old rank, parents: the old rank that each new one continues; (sentences, beam_size) both.
    The first child of a parent stays in its row; the others take rows whose hypotheses have no child. So no row is
    both copied and overwritten.
    """
    index = np.arange(len(rows))[:, None]
    assigned = rows[index, parents]
    same = parents[:, :, None] == parents[:, None, :]
    later = (same & _before(rows.shape[1])).any(axis=2)
    childless = np.ones(rows.shape, bool)
    childless[index, parents] = False
    sentences = np.nonzero(later)[0]
    copies = Copies(sentences, assigned[later], rows[childless])  # as many of each in every sentence, in its order
    assigned[later] = copies.targets
    return assigned, copies


@functools.cache
def _before(beam_size: int) -> np.ndarray:
    """(beam_size, beam_size), True where the column's rank comes before the row's."""
    return np.tri(beam_size, k=-1, dtype=np.bool_)


def draw(logits: np.ndarray, sampling: Sampling, step: int) -> int:
    """A token drawn from logits (vocab), as sampling says; a function of (seed, place, step) and the logits alone."""
    order = np.argsort(-logits, kind="stable")
    scaled = logits[order].astype(np.float64) / sampling.temperature
    probabilities = np.exp(scaled - scaled[0])
    if sampling.top_k:
        probabilities[sampling.top_k :] = 0
    probabilities /= probabilities.sum()
    if sampling.top_p < 1:
        before = np.cumsum(probabilities) - probabilities
        probabilities[before >= sampling.top_p] = 0
    cumulative = np.cumsum(probabilities)
    random = np.random.Generator(np.random.Philox(key=sampling.seed, counter=[step, sampling.place, 0, 0]))
    return int(order[np.searchsorted(cumulative, random.random() * cumulative[-1], side="right")])


def log_prob(logits: np.ndarray, token: int) -> float:
    """The log-probability of a token under logits (vocab)."""
    wide = logits.astype(np.float64)
    top = wide.max()
    return float(wide[token] - top - np.log(np.exp(wide - top).sum()))
