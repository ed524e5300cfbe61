"""Batches of greedy search: one row per sentence; the next token is the likeliest, a sampled one, or the prefix's."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from lingon.serving.decoding.batch import JobResult, RunningBatch, make_hypothesis, max_steps
from lingon.serving.decoding.job import DecodeJob
from lingon.serving.decoding.search import draw, log_prob
from lingon.serving.runtime.runner import BatchShape, Buffers
from lingon.text import BOS, EOS


@dataclass(eq=False, slots=True)
class GreedySequence:
    """The one hypothesis of a sentence.

    max_steps: the number of steps after which it is cut
    takes_best: whether all further tokens are the likeliest ones: the prefix is complete and tokens are not sampled
    log_probs: of each of tokens; 0 in the prefix
    """

    job: DecodeJob
    max_steps: int
    takes_best: bool
    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)


class GreedyBatch(RunningBatch[GreedySequence]):
    """A batch in which every sentence has one hypothesis; a step copies nothing of the past.

    Tokens are in plain lists: after the graph of a step the caches are cold, and some 20 calls of NumPy on 32 numbers
    took twice as long as a loop over them.
    """

    def __init__(self, buffers: Buffers, shape: BatchShape) -> None:
        super().__init__(buffers, shape)
        self._sampling = 0  # number of sentences that sample; only they need logits

    def step(self) -> list[JobResult]:
        """Decide one more token of every sentence."""
        count = len(self._sequences)
        found = self._buffers.step(count, logits=self._sampling > 0)
        tokens, log_probs = found.candidate_ids[:, 0].tolist(), found.candidate_log_probs[:, 0].tolist()
        results: list[JobResult] = []
        for slot, sequence in self._slots():
            token, log_prob = tokens[slot], log_probs[slot]
            if log_prob != log_prob:  # NaN
                results.append(self._fail(slot))
                continue
            if not sequence.takes_best:
                token, log_prob = self._forced_or_sampled(sequence, slot, found.logits)
                tokens[slot] = token
            sequence.tokens.append(token)
            sequence.log_probs.append(log_prob)
            last = token == EOS or len(sequence.tokens) == sequence.max_steps
            if last or sequence.job.on_tokens is not None:
                results += self._stream_or_finish(slot, sequence)
        self._next[:count, 0] = tokens
        self._positions[:count] += 1
        return results

    def _start(self, slot: int, job: DecodeJob) -> GreedySequence:
        self._next[slot] = BOS
        samples = job.options.sampling is not None
        self._sampling += samples
        return GreedySequence(job, max_steps(job, self._capacity), takes_best=not (samples or job.prefix))

    def _release(self, slot: int) -> DecodeJob:
        job = super()._release(slot)
        self._sampling -= job.options.sampling is not None
        return job

    def _forced_or_sampled(self, sequence: GreedySequence, slot: int, logits: np.ndarray | None) -> tuple[int, float]:
        """The next token of the prefix, or after the prefix a sampled token, and its log-probability."""
        prefix, sampling, step = sequence.job.prefix, sequence.job.options.sampling, len(sequence.tokens)
        if step < len(prefix):
            sequence.takes_best = sampling is None and step + 1 == len(prefix)
            return prefix[step], 0.0
        assert sampling is not None
        assert logits is not None
        token = draw(logits[slot], sampling, step)
        return token, log_prob(logits[slot], token)

    def _stream_or_finish(self, slot: int, sequence: GreedySequence) -> list[JobResult]:
        """Stream the last token, unless it is the end token; returns the result if the sequence is complete."""
        finished = sequence.tokens[-1] == EOS
        if not finished and sequence.job.on_tokens is not None:
            sequence.job.on_tokens(sequence.tokens[-1])
        if not finished and len(sequence.tokens) < sequence.max_steps:
            return []
        job, log_probs = self._release(slot), sequence.log_probs
        tokens = sequence.tokens[:-1] if finished else sequence.tokens
        return [(job, (make_hypothesis(job, tokens, log_probs, sum(log_probs), finished=finished),))]
