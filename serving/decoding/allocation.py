"""Beam search with forced words: dynamic beam allocation (Post and Vilar 2018).

Hypotheses compete only with those that have come as far with the forced words: a *bank* holds the continuations with
the same number of forced tokens. The beam is divided among the banks, so that a hypothesis with a forced word, which
the model finds unlikely at first, is not lost. A hypothesis ends only with all words.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from lingon.serving.decoding.ruled_row import Candidates, RuledRow
from lingon.serving.decoding.search import Ranked
from lingon.text import EOS, PAD


class Continuation(NamedTuple):
    """A hypothesis with one more token; see Ranked. Their order is that of their ranks."""

    negative_total: float
    parent: int
    token: int
    log_prob: float


def allocate(rows: Sequence[RuledRow | None], totals: np.ndarray, candidates: Candidates, ranked: Ranked) -> None:
    """Replace the continuations of a sentence by those that dynamic beam allocation chooses, in place.

    rows: by rank of the hypothesis; None for one that is not live
    totals: (beam_size), log-probability of each hypothesis
    candidates: (beam_size, candidates) each, what the rules permit after each hypothesis
    ranked: (2 * beam_size), the likeliest continuations that the rules permit; afterwards those that end, then the
        others, each best first
    """
    beam_size = len(totals)
    every = (*_finite(ranked), *_own(rows, totals, candidates), *_advancing(rows, totals))
    found = sorted({(each.parent, each.token): each for each in every}.values())
    banks: dict[int, list[Continuation]] = {}
    endings: list[Continuation] = []
    for each in found:
        row = rows[each.parent]
        assert row is not None
        bank, complete = _bank(row, each.token)
        rank = len(banks.setdefault(bank, []))
        if each.token != EOS:
            banks[bank].append(each)
        elif complete and rank + len(endings) < beam_size:
            endings.append(each)
    survivors = _deal([banks[bank] for bank in sorted(banks, reverse=True)], beam_size)
    if not survivors and not endings:
        endings = [each for each in found if each.token == EOS][:beam_size]
    _write([*endings, *sorted(survivors)], ranked)


def _finite(continuations: Ranked) -> Iterator[Continuation]:
    columns = (column.tolist() for column in continuations)
    for parent, token, total, log_prob in zip(*columns, strict=True):
        if total > -math.inf:
            yield Continuation(-total, parent, token, log_prob)


def _own(rows: Sequence[RuledRow | None], totals: np.ndarray, candidates: Candidates) -> Iterator[Continuation]:
    """Yield the likeliest continuation of each hypothesis, and all candidates of one that has all words."""
    for parent, row in enumerate(rows):
        if row is not None:
            count = 1 if row.rules.lacks_words(row.state.progress) else candidates.ids.shape[1]
            ids, log_probs = candidates.ids[parent, :count], candidates.log_probs[parent, :count]
            columns = np.full(count, parent), ids, totals[parent] + log_probs, log_probs
            yield from _finite(Ranked(*columns))


def _advancing(rows: Sequence[RuledRow | None], totals: np.ndarray) -> Iterator[Continuation]:
    """Yield the continuations that bring in a missing forced word."""
    for parent, row in enumerate(rows):
        if row is None or not row.rules.lacks_words(row.state.progress) or not (tokens := row.advancing()):
            continue
        log_probs = row.log_probs(np.array(tokens))
        sums = (totals[parent] + log_probs).tolist()
        for token, total, log_prob in zip(tokens, sums, log_probs.tolist(), strict=True):
            yield Continuation(-total, parent, token, log_prob)


def _bank(row: RuledRow, token: int) -> tuple[int, bool]:
    """Return how many forced tokens a continuation has, and whether it has all."""
    forced = row.rules.forced
    assert forced is not None
    if not row.rules.lacks_words(row.state.progress):
        return forced.total, True
    progress = row.state.progress.forced
    if token != EOS:
        progress = forced.read(progress, token)
    return forced.total - forced.tokens_needed(progress) + progress.taken, forced.is_met(progress)


def _deal(banks: Sequence[Sequence[Continuation]], count: int) -> list[Continuation]:
    """Return `count` continuations: the best of every bank, then the second best, and so on; the fullest bank first."""
    dealt = (each for places in zip_longest(*banks) for each in places if each is not None)
    return [each for each, _ in zip(dealt, range(count), strict=False)]


def _write(chosen: Sequence[Continuation], ranked: Ranked) -> None:
    count = len(chosen)
    ranked.parents[:], ranked.tokens[:], ranked.log_probs[:], ranked.totals[:] = 0, PAD, 0, -np.inf
    ranked.parents[:count] = [each.parent for each in chosen]
    ranked.tokens[:count] = [each.token for each in chosen]
    ranked.totals[:count] = [-each.negative_total for each in chosen]
    ranked.log_probs[:count] = [each.log_prob for each in chosen]
