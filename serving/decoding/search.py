"""Beam search as arithmetic on candidates: no model, no queue.

Its properties are stated in training/search.py. The beams of a sentence are ordered by rank. `rows` maps each rank to
the row of the running batch that holds its past, so that a change of rank copies nothing: only a parent with several
children does.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from lingon.text import EOS


class Ranked(NamedTuple):
    """Continuations of the hypotheses of each sentence, best first; (sentences, continuations) each.

    parents: the rank of the hypothesis that is continued
    totals: log-probability of the whole hypothesis
    log_probs: log-probability of the token
    """

    parents: np.ndarray
    tokens: np.ndarray
    totals: np.ndarray
    log_probs: np.ndarray


class Copies(NamedTuple):
    """Pasts to copy between rows of one sentence; (copies) each."""

    sentences: np.ndarray
    sources: np.ndarray
    targets: np.ndarray


def rank(totals: np.ndarray, candidate_ids: np.ndarray, candidate_log_probs: np.ndarray) -> Ranked:
    """Return the best 2 * beam_size continuations; equal ones by parent, then by the order of the candidates.

    totals: (sentences, beam_size), ordered by rank
    candidate_ids, candidate_log_probs: (sentences, beam_size, candidates), ordered by rank, likeliest first
    """
    sentences, beam_size, candidates = candidate_ids.shape
    sums = (totals[:, :, None] + candidate_log_probs).reshape(sentences, -1)
    order = np.argsort(-sums, axis=1, kind="stable")[:, : 2 * beam_size]
    flat = order + np.arange(0, sums.size, sums.shape[1])[:, None]  # indices into the flattened arrays
    return Ranked(order // candidates, candidate_ids.take(flat), sums.take(flat), candidate_log_probs.take(flat))


def select_survivors(ranked: Ranked, beam_size: int) -> Ranked:
    """Return the best beam_size continuations that do not end; there are enough, since one of a parent ends at most."""
    ends = ranked.tokens == EOS
    if not ends[:, :beam_size].any():
        return Ranked(*(column[:, :beam_size] for column in ranked))
    chosen = np.argsort(ends, axis=1, kind="stable")[:, :beam_size]
    return Ranked(*(np.take_along_axis(column, chosen, axis=1) for column in ranked))


def assign_rows(rows: np.ndarray, parents: np.ndarray) -> tuple[np.ndarray, Copies]:
    """The rows of the new ranks, (sentences, beam_size), and the pasts to copy.

    rows: (sentences, beam_size), the row of each old rank
    parents: (sentences, beam_size), the old rank that each new rank continues

    The first child of a parent keeps the row of the parent. The other children take rows of hypotheses without
    children, so that no row is both copied and overwritten.
    """
    index = np.arange(len(rows))[:, None]
    assigned = rows[index, parents]
    same_parent = parents[:, :, None] == parents[:, None, :]
    later_child = (same_parent & _earlier_ranks(rows.shape[1])).any(axis=2)
    childless = np.ones(rows.shape, bool)
    childless[index, parents] = False
    sentences = np.nonzero(later_child)[0]
    # A sentence has as many childless rows as later children, and both are in its order.
    copies = Copies(sentences, assigned[later_child], rows[childless])
    assigned[later_child] = copies.targets
    return assigned, copies


@functools.cache
def _earlier_ranks(beam_size: int) -> np.ndarray:
    """(beam_size, beam_size), True if the rank of the column is before that of the row."""
    return np.tri(beam_size, k=-1, dtype=np.bool_)
