"""Greedy lanes: one row a sentence, whose next token is the likeliest one, a drawn one, or that of a prefix."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from lingon.serving.decoding.batch import Ended, RunningBatch, hypothesis, last_step
from lingon.serving.decoding.job import DecodeJob
from lingon.serving.decoding.search import draw, log_prob
from lingon.serving.runtime.runner import Buffers
from lingon.text import BOS, EOS


@dataclass(eq=False, slots=True)
class GreedySequence:
    """A sentence and its only hypothesis.

    last: the step, from 1, after which it is cut
    plain: whether the likeliest token is taken from here on: no prefix is left, and nothing is drawn
    log_probs: of tokens; a prefix's are 0
    """

    job: DecodeJob
    last: int
    plain: bool
    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)


class GreedyBatch(RunningBatch[GreedySequence]):
    """A batch in which every sentence has one hypothesis; a step never copies anything of the past.

    Tokens go through plain lists: after a step's graph the caches are cold, and some 20 calls of NumPy on 32 numbers
    took twice as long as a loop over them.
    """

    def __init__(self, buffers: Buffers, slots: int, capacity: int) -> None:
        super().__init__(buffers, slots, 1, capacity)
        self._drawing = 0  # sentences that sample

    def step(self) -> list[Ended]:
        """Decide one more token of every sentence."""
        count = len(self._sentences)
        found = self._buffers.step(count, logits=self._drawing > 0)
        tokens, log_probs = found.candidate_ids[:, 0].tolist(), found.candidate_log_probs[:, 0].tolist()
        ended: list[Ended] = []
        for slot, line in self._seated():
            token, log_prob = tokens[slot], log_probs[slot]
            if log_prob != log_prob:  # not a number
                ended.append(self._fail(slot))
                continue
            if not line.plain:
                token, log_prob = self._overruled(line, slot, found.logits)
                tokens[slot] = token
            line.tokens.append(token)
            line.log_probs.append(log_prob)
            if token == EOS or len(line.tokens) == line.last or line.job.on_tokens is not None:
                ended += self._told(slot, line)
        self._next[:count, 0] = tokens
        self._positions[:count] += 1
        return ended

    def _begin(self, slot: int, job: DecodeJob) -> GreedySequence:
        self._next[slot] = BOS
        samples = job.options.sampling is not None
        self._drawing += samples
        return GreedySequence(job, last_step(job, self._capacity), plain=not (samples or job.prefix))

    def _vacate(self, slot: int) -> DecodeJob:
        job = super()._vacate(slot)
        self._drawing -= job.options.sampling is not None
        return job

    def _overruled(self, line: GreedySequence, slot: int, logits: np.ndarray | None) -> tuple[int, float]:
        """Where a prefix is not yet spent its token comes next; where a sentence samples, one is drawn."""
        prefix, sampling, step = line.job.prefix, line.job.options.sampling, len(line.tokens)
        if step < len(prefix):
            line.plain = sampling is None and step + 1 == len(prefix)
            return prefix[step], 0.0
        assert sampling is not None
        assert logits is not None
        token = draw(logits[slot], sampling, step)
        return token, log_prob(logits[slot], token)

    def _told(self, slot: int, line: GreedySequence) -> list[Ended]:
        """Tell the last token to who listens, an end token excepted; the sentence, if it is over."""
        finished = line.tokens[-1] == EOS
        if not finished and line.job.on_tokens is not None:
            line.job.on_tokens(line.tokens[-1])
        if not finished and len(line.tokens) < line.last:
            return []
        self._vacate(slot)
        tokens = line.tokens[:-1] if finished else line.tokens
        return [(line.job, (hypothesis(line.job, tokens, line.log_probs, sum(line.log_probs), finished=finished),))]
