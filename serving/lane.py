"""A lane: a running batch of sentences of one beam width and one memory width; every other option mixes freely."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from lingon.errors import EngineFault, RequestError
from lingon.text import BOS, EOS
from serving.job import DecodeJob, Hypothesis
from serving.runner import Buffers, Encoded, Step
from serving.search import Ranked, Survivors, assign_rows, draw, log_prob, rank, survive

Ended = tuple[DecodeJob, tuple[Hypothesis, ...] | RequestError]


@dataclass(slots=True)
class _Sentence:
    """A sentence that is being translated, and the hypotheses of it that have ended."""

    job: DecodeJob
    found: list[Hypothesis] = field(default_factory=list)

    def finish(self, tokens: np.ndarray, log_probs: np.ndarray, total: float, *, finished: bool) -> None:
        """Keep a hypothesis; log_probs has the end token's besides, if it is finished."""
        generated = max(len(log_probs) - len(self.job.prefix), 1)
        score = total / generated**self.job.options.length_penalty
        self.found.append(Hypothesis(tuple(tokens.tolist()), tuple(log_probs.tolist()), score, finished))

    def best(self, count: int) -> tuple[Hypothesis, ...]:
        """The best hypotheses so far, best first."""
        return tuple(sorted(self.found, key=lambda hypothesis: -hypothesis.score)[:count])

    def is_over(self, steps: int, best_live_total: float) -> bool:
        """Whether enough is found and nothing live, of `steps` tokens, scores above the worst of the enough."""
        options = self.job.options
        enough = options.num_hypotheses if options.length_penalty == 0 else options.beam_size
        if len(self.found) < enough:
            return False
        generated = max(steps - len(self.job.prefix), 1)
        return bool(self.best(enough)[-1].score >= best_live_total / generated**options.length_penalty)


class Lane:
    """The sentences of a running batch, in slots; free slots may stand between them until `compact`.

    By slot: steps (tokens decided, the prefix's included) and last (the step after which it is cut).
    By slot and rank of beam: rows (the row within the slot that holds the rank's past), totals (log-probabilities),
    tokens and log_probs (slots, beam_size, capacity). By slot and row: the token that the row reads next.
    """

    def __init__(self, buffers: Buffers, slots: int, beam_size: int, capacity: int) -> None:
        self.beam_size = beam_size
        self.copied_bytes = 0  # of the past, since the engine last looked
        self._buffers, self._slots = buffers, slots
        self._sentences: list[_Sentence | None] = []
        self._steps = np.zeros(slots, np.int64)
        self._last = np.zeros(slots, np.int64)
        self._rows = np.tile(np.arange(beam_size), (slots, 1))
        self._totals = np.zeros((slots, beam_size), np.float32)
        self._tokens = np.zeros((slots, beam_size, capacity), np.int64)
        self._log_probs = np.zeros((slots, beam_size, capacity), np.float32)
        self._next = np.full((slots, beam_size), BOS, np.int64)

    def __len__(self) -> int:
        return len(self._sentences) - self._sentences.count(None)

    @property
    def rows(self) -> int:
        """Rows that a step computes."""
        return len(self._sentences) * self.beam_size

    def has_room(self) -> bool:
        """Whether one more sentence fits."""
        return len(self) < self._slots

    def jobs(self) -> Iterator[DecodeJob]:
        """The jobs in the batch."""
        return (sentence.job for sentence in self._sentences if sentence is not None)

    def admit(self, job: DecodeJob, encoded: Encoded, index: int) -> None:
        """Put sentence `index` of an encoder's batch into a free slot."""
        if None in self._sentences:
            slot = self._sentences.index(None)
        else:
            slot = len(self._sentences)
            self._sentences.append(None)
        self._buffers.place(slot, encoded, index)
        self._sentences[slot] = _Sentence(job)
        self._steps[slot] = 0
        self._last[slot] = min(len(job.prefix) + job.options.max_output_tokens, self._tokens.shape[2])
        self._rows[slot] = np.arange(self.beam_size)
        self._totals[slot] = -np.inf  # every beam has the same past as yet, so only one is live
        self._totals[slot, 0] = 0
        self._next[slot] = BOS

    def remove(self, numbers: Iterable[int]) -> list[DecodeJob]:
        """Free the places of these jobs, of those that are here."""
        wanted = set(numbers)
        removed = []
        for slot, sentence in enumerate(self._sentences):
            if sentence is not None and sentence.job.number in wanted:
                removed.append(sentence.job)
                self._sentences[slot] = None
        return removed

    def compact(self) -> None:
        """Fill free slots from the end, so that a step computes no row for nothing."""
        self._trim()
        while None in self._sentences:
            target, source = self._sentences.index(None), len(self._sentences) - 1
            self._sentences[target] = self._sentences.pop()
            self.copied_bytes += self._buffers.move(source, target, int(self._steps[source]))
            for array in (self._steps, self._last, self._rows, self._totals, self._tokens, self._log_probs, self._next):
                array[target] = array[source]
            self._trim()

    def step(self) -> list[Ended]:
        """Decide one more token of every hypothesis; returns the jobs that ended, their places free."""
        count = len(self._sentences)
        live = [slot for slot, sentence in enumerate(self._sentences) if sentence is not None]
        samples = any(self._sentence(slot).job.options.sampling for slot in live)
        positions = np.repeat(self._steps[:count], self.beam_size)
        found = self._buffers.step(count, self._next[:count].reshape(-1), positions, logits=samples)
        ended = self._drop_faulty(live, found)
        slots = np.array([slot for slot in live if self._sentences[slot] is not None], np.int64)
        if not len(slots):
            return ended
        ranked = self._rank(slots, found)
        self._overrule(slots, ranked, found)
        self._finish(slots, ranked)
        self._continue(slots, survive(ranked, self.beam_size))
        return ended + self._end(slots)

    def _sentence(self, slot: int) -> _Sentence:
        sentence = self._sentences[slot]
        assert sentence is not None
        return sentence

    def _trim(self) -> None:
        while self._sentences and self._sentences[-1] is None:
            self._sentences.pop()

    def _drop_faulty(self, live: list[int], found: Step) -> list[Ended]:
        """End the sentences whose log-probabilities are not numbers; their neighbours go on."""
        best = found.candidate_log_probs[:, 0].reshape(-1, self.beam_size)
        ended: list[Ended] = []
        for slot in live if np.isnan(best).any() else ():
            if np.isnan(best[slot]).any():
                ended.append((self._sentence(slot).job, EngineFault("decoding this text failed")))
                self._sentences[slot] = None
        return ended

    def _rank(self, slots: np.ndarray, found: Step) -> Ranked:
        shape = (len(self._sentences), self.beam_size, -1)
        by_rank = (slots[:, None], self._rows[slots])
        ids = found.candidate_ids.reshape(shape)[by_rank]
        log_probs = found.candidate_log_probs.reshape(shape)[by_rank]
        return rank(self._totals[slots], ids, log_probs)

    def _overrule(self, slots: np.ndarray, ranked: Ranked, found: Step) -> None:
        """Where a prefix is not yet spent its token comes next; where a sentence samples, one is drawn."""
        for index, slot in enumerate(slots):
            job, step = self._sentence(slot).job, int(self._steps[slot])
            if step < len(job.prefix):
                ranked.parents[index] = np.arange(ranked.parents.shape[1]) % self.beam_size
                ranked.tokens[index], ranked.log_probs[index] = job.prefix[step], 0
                ranked.totals[index] = self._totals[slot][ranked.parents[index]]
            elif job.options.sampling is not None:
                assert found.logits is not None
                logits = found.logits[slot]  # lanes that sample have one row a sentence
                token = draw(logits, job.options.sampling, step)
                ranked.tokens[index], ranked.totals[index] = token, -np.inf
                ranked.tokens[index, 1:] = BOS  # never reached: its total is minus infinity
                ranked.log_probs[index, 0] = log_prob(logits, token)
                ranked.totals[index, 0] = self._totals[slot, 0] + ranked.log_probs[index, 0]

    def _finish(self, slots: np.ndarray, ranked: Ranked) -> None:
        """Keep the hypotheses that end here: those that rank within the beam."""
        ending = (ranked.tokens == EOS) & (ranked.totals > -np.inf)
        for index, place in zip(*np.nonzero(ending[:, : self.beam_size]), strict=True):
            slot, parent = slots[index], ranked.parents[index, place]
            tokens = self._tokens[slot, parent, : self._steps[slot]]
            log_probs = np.append(self._log_probs[slot, parent, : self._steps[slot]], ranked.log_probs[index, place])
            self._sentence(slot).finish(tokens, log_probs, float(ranked.totals[index, place]), finished=True)

    def _continue(self, slots: np.ndarray, survivors: Survivors) -> None:
        """Make the survivors the live hypotheses; copies the past of parents that have several children."""
        steps = self._steps[slots]
        if self.beam_size > 1:
            self._reorder(slots, survivors.parents)
        self._totals[slots] = survivors.totals
        self._tokens[slots, :, steps] = survivors.tokens
        self._log_probs[slots, :, steps] = survivors.log_probs
        self._next[slots[:, None], self._rows[slots]] = survivors.tokens
        self._steps[slots] += 1

    def _reorder(self, slots: np.ndarray, parents: np.ndarray) -> None:
        longest = int(self._steps[slots].max())
        by_parent = (slots[:, None], parents)
        self._tokens[slots, :, :longest] = self._tokens[by_parent][:, :, :longest]
        self._log_probs[slots, :, :longest] = self._log_probs[by_parent][:, :, :longest]
        copies: list[tuple[int, int]] = []
        rows = self._rows[slots].tolist()
        for index, (slot, ranks) in enumerate(zip(slots.tolist(), parents.tolist(), strict=True)):
            rows[index], needed = assign_rows(rows[index], ranks)
            first = slot * self.beam_size
            copies += [(first + source, first + target) for source, target in needed]
        self._rows[slots] = rows
        if copies:
            sources, targets = np.array(copies).T
            # The step has written the position of its token, so that a past is one longer than the tokens decided.
            self.copied_bytes += self._buffers.copy_rows(sources, targets, longest + 1)

    def _end(self, slots: np.ndarray) -> list[Ended]:
        """Hand out the sentences that are over, cut those at their bound, tell the tokens of those that stream."""
        ended: list[Ended] = []
        for slot in slots.tolist():
            sentence, steps = self._sentence(slot), int(self._steps[slot])
            over = bool(sentence.found) and sentence.is_over(steps, float(self._totals[slot, 0]))
            if not over and sentence.job.on_tokens is not None and self.beam_size == 1:
                sentence.job.on_tokens(int(self._tokens[slot, 0, steps - 1]))
            if not over and steps == self._last[slot]:
                for beam in np.flatnonzero(self._totals[slot] > -np.inf):
                    tokens, log_probs = self._tokens[slot, beam, :steps], self._log_probs[slot, beam, :steps]
                    sentence.finish(tokens, log_probs, float(self._totals[slot, beam]), finished=False)
                over = True
            if over:
                ended.append((sentence.job, sentence.best(sentence.job.options.num_hypotheses)))
                self._sentences[slot] = None
        return ended
