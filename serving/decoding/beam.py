"""Beam search: the ranking of hypotheses, the division of the beam for forced words, and the steps of a batch.

A batch has several rows per sentence. The hypotheses of all sentences are ranked and copied at once. The properties of
the search are stated in training/search.py. The beams of a sentence are ordered by rank. `rows` maps each rank to the
row of the running batch that holds its past. A change of rank then copies nothing. Only a parent with several children
is copied.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from lingon.serving.decoding.batch import Failures, JobResult, RunningBatch, make_hypothesis, max_steps, noting_failure
from lingon.serving.decoding.choice import Candidates, RowState, RuledRow, bias_of
from lingon.serving.decoding.choice import log_prob as log_prob_of
from lingon.serving.decoding.job import DecodeJob, Hypothesis
from lingon.serving.decoding.rules import Progress, Rules
from lingon.serving.runtime.runner import (
    FREE,
    BatchShape,
    BeamBuffers,
    BeamSearch,
    BeamStates,
    Buffers,
    EndedBeams,
    SeveralBeamSteps,
    SpreadingSearch,
    Step,
)
from lingon.text import EOS, PAD


class Ranked(NamedTuple):
    """Continuations of the hypotheses of each sentence, best first; (sentences, continuations) each.

    parents: the rank of the continued hypothesis
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
    """Return the best 2 * beam_size continuations. Equal ones are ordered by parent, then by candidate.

    totals: (sentences, beam_size), ordered by rank
    candidate_ids, candidate_log_probs: (sentences, beam_size, candidates), ordered by rank, likeliest first
    """
    sentences, beam_size, candidates = candidate_ids.shape
    sums = (totals[:, :, None] + candidate_log_probs).reshape(sentences, -1)
    order = np.argsort(-sums, axis=1, kind="stable")[:, : 2 * beam_size]
    flat = order + np.arange(0, sums.size, sums.shape[1])[:, None]  # indices into the flattened arrays
    return Ranked(order // candidates, candidate_ids.take(flat), sums.take(flat), candidate_log_probs.take(flat))


def select_survivors(ranked: Ranked, beam_size: int) -> Ranked:
    """Return the best beam_size continuations that do not end. Enough exist, because a parent has at most one end."""
    ends = ranked.tokens == EOS
    if not ends[:, :beam_size].any():
        return Ranked(*(column[:, :beam_size] for column in ranked))
    chosen = np.argsort(ends, axis=1, kind="stable")[:, :beam_size]
    return Ranked(*(np.take_along_axis(column, chosen, axis=1) for column in ranked))


def assign_rows(rows: np.ndarray, parents: np.ndarray) -> tuple[np.ndarray, Copies]:
    """Return the rows of the new ranks, (sentences, beam_size), and the pasts to copy.

    rows: (sentences, beam_size), the row of each old rank
    parents: (sentences, beam_size), the old rank that each new rank continues

    The first child of a parent keeps the parent's row. The other children take rows of hypotheses without children, so
    that no row is both copied and overwritten.
    """
    index = np.arange(len(rows))[:, None]
    assigned = rows[index, parents]
    same_parent = parents[:, :, None] == parents[:, None, :]
    later_child = (same_parent & _earlier_ranks(rows.shape[1])).any(axis=2)
    childless = np.ones(rows.shape, bool)
    childless[index, parents] = False
    sentences = np.nonzero(later_child)[0]
    # A sentence has as many childless rows as later children, and both are in the order of sentences.
    copies = Copies(sentences, assigned[later_child], rows[childless])
    assigned[later_child] = copies.targets
    return assigned, copies


@functools.cache
def _earlier_ranks(beam_size: int) -> np.ndarray:
    """Return (beam_size, beam_size), True if the column's rank is before the row's."""
    return np.tri(beam_size, k=-1, dtype=np.bool_)


class Continuation(NamedTuple):
    """A hypothesis with one more token; see Ranked. Their order is the order of ranks."""

    negative_total: float
    parent: int
    token: int
    log_prob: float


def allocate(rows: Sequence[RuledRow | None], totals: np.ndarray, candidates: Candidates, ranked: Ranked) -> None:
    """Replace the continuations of a sentence by the choice of dynamic beam allocation, in place.

    Hypotheses compete only with hypotheses that have equally many forced tokens: a *bank* holds the continuations with
    the same number of forced tokens. The beam is divided among the banks, so that a hypothesis with a forced word,
    which is unlikely at first, is not lost. A hypothesis ends only with all words (Post and Vilar 2018).

    rows: by rank of the hypothesis, or None for one that is not live
    totals: (beam_size), log-probability of each hypothesis
    candidates: (beam_size, candidates) each, the permitted tokens after each hypothesis
    ranked: (2 * beam_size), the likeliest permitted continuations; afterwards first the ended ones, then the others,
        each best first
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
    survivors = _round_robin([banks[bank] for bank in sorted(banks, reverse=True)], beam_size)
    if not survivors and not endings:
        endings = [each for each in found if each.token == EOS][:beam_size]
    _write([*endings, *sorted(survivors)], ranked)


def _finite(continuations: Ranked) -> Iterator[Continuation]:
    columns = (column.tolist() for column in continuations)
    for parent, token, total, log_prob in zip(*columns, strict=True):
        if total > -math.inf:
            yield Continuation(-total, parent, token, log_prob)


def _own(rows: Sequence[RuledRow | None], totals: np.ndarray, candidates: Candidates) -> Iterator[Continuation]:
    """Yield the likeliest continuation of each hypothesis, and all candidates of a hypothesis with all words."""
    for parent, row in enumerate(rows):
        if row is not None:
            count = 1 if row.rules.lacks_words(row.state.progress) else candidates.ids.shape[1]
            ids, log_probs = candidates.ids[parent, :count], candidates.log_probs[parent, :count]
            columns = np.full(count, parent), ids, totals[parent] + log_probs, log_probs
            yield from _finite(Ranked(*columns))


def _advancing(rows: Sequence[RuledRow | None], totals: np.ndarray) -> Iterator[Continuation]:
    """Yield the continuations with a token of a missing forced word."""
    for parent, row in enumerate(rows):
        if row is None or not row.rules.lacks_words(row.state.progress) or not (tokens := row.advancing()):
            continue
        log_probs = row.log_probs(np.array(tokens))
        sums = (totals[parent] + log_probs).tolist()
        for token, total, log_prob in zip(tokens, sums, log_probs.tolist(), strict=True):
            yield Continuation(-total, parent, token, log_prob)


def _bank(row: RuledRow, token: int) -> tuple[int, bool]:
    """Return the number of forced tokens of a continuation, and whether it has all."""
    forced = row.rules.forced
    assert forced is not None
    if not row.rules.lacks_words(row.state.progress):
        return forced.total, True
    progress = row.state.progress.forced
    if token != EOS:
        progress = forced.read(progress, token)
    return forced.total - forced.tokens_needed(progress) + progress.taken, forced.is_met(progress)


def _round_robin(banks: Sequence[Sequence[Continuation]], count: int) -> list[Continuation]:
    """Return `count` continuations: the best of every bank, then the second best, and so on, the fullest bank first."""
    dealt = (each for places in zip_longest(*banks) for each in places if each is not None)
    return [each for each, _ in zip(dealt, range(count), strict=False)]


def _write(chosen: Sequence[Continuation], ranked: Ranked) -> None:
    count = len(chosen)
    ranked.parents[:], ranked.tokens[:], ranked.log_probs[:], ranked.totals[:] = 0, PAD, 0, -np.inf
    ranked.parents[:count] = [each.parent for each in chosen]
    ranked.tokens[:count] = [each.token for each in chosen]
    ranked.totals[:count] = [-each.negative_total for each in chosen]
    ranked.log_probs[:count] = [each.log_prob for each in chosen]


@dataclass(eq=False, slots=True)
class BeamSequence:
    """The ended hypotheses of a sentence.

    max_steps: the number of steps after which the live hypotheses are cut
    progress: state of the rules by rank, if the request has rules; state after the prefix while that is incomplete
    threshold: the search continues only while a live hypothesis may score above it; the score of the worst ended
        hypothesis, once there are enough
    weighed: log-probabilities of the first tokens of the prefix, if the job asks for them
    """

    job: DecodeJob
    max_steps: int
    progress: list[Progress]
    ended: list[Hypothesis] = field(default_factory=list)
    threshold: float = -math.inf
    weighed: list[float] = field(default_factory=list)

    @property
    def weighs(self) -> bool:
        """Whether the job asks for the log-probability of the next token, which the prefix decides."""
        return self.job.options.prefix_log_probs and len(self.weighed) < len(self.job.prefix)

    def add(
        self,
        rank: int,
        tokens: np.ndarray,
        log_probs: np.ndarray,
        total: float,
        attention: np.ndarray | None,
        *,
        finished: bool,
    ) -> None:
        """Add an ended hypothesis; tokens: (length), log_probs: (length), with the end token's if finished.

        rank: rank of the hypothesis, before its end token if finished
        attention: a row for each of log_probs, or None if its job wants none
        """
        progress, every = self.progress[rank] if self.progress else None, log_probs.tolist()
        every[: len(self.weighed)] = self.weighed
        made = make_hypothesis(
            self.job, tokens.tolist(), every, total, progress, finished=finished, attention=attention
        )
        self.ended.append(made)
        enough = self.job.options.enough
        if len(self.ended) >= enough:
            self.threshold = self.best(enough)[-1].score

    def best(self, count: int) -> tuple[Hypothesis, ...]:
        """Return the best ended hypotheses, best first."""
        return tuple(sorted(self.ended, key=lambda hypothesis: hypothesis.rank_key)[:count])

    def read(self, parents: Sequence[int], tokens: Sequence[int]) -> None:
        """Update the progress of the live hypotheses. parents and tokens are by the new rank."""
        rules = self.job.options.rules
        assert rules is not None
        self.progress = [
            rules.read(self.progress[parent], token) for parent, token in zip(parents, tokens, strict=True)
        ]

    def is_over(self, steps: int, best_live_total: float) -> bool:
        """Return whether no live hypothesis, of `steps` tokens each, scores above the threshold."""
        if best_live_total == -math.inf:  # the rules permit no continuation, or there is no such alternative
            return bool(self.ended) or self.job.options.alternative is not None
        if self.threshold == -math.inf:
            return False
        generated = max(steps - len(self.job.prefix), 1)
        return self.threshold >= best_live_total / float(generated**self.job.options.length_penalty)


class BeamBatch(RunningBatch[BeamSequence]):
    """A batch of beam search. A past is copied only if several hypotheses continue it."""

    def __init__(self, buffers: Buffers, shape: BatchShape) -> None:
        super().__init__(buffers, shape)
        slots, beam_size = shape.sentences, shape.beam_size
        self._slot_index, self._ranks = np.arange(slots)[:, None], np.arange(beam_size)
        # By slot and rank of the hypothesis: its row within the slot, and its log-probability.
        self._rows = np.tile(self._ranks, (slots, 1))
        self._totals = np.zeros((slots, beam_size), np.float32)
        # By slot, row and step: the tokens and their log-probabilities.
        self._tokens = np.zeros((slots, beam_size, shape.capacity), np.int64)
        self._log_probs = np.zeros((slots, beam_size, shape.capacity), np.float32)
        states = BeamStates(self._rows, self._totals, self._tokens, self._log_probs)
        self._search = buffers.beam_search(states) if isinstance(buffers, BeamBuffers) else None

    def step(self) -> list[JobResult]:
        """Decide one more token of every hypothesis, or several of those that are in their prefix."""
        self.steps, count = 1, len(self._sequences)
        search = None if self._with_logits else self._search
        if search is not None and (prefixes := self._prefixes()):
            return self._step_in_prefixes(search, prefixes)
        if isinstance(search, SeveralBeamSteps) and self._has_room(search.most_steps):
            return self._several_steps(search)
        weighs = search is None and any(each.weighs for _, each in self._slots())
        found = self._buffers.step(count, logits=weighs or self._with_logits > 0)
        if search is not None:
            return self._read(search.advance(count))
        if weighs:
            self._weigh(found, {slot: prefix[:1] for slot, prefix in self._prefixes().items()})
        shape = (count, self.beam_size, -1)
        by_rank = (self._slot_index[:count], self._rows[:count])
        log_probs = found.candidate_log_probs.reshape(shape)[by_rank]
        candidate_ids = found.candidate_ids.reshape(shape)[by_rank]
        failed = _slots_with_nan(log_probs)
        rows = self._apply_rules(found.logits, candidate_ids, log_probs, failed) if self._with_logits else {}
        ranked = rank(self._totals[:count], candidate_ids, log_probs)
        for slot, ruled in rows.items():
            with noting_failure(slot, failed):
                self._allocate(slot, ruled, Candidates(candidate_ids[slot], log_probs[slot]), ranked)
        self._force_prefix(ranked)
        self._add_ended(ranked, failed)
        survivors = select_survivors(ranked, self.beam_size)
        for slot in rows:
            with noting_failure(slot, failed):
                self._sequence(slot).read(survivors.parents[slot].tolist(), survivors.tokens[slot].tolist())
        self._continue(survivors)
        return self._finish(failed)

    def _has_room(self, steps: int) -> bool:
        """Return whether all pasts have room for so many steps."""
        return int(self._positions[: len(self._sequences)].max()) + steps <= self._capacity

    def _several_steps(self, search: SeveralBeamSteps) -> list[JobResult]:
        """Decide several tokens of every hypothesis. A sentence that is over is ignored in the steps that follow."""
        self.steps, results = search.most_steps, list[JobResult]()
        for ended in search.several(len(self._sequences)):
            results += self._read(ended)
            if not self.live:
                break
        return results

    def _prefixes(self) -> dict[int, tuple[int, ...]]:
        """Return the next tokens of the incomplete prefixes, by slot."""
        of_slots = (
            (slot, each.job.prefix[int(self._positions[slot, 0]) : each.max_steps]) for slot, each in self._slots()
        )
        return {slot: tokens for slot, tokens in of_slots if tokens}

    def _step_in_prefixes(self, search: BeamSearch, prefixes: dict[int, tuple[int, ...]]) -> list[JobResult]:
        """Decide one more token of every hypothesis, and of those in their prefix as many as the buffers can.

        A sentence has one hypothesis during its prefix, so that its rows are free to compute further positions.
        """
        count, rows = len(self._sequences), self.beam_size if isinstance(search, SpreadingSearch) else 1
        forced = np.full(count, FREE)
        decided = {slot: tokens[:rows] for slot, tokens in prefixes.items()}
        for slot, tokens in decided.items():
            if len(tokens) > 1:
                assert isinstance(search, SpreadingSearch)
                self._spread(search, slot, tokens)
            forced[slot] = tokens[-1]
        weighs = any(self._sequence(slot).weighs for slot in decided)
        found = self._buffers.step(count, logits=weighs)
        if weighs:
            self._weigh(found, decided)
        for slot, tokens in decided.items():
            begin, last = int(self._positions[slot, 0]), len(tokens) - 1
            self._tokens[slot, 0, begin : begin + last], self._log_probs[slot, 0, begin : begin + last] = tokens[:-1], 0
            self._positions[slot] = begin + last
        return self._read(search.advance(count, forced))

    def _weigh(self, found: Step, decided: dict[int, tuple[int, ...]]) -> None:
        """Note the log-probabilities of the next tokens of prefixes, by slot, for the jobs that ask for them.

        The first token is that of the row of the best hypothesis, and each other one that of the row after it.
        """
        assert found.logits is not None
        for slot, tokens in decided.items():
            if not (sequence := self._sequence(slot)).weighs:
                continue
            first = slot * self.beam_size + int(self._rows[slot, 0])
            for row, token in enumerate(tokens, start=first):
                likeliest = Candidates(found.candidate_ids[row], found.candidate_log_probs[row])
                sequence.weighed.append(log_prob_of(found.logits[row], token, likeliest))

    def _spread(self, search: SpreadingSearch, slot: int, tokens: tuple[int, ...]) -> None:
        """Let the rows of a sentence compute the positions before these next tokens in one step.

        Surplus rows repeat the last of these positions.
        """
        begin, steps = int(self._positions[slot, 0]), np.minimum(self._ranks, len(tokens) - 1)
        inputs = np.array((self._next[slot, 0], *tokens[:-1]))
        self._next[slot], self._positions[slot] = inputs[steps], begin + steps
        search.spread(slot, begin, len(tokens))

    def _read(self, ended: EndedBeams) -> list[JobResult]:
        """Return the results of a step of the beam search graph."""
        live = [sequence is not None for sequence in self._sequences]
        failed: Failures = dict.fromkeys(np.flatnonzero(ended.failed & live).tolist())
        for slot, rank in zip(*(axis.tolist() for axis in np.nonzero(ended.flags)), strict=True):
            if not live[slot]:
                continue
            steps = int(self._positions[slot, 0]) - 1
            tokens, log_probs = ended.tokens[slot, rank, :steps], ended.log_probs[slot, rank, : steps + 1]
            with noting_failure(slot, failed):
                total, attention = float(ended.totals[slot, rank]), self._attention_of_ended(ended, slot, rank)
                self._sequence(slot).add(0, tokens, log_probs, total, attention, finished=True)
        return self._finish(failed)

    def _attention_of_ended(self, ended: EndedBeams, slot: int, rank: int) -> np.ndarray | None:
        """Return where a hypothesis that ended looked, or None; rank: its place in `ended`. See _attention_of."""
        job, steps = self._sequence(slot).job, int(self._positions[slot, 0])
        if self._attention is None or ended.rows is None or not job.options.attention:
            return None
        rows = slot * self.beam_size + ended.rows[slot, rank, :steps]
        return self._attention.of_rows(rows)[:, : len(job.source_ids)]

    def _start(self, slot: int, job: DecodeJob) -> BeamSequence:
        rules = job.options.rules
        progress = [] if rules is None else [rules.start(job.shown_prefix)] * self.beam_size
        known = self._begin(slot, job)
        self._tokens[slot, :, : len(known)], self._log_probs[slot, :, : len(known)] = known, 0
        self._rows[slot] = self._ranks
        self._totals[slot] = -np.inf  # all beams begin with the same past, so that only the first is live
        self._totals[slot, 0] = 0
        return BeamSequence(job, max_steps(job, self._capacity), progress)

    def _apply_rules(
        self, logits: np.ndarray | None, candidate_ids: np.ndarray, log_probs: np.ndarray, failed: Failures
    ) -> dict[int, list[RuledRow | None]]:
        """Replace the candidates of sentences with rules by the permitted ones.

        candidate_ids, log_probs: (slots, beam_size, candidates), by rank
        failed: unchanged slots; slots whose rules raise an error are added
        Returns the rows of these sentences, by slot and rank, with None for a hypothesis that is not live.
        """
        assert logits is not None
        found: dict[int, list[RuledRow | None]] = {}
        for slot, sequence in self._slots():
            rules, step = sequence.job.options.rules, int(self._positions[slot, 0])
            if rules is None or step < len(sequence.job.prefix) or slot in failed:
                continue
            own = logits[slot * self.beam_size : (slot + 1) * self.beam_size]
            with noting_failure(slot, failed):
                found[slot] = self._ruled(slot, rules, own, Candidates(candidate_ids[slot], log_probs[slot]))
        return found

    def _ruled(self, slot: int, rules: Rules, logits: np.ndarray, candidates: Candidates) -> list[RuledRow | None]:
        """Replace the candidates of a sentence and return its rows by rank, see `_apply_rules`.

        logits: (beam_size, vocab), by row; candidates: (beam_size, candidates) each, by rank
        """
        sequence, step = self._sequence(slot), int(self._positions[slot, 0])
        rows: list[RuledRow | None] = []
        for rank, total in enumerate(self._totals[slot].tolist()):
            if total == -math.inf:
                rows.append(None)
                continue
            row = int(self._rows[slot, rank])
            tokens, generated = self._tokens[slot, row, :step].tolist(), step - len(sequence.job.prefix)
            state = RowState(sequence.progress[rank], tokens, generated, sequence.max_steps - step)
            likeliest = Candidates(candidates.ids[rank], candidates.log_probs[rank])
            ruled = RuledRow(rules, state, logits[row], likeliest, bias_of(sequence.job, tokens))
            end = not rules.lacks_words(state.progress)
            found = ruled.candidates(len(likeliest.ids), end=end)
            if generated == 0 and (wanted := sequence.job.options.alternative) is not None:
                found = ruled.alternative(wanted, len(likeliest.ids))
            candidates.ids[rank], candidates.log_probs[rank] = found
            rows.append(ruled)
        return rows

    def _allocate(self, slot: int, rows: Sequence[RuledRow | None], candidates: Candidates, ranked: Ranked) -> None:
        """Divide the beam of a sentence if it has forced words; candidates: (beam_size, candidates) each.

        The single first hypothesis of alternatives is not divided.
        """
        first, options = rows[0], self._sequence(slot).job.options
        begins = first is not None and first.state.generated == 0 and options.alternative is not None
        if first is not None and first.rules.forced is not None and not begins:
            allocate(rows, self._totals[slot], candidates, Ranked(*(column[slot] for column in ranked)))

    def _slot_arrays(self) -> Sequence[np.ndarray]:
        return *super()._slot_arrays(), self._rows, self._totals, self._tokens, self._log_probs

    def _force_prefix(self, ranked: Ranked) -> None:
        """Continue every hypothesis with the next token of the prefix while the prefix is incomplete."""
        for slot, sequence in self._slots():
            prefix = sequence.job.prefix
            if prefix and (step := int(self._positions[slot, 0])) < len(prefix):
                ranked.parents[slot] = np.arange(ranked.parents.shape[1]) % self.beam_size
                ranked.tokens[slot], ranked.log_probs[slot] = prefix[step], 0
                ranked.totals[slot] = self._totals[slot][ranked.parents[slot]]

    def _add_ended(self, ranked: Ranked, failed: Failures) -> None:
        """Add the hypotheses that end in this step, if they rank within the beam, to their sequences.

        failed: slots for which this raises an error are added
        """
        ending = ranked.tokens[:, : self.beam_size] == EOS
        if not ending.any():
            return
        ending &= ranked.totals[:, : self.beam_size] > -np.inf
        for slot, index in zip(*(axis.tolist() for axis in np.nonzero(ending)), strict=True):
            parent = ranked.parents[slot, index]
            row, steps = self._rows[slot, parent], self._positions[slot, 0]
            log_probs = np.append(self._log_probs[slot, row, :steps], ranked.log_probs[slot, index])
            total = float(ranked.totals[slot, index])
            with noting_failure(slot, failed):
                tokens, attention = self._tokens[slot, row, :steps], self._attention_of(slot, int(row), steps + 1)
                self._sequence(slot).add(parent, tokens, log_probs, total, attention, finished=True)

    def _continue(self, survivors: Ranked) -> None:
        """Make the survivors the live hypotheses."""
        count = len(self._sequences)
        slots, rows, steps = self._slot_index[:count], self._rows[:count], self._positions[:count, :1]
        if not (survivors.parents == self._ranks).all():
            rows[...] = self._copy_parents(rows, survivors.parents)
        self._totals[:count] = survivors.totals
        self._tokens[slots, rows, steps] = survivors.tokens
        self._log_probs[slots, rows, steps] = survivors.log_probs
        self._next[slots, rows] = survivors.tokens
        self._positions[:count] += 1

    def _copy_parents(self, rows: np.ndarray, parents: np.ndarray) -> np.ndarray:
        """Copy the past of each parent for all its children but the first. Returns the rows of the new ranks.

        rows, parents and the result: (slots, beam_size), see `assign_rows`
        """
        assigned, (slots, sources, targets) = assign_rows(rows, parents)
        if len(slots):
            # The step has already written the position of its token, so that a past is one longer than the decided
            # tokens.
            lengths = self._positions[slots, 0] + 1
            longest = int(lengths.max())
            for history in (self._tokens, self._log_probs):
                history[slots, targets, :longest] = history[slots, sources, :longest]
            first = slots * self.beam_size
            self.copied_bytes += self._buffers.copy_rows(first + sources, first + targets, lengths)
        return assigned

    def _finish(self, failed: Failures) -> list[JobResult]:
        """Free the slots of sequences that failed, are over or have the maximum length, and return their results."""
        results = [self._fail(slot, error) for slot, error in failed.items()]
        failed.clear()  # the frames of its errors hold it, which is a reference cycle
        steps, best = self._positions[:, 0].tolist(), self._totals[:, 0].tolist()
        for slot, sequence in enumerate(self._sequences):
            if sequence is None:
                continue
            try:
                over = sequence.is_over(steps[slot], best[slot])
                if over or steps[slot] == sequence.max_steps:
                    if not over:
                        self._add_live(slot, sequence)
                    found = sequence.best(sequence.job.options.num_hypotheses)
                    results.append((self._release(slot), found))
            except Exception as error:  # an error of this sentence alone
                results.append(self._fail(slot, error))
        return results

    def _add_live(self, slot: int, sequence: BeamSequence) -> None:
        """Add the live hypotheses, cut at the maximum length, to their sequence."""
        steps = self._positions[slot, 0]
        for rank, total in enumerate(self._totals[slot].tolist()):
            if total > -math.inf:
                row = self._rows[slot, rank]
                tokens, log_probs = self._tokens[slot, row, :steps], self._log_probs[slot, row, :steps]
                attention = self._attention_of(slot, int(row), int(steps))
                sequence.add(rank, tokens, log_probs, total, attention, finished=False)


def _slots_with_nan(log_probs: np.ndarray) -> Failures:
    if not math.isnan(log_probs.sum()):
        return {}
    return dict.fromkeys(np.flatnonzero(np.isnan(log_probs).any(axis=(1, 2))).tolist())
