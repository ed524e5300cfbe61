"""Batches of greedy search: one row per sentence. The next token is the likeliest, a sampled one, or the prefix's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from lingon.serving.decoding.batch import JobResult, RunningBatch, make_hypothesis, max_steps
from lingon.serving.decoding.choice import Candidates, RowState, RuledRow, bias_of, draw, log_prob
from lingon.serving.decoding.job import DecodeJob
from lingon.serving.decoding.rules import Progress
from lingon.serving.guard import is_looping
from lingon.serving.runtime.runner import BatchShape, Buffers, GreedyBuffers
from lingon.serving.runtime.runner import Step as Found
from lingon.text import BOS, EOS

LOOP_CHECK = 8  # tokens between two checks for loops


@dataclass(eq=False, slots=True)
class GreedySequence:
    """The one hypothesis of a sentence.

    max_steps: the number of steps after which it is cut
    takes_best: whether all further tokens are the likeliest ones: the prefix is complete, tokens are not sampled, and
        there are no rules
    progress: state of the rules of the request, if it has any
    log_probs: log-probability of each token; 0 in the prefix
    """

    job: DecodeJob
    max_steps: int
    takes_best: bool
    progress: Progress | None = None
    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)


class GreedyBatch(RunningBatch[GreedySequence]):
    """A batch in which every sentence has one hypothesis. A step copies nothing of the past.

    Tokens are in plain lists. After the graph of a step the caches are cold, and some 20 calls of NumPy on 32 numbers
    take twice as long as a loop over them.
    """

    def __init__(self, buffers: Buffers, shape: BatchShape) -> None:
        super().__init__(buffers, shape)
        self._greedy_buffers = buffers if isinstance(buffers, GreedyBuffers) else None

    def step(self) -> list[JobResult]:
        """Decide one more token of every sentence, or several if the buffers can and all tokens are the likeliest."""
        steps = self._steps_at_once()
        if steps > 1:
            return self._several_steps(steps)
        self.steps, count = 1, len(self._sequences)
        found = self._buffers.step(count, logits=self._with_logits > 0)
        tokens, log_probs = found.candidate_ids[:, 0].tolist(), found.candidate_log_probs[:, 0].tolist()
        results: list[JobResult] = []
        for slot, sequence in self._slots():
            token, chosen = tokens[slot], log_probs[slot]
            if chosen != chosen:  # NaN
                results.append(self._fail(slot))
                continue
            try:
                if not sequence.takes_best:
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
        """Return the number of steps that the buffers may take before the tokens are read."""
        if self._greedy_buffers is None:
            return 1
        longest = 0
        for each in self._sequences:
            assert each is not None, "no slot is free"
            if not each.takes_best:
                return 1
            longest = max(longest, len(each.tokens))
        return min(self._greedy_buffers.most_steps, self._capacity - longest)

    def _several_steps(self, steps: int) -> list[JobResult]:
        """Decide several tokens of every sentence, each the likeliest one."""
        assert self._greedy_buffers is not None
        found = self._greedy_buffers.greedy_steps(len(self._sequences), steps)
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
            own.append(token)
            sequence.log_probs.append(chosen)
            last = token == EOS or len(own) == sequence.max_steps
            if not last and job.options.cut_loops and len(own) % LOOP_CHECK == 0:
                last = is_looping(job.source_ids, own[len(job.prefix) :])
            if job.on_tokens is not None and token != EOS and len(own) > job.hidden:
                job.on_tokens(token)
            if last:
                return [self._finish(slot, sequence)]
        return []

    def _start(self, slot: int, job: DecodeJob) -> GreedySequence:
        options = job.options
        progress = None if options.rules is None else options.rules.start(job.shown_prefix)
        self._next[slot] = BOS
        takes_best = not (options.needs_logits or job.prefix)
        return GreedySequence(job, max_steps(job, self._capacity), takes_best, progress)

    def _next_token(self, sequence: GreedySequence, slot: int, found: Found) -> tuple[int, float]:
        """Return the next token and its log-probability: of the prefix, or after it a sampled or restricted one."""
        prefix, options, step = sequence.job.prefix, sequence.job.options, len(sequence.tokens)
        if step < len(prefix):
            sequence.takes_best = not options.needs_logits and step + 1 == len(prefix)
            return prefix[step], 0.0
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
        found = make_hypothesis(job, tokens, log_probs, sum(log_probs), sequence.progress, finished=finished)
        self._release(slot)
        return job, (found,)
