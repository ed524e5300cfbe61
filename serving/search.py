"""Greedy and beam search as arithmetic on candidates: no model, no queue. The promises stand in training/search.py.

Beams of a sentence are kept in order of rank; which row of the running batch holds the past of which rank is
`rows`, so that a change of rank copies nothing and only a parent with several children does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lingon.text import EOS
from serving.job import Sampling


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


def rank(totals: np.ndarray, candidate_ids: np.ndarray, candidate_log_probs: np.ndarray) -> Ranked:
    """Rank every continuation of every sentence; equal ones by parent, then by order of the candidates.

    totals: (sentences, beam_size), candidates: (sentences, beam_size, candidates) in order of rank
    """
    sentences, beam_size = totals.shape
    width = min(2 * beam_size, candidate_ids.shape[2])
    sums = (totals[:, :, None] + candidate_log_probs[:, :, :width]).reshape(sentences, -1)
    order = np.argsort(-sums, axis=1, kind="stable")[:, : 2 * beam_size]
    index = np.arange(sentences)[:, None]
    parents, place = np.divmod(order, width)
    return Ranked(
        parents, candidate_ids[index, parents, place], sums[index, order], candidate_log_probs[index, parents, place]
    )


def survive(ranked: Ranked, beam_size: int) -> Survivors:
    """Who lives on: at most one continuation of a parent ends, so beam_size of them never do."""
    chosen = np.argsort(ranked.tokens == EOS, axis=1, kind="stable")[:, :beam_size]
    return Survivors(*(np.take_along_axis(column, chosen, axis=1) for column in ranked))


def assign_rows(rows: list[int], parents: list[int]) -> tuple[list[int], list[tuple[int, int]]]:
    """Rows of the new ranks of one sentence, and the copies (source row, target row) that this needs.

    rows: the row of each old rank; parents: the old rank that each new one continues. The first child of a parent
    stays in its row; the others take rows whose hypotheses have no child.
    """
    taken: set[int] = set()
    free = [row for old, row in enumerate(rows) if old not in parents]
    assigned, copies = [], []
    for parent in parents:
        row = rows[parent]
        if row in taken:
            copies.append((row, free.pop()))
            row = copies[-1][1]
        taken.add(row)
        assigned.append(row)
    return assigned, copies


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
