"""Beam lanes: several rows a sentence, whose hypotheses are ranked, copied and ended all at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from lingon.serving.decoding.batch import Ended, RunningBatch, hypothesis, last_step
from lingon.serving.decoding.job import DecodeJob, Hypothesis
from lingon.serving.decoding.search import Ranked, Survivors, assign_rows, rank, survive
from lingon.serving.runtime.runner import Buffers
from lingon.text import BOS, EOS


@dataclass(eq=False, slots=True)
class BeamSequence:
    """A sentence, and the hypotheses of it that have ended.

    last: the step, from 1, after which it is cut
    bar: what a live hypothesis has to score for the search to go on: more than the worst of enough found ones
    """

    job: DecodeJob
    last: int
    found: list[Hypothesis] = field(default_factory=list)
    bar: float = -math.inf

    def keep(self, tokens: np.ndarray, log_probs: np.ndarray, total: float, *, finished: bool) -> None:
        """Keep a hypothesis. Without a length penalty scores only fall, so that fewer are enough."""
        self.found.append(hypothesis(self.job, tokens.tolist(), log_probs.tolist(), total, finished=finished))
        options = self.job.options
        enough = options.num_hypotheses if options.length_penalty == 0 else options.beam_size
        if len(self.found) >= enough:
            self.bar = self.best(enough)[-1].score

    def best(self, count: int) -> tuple[Hypothesis, ...]:
        """The best hypotheses so far, best first."""
        return tuple(sorted(self.found, key=lambda found: -found.score)[:count])

    def is_over(self, steps: int, best_live_total: float) -> bool:
        """Whether nothing live, of `steps` tokens, scores above the bar."""
        if self.bar == -math.inf:
            return False
        generated = max(steps - len(self.job.prefix), 1)
        return self.bar >= best_live_total / float(generated**self.job.options.length_penalty)


class BeamBatch(RunningBatch[BeamSequence]):
    """A batch of beam search; a past is copied only where a hypothesis goes on in more than one way.

    By slot and rank of beam: rows (the row within the slot that the hypothesis lives in), totals (log-probabilities).
    By slot and row: tokens and log_probs (slots, beam_size, capacity).
    """

    def __init__(self, buffers: Buffers, slots: int, beam_size: int, capacity: int) -> None:
        super().__init__(buffers, slots, beam_size, capacity)
        self._slots, self._ranks = np.arange(slots)[:, None], np.arange(beam_size)
        self._rows = np.tile(self._ranks, (slots, 1))
        self._totals = np.zeros((slots, beam_size), np.float32)
        self._tokens = np.zeros((slots, beam_size, capacity), np.int64)
        self._log_probs = np.zeros((slots, beam_size, capacity), np.float32)

    def step(self) -> list[Ended]:
        """Decide one more token of every hypothesis."""
        count = len(self._sentences)
        found = self._buffers.step(count, logits=False)
        shape = (count, self.beam_size, -1)
        by_rank = (self._slots[:count], self._rows[:count])
        log_probs = found.candidate_log_probs.reshape(shape)[by_rank]
        ranked = rank(self._totals[:count], found.candidate_ids.reshape(shape)[by_rank], log_probs)
        self._lead(ranked)
        self._finish(ranked)
        self._continue(survive(ranked, self.beam_size))
        ended = [self._fail(slot) for slot in _faulty(log_probs)]
        return ended + self._end()

    def _begin(self, slot: int, job: DecodeJob) -> BeamSequence:
        self._next[slot] = BOS
        self._rows[slot] = self._ranks
        self._totals[slot] = -np.inf  # every beam has the same past as yet, so only one is live
        self._totals[slot, 0] = 0
        return BeamSequence(job, last_step(job, self._capacity))

    def _by_slot(self) -> Sequence[np.ndarray]:
        return *super()._by_slot(), self._rows, self._totals, self._tokens, self._log_probs

    def _lead(self, ranked: Ranked) -> None:
        """Where a prefix is not yet spent, its token comes next."""
        for slot, tree in self._seated():
            prefix = tree.job.prefix
            if prefix and (step := int(self._positions[slot, 0])) < len(prefix):
                ranked.parents[slot] = np.arange(ranked.parents.shape[1]) % self.beam_size
                ranked.tokens[slot], ranked.log_probs[slot] = prefix[step], 0
                ranked.totals[slot] = self._totals[slot][ranked.parents[slot]]

    def _finish(self, ranked: Ranked) -> None:
        """Keep the hypotheses that end here: those that rank within the beam."""
        ending = ranked.tokens[:, : self.beam_size] == EOS
        if not ending.any():
            return
        ending &= ranked.totals[:, : self.beam_size] > -np.inf
        for slot, place in zip(*(axis.tolist() for axis in np.nonzero(ending)), strict=True):
            row, steps = self._rows[slot, ranked.parents[slot, place]], self._positions[slot, 0]
            log_probs = np.append(self._log_probs[slot, row, :steps], ranked.log_probs[slot, place])
            total = float(ranked.totals[slot, place])
            self._sentence(slot).keep(self._tokens[slot, row, :steps], log_probs, total, finished=True)

    def _continue(self, survivors: Survivors) -> None:
        """Make the survivors the live hypotheses."""
        count = len(self._sentences)
        slots, rows, steps = self._slots[:count], self._rows[:count], self._positions[:count, :1]
        if not (survivors.parents == self._ranks).all():
            rows[...] = self._reordered(rows, survivors.parents)
        self._totals[:count] = survivors.totals
        self._tokens[slots, rows, steps] = survivors.tokens
        self._log_probs[slots, rows, steps] = survivors.log_probs
        self._next[slots, rows] = survivors.tokens
        self._positions[:count] += 1

    def _reordered(self, rows: np.ndarray, parents: np.ndarray) -> np.ndarray:
        """The rows of the new ranks; what has several children is copied for all but the first."""
        assigned, (slots, sources, targets) = assign_rows(rows, parents)
        if len(slots):
            # The step has written the position of its token, so that a past is one longer than the tokens decided.
            lengths = self._positions[slots, 0] + 1
            longest = int(lengths.max())
            for history in (self._tokens, self._log_probs):
                history[slots, targets, :longest] = history[slots, sources, :longest]
            first = slots * self.beam_size
            self.copied_bytes += self._buffers.copy_rows(first + sources, first + targets, lengths)
        return assigned

    def _end(self) -> list[Ended]:
        """Hand out the sentences that are over, cut those at their bound."""
        ended: list[Ended] = []
        steps, best = self._positions[:, 0].tolist(), self._totals[:, 0].tolist()
        for slot, tree in enumerate(self._sentences):
            if tree is None:
                continue
            over = tree.is_over(steps[slot], best[slot])
            if over or steps[slot] == tree.last:
                if not over:
                    self._cut(slot, tree)
                self._vacate(slot)
                ended.append((tree.job, tree.best(tree.job.options.num_hypotheses)))
        return ended

    def _cut(self, slot: int, tree: BeamSequence) -> None:
        """Keep the live hypotheses as they are."""
        steps = self._positions[slot, 0]
        for row, total in zip(self._rows[slot].tolist(), self._totals[slot].tolist(), strict=True):
            if total > -math.inf:
                tree.keep(self._tokens[slot, row, :steps], self._log_probs[slot, row, :steps], total, finished=False)


def _faulty(log_probs: np.ndarray) -> list[int]:
    """The slots among whose log-probabilities (slots, beam_size, candidates) is one that is not a number."""
    if not math.isnan(log_probs.sum()):
        return []
    return np.flatnonzero(np.isnan(log_probs).any(axis=(1, 2))).tolist()
