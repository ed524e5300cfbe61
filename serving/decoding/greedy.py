"""Batches of greedy search: one row per sentence. The next token is the likeliest, a sampled one, or the prefix's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from lingon.serving.decoding.batch import JobResult, RunningBatch, make_hypothesis, max_steps
from lingon.serving.decoding.choice import Candidates, RowState, RuledRow, bias_of, draw, log_prob
from lingon.serving.decoding.job import DecodeJob
from lingon.serving.decoding.rules import Progress
from lingon.serving.guard import is_looping
from lingon.serving.runtime.runner import FREE, BatchShape, Buffers, GreedyBuffers, SavedPast
from lingon.serving.runtime.runner import Step as Found
from lingon.text import BOS, EOS

LOOP_CHECK = 8  # tokens between two checks for loops


@dataclass(eq=False, slots=True)
class GreedySequence:
    """The one hypothesis of a sentence.

    max_steps: the number of steps after which it is cut
    progress: state of the rules of the request, if it has any
    log_probs: log-probability of each token; 0 in the prefix, unless the job asks for those of the prefix
    past: the past to return, if it was saved before the end
    """

    job: DecodeJob
    max_steps: int
    progress: Progress | None = None
    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    past: SavedPast | None = None

    @property
    def forced(self) -> int:
        """The number of next tokens that the prefix decides."""
        return max(len(self.job.prefix) - len(self.tokens), 0)

    @property
    def weighs(self) -> bool:
        """Whether the prefix decides the next token, whose log-probability is asked for."""
        return self.job.options.prefix_log_probs and self.forced > 0


class GreedyBatch(RunningBatch[GreedySequence]):
    """A batch in which every sentence has one hypothesis. A step copies nothing of the past.

    Tokens are in plain lists. After the graph of a step the caches are cold, and some 20 calls of NumPy on 32 numbers
    take twice as long as a loop over them.
    """

    def __init__(self, buffers: Buffers, shape: BatchShape) -> None:
        super().__init__(buffers, shape)
        self._greedy_buffers = buffers if isinstance(buffers, GreedyBuffers) else None

    def step(self) -> list[JobResult]:
        """Decide one more token of every sentence, or several if the buffers can and the engine needs no logits."""
        steps = self._steps_at_once()
        if steps > 1:
            return self._several_steps(steps)
        self.steps, count = 1, len(self._sequences)
        weighs = any(each.weighs for _, each in self._slots())
        found = self._buffers.step(count, logits=weighs or self._with_logits > 0)
        tokens, log_probs = found.candidate_ids[:, 0].tolist(), found.candidate_log_probs[:, 0].tolist()
        results: list[JobResult] = []
        for slot, sequence in self._slots():
            token, chosen = tokens[slot], log_probs[slot]
            if chosen != chosen:  # NaN
                results.append(self._fail(slot))
                continue
            try:
                if sequence.forced:
                    token = sequence.job.prefix[len(sequence.tokens)]
                    if sequence.weighs:
                        chosen = self._log_prob(found, slot, token)
                elif sequence.job.options.needs_logits:
                    token, chosen = self._next_token(sequence, slot, found)
                    if chosen == -math.inf:  # there is no such alternative
                        results.append((self._release(slot), ()))
                        continue
                tokens[slot] = token
                results += self._read(slot, sequence, (token,), (chosen,))
            except Exception as error:  # an error of this sentence alone
                results.append(self._fail(slot, error))
        self._next[:count, 0] = tokens
        self._positions[:count] += 1
        return results

    def _steps_at_once(self) -> int:
        """Return the number of steps before the tokens are read. The longest sentence may need all of them."""
        if self._greedy_buffers is None:
            return 1
        longest, needed, steps = 0, 0, self._greedy_buffers.most_steps
        for each in self._sequences:
            assert each is not None, "no slot is free"
            if each.weighs and not self._greedy_buffers.weighs:
                return 1
            if each.job.options.needs_logits or (each.forced and self._saves_prefix(each.job)):
                steps = min(steps, each.forced)
            longest, needed = max(longest, len(each.tokens)), max(needed, each.max_steps - len(each.tokens))
        return min(steps, needed, self._capacity - longest)

    def _several_steps(self, steps: int) -> list[JobResult]:
        """Decide several tokens of every sentence, each the likeliest one or the next one of the prefix."""
        assert self._greedy_buffers is not None
        weighs = any(each.weighs for _, each in self._slots())
        found = self._greedy_buffers.greedy_steps(len(self._sequences), steps, self._forced(steps), weighs=weighs)
        self.steps = len(found.tokens)
        results: list[JobResult] = []
        of_slots = zip(
            self._sequences, zip(*found.tokens, strict=True), zip(*found.log_probs, strict=True), strict=True
        )
        for slot, (sequence, tokens, log_probs) in enumerate(of_slots):
            assert sequence is not None
            try:
                results += self._read(slot, sequence, tokens, log_probs)
            except Exception as error:  # an error of this sentence alone
                results.append(self._fail(slot, error))
        return results

    def _forced(self, steps: int) -> np.ndarray | None:
        """Return the tokens that the prefixes decide in the next steps, (steps, sentences), or None if there are none.

        See lingon.serving.runtime.runner.GreedyBuffers.
        """
        found: np.ndarray | None = None
        for slot, sequence in self._slots():
            if sequence.forced:
                if found is None:
                    found = np.full((steps, len(self._sequences)), FREE)
                begin = len(sequence.tokens)
                own = sequence.job.prefix[begin : begin + steps]
                found[: len(own), slot] = own
        return found

    def _read(
        self, slot: int, sequence: GreedySequence, tokens: Sequence[int], log_probs: Sequence[float]
    ) -> list[JobResult]:
        """Continue a sentence with tokens. If it ends, return its result.

        Only the job decides which token is the last, so that a batch changes nothing.
        """
        job, own = sequence.job, sequence.tokens
        for token, chosen in zip(tokens, log_probs, strict=True):
            if chosen != chosen:  # NaN
                return [self._fail(slot)]
            has_none = len(own) < len(job.prefix) and not job.options.prefix_log_probs
            sequence.log_probs.append(0.0 if has_none else chosen)
            own.append(token)
            last = token == EOS or len(own) == sequence.max_steps
            if not last and job.options.cut_loops and len(own) % LOOP_CHECK == 0:
                last = is_looping(job.source_ids, own[len(job.prefix) :])
            if job.on_tokens is not None and token != EOS and len(own) > job.hidden:
                job.on_tokens(token)
            if last:
                return [self._finish(slot, sequence)]
        if len(own) == len(job.prefix) and self._saves_prefix(job):
            sequence.past = self._save(slot, sequence)
        return []

    def _saves_prefix(self, job: DecodeJob) -> bool:
        """Whether the past of a job is saved at the end of its prefix, because later states do not hold earlier ones.

        No further translation of a growing source then decodes a token of its prefix twice.
        """
        return job.options.keep_past and self._past_buffers is not None and not self._past_buffers.can_cut

    def _save(self, slot: int, sequence: GreedySequence) -> SavedPast | None:
        if self._past_buffers is None:
            return None
        found, job = self._past_buffers.save(slot, (BOS, *sequence.tokens[:-1])), sequence.job
        known = len(job.prefix) == job.hidden or job.options.prefix_log_probs
        log_probs = tuple(sequence.log_probs[: found.length - 1]) if known else None
        return replace(found, attention=self._attention_of(slot, 0, found.length), log_probs=log_probs)

    def _start(self, slot: int, job: DecodeJob) -> GreedySequence:
        options = job.options
        progress = None if options.rules is None else options.rules.start(job.shown_prefix)
        known = self._begin(slot, job)
        if job.on_tokens is not None:
            for token in known[job.hidden :]:
                job.on_tokens(token)
        past = job.past if known and self._saves_prefix(job) else None
        steps, weights = max_steps(job, self._capacity), [0.0] * len(known)
        if job.options.prefix_log_probs and known:
            assert job.past is not None
            assert job.past.log_probs is not None
            weights = list(job.past.log_probs[: len(known)])
        return GreedySequence(job, steps, progress, list(known), weights, past)

    def _log_prob(self, found: Found, slot: int, token: int) -> float:
        """Return the log-probability of a token that the prefix decides."""
        assert found.logits is not None
        return log_prob(
            found.logits[slot], token, Candidates(found.candidate_ids[slot], found.candidate_log_probs[slot])
        )

    def _next_token(self, sequence: GreedySequence, slot: int, found: Found) -> tuple[int, float]:
        """Return the next token after the prefix, which is sampled or restricted, and its log-probability."""
        prefix, options, step = sequence.job.prefix, sequence.job.options, len(sequence.tokens)
        assert found.logits is not None
        likeliest = Candidates(found.candidate_ids[slot], found.candidate_log_probs[slot])
        if options.rules is None:
            assert options.sampling is not None
            token = draw(found.logits[slot], options.sampling, step)
            return token, log_prob(found.logits[slot], token, likeliest)
        assert sequence.progress is not None
        state = RowState(sequence.progress, sequence.tokens, step - len(prefix), sequence.max_steps - step)
        row = RuledRow(options.rules, state, found.logits[slot], likeliest, bias_of(sequence.job, sequence.tokens))
        if options.alternative is not None and step == len(prefix):
            ids, log_probs = row.alternative(options.alternative, 1)
            sequence.progress = options.rules.read(sequence.progress, int(ids[0]))
            return int(ids[0]), float(log_probs[0])
        token, chosen, sequence.progress = row.next(options.sampling, step)
        return token, chosen

    def _finish(self, slot: int, sequence: GreedySequence) -> JobResult:
        """Free the slot of a complete sequence and return its result."""
        job, log_probs = sequence.job, sequence.log_probs
        finished = sequence.tokens[-1] == EOS
        tokens = sequence.tokens[:-1] if finished else sequence.tokens
        past, total = sequence.past, sum(log_probs[len(job.prefix) :])
        if job.options.keep_past and not self._saves_prefix(job):
            past = self._save(slot, sequence)
        attention = self._attention_of(slot, 0, len(log_probs))
        found = make_hypothesis(
            job, tokens, log_probs, total, sequence.progress, finished=finished, past=past, attention=attention
        )
        self._release(slot)
        return job, (found,)
