"""A running batch: sentences of one beam size and one memory width, all with a shortlist or all without one.

Every other option may differ between its sentences. This file assigns slots. `lingon.serving.decoding.greedy` and
`lingon.serving.decoding.beam` choose the next tokens.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

import numpy as np

from lingon.errors import EngineFault, OutOfMemory, RequestError
from lingon.serving.decoding.job import DecodeJob, Hypothesis
from lingon.serving.decoding.rules import Progress
from lingon.serving.runtime.runner import AttendingBuffers, BatchShape, Buffers, Encoded, PastBuffers, SavedPast
from lingon.text import BOS

logger = logging.getLogger(__name__)
FULL = "there was no memory for this text beside the others; try again"
JobResult = tuple[DecodeJob, tuple[Hypothesis, ...] | RequestError]
"""An ended job with its hypotheses, best first, or its error."""

Failures = dict[int, Exception | None]
"""Slots of failed sentences, with the error of the work on that sentence alone; None for NaN."""


class TargetSequence(Protocol):
    """The decoding state of one job."""

    job: DecodeJob


SequenceT = TypeVar("SequenceT", bound=TargetSequence)


class RunningBatch(ABC, Generic[SequenceT]):
    """The sequences of a running batch, in slots. Between two calls of `compact`, slots may be free.

    live: the number of sequences
    """

    def __init__(self, buffers: Buffers, shape: BatchShape) -> None:
        self.beam_size, self.live = shape.beam_size, 0
        self.steps = 0  # steps of the latest call of `step`
        self.copied_bytes = 0  # bytes of the past copied since the worker last reset this
        self._buffers, self._capacity = buffers, shape.capacity
        self._past_buffers = buffers if isinstance(buffers, PastBuffers) else None
        self._sequences: list[SequenceT | None] = []  # by slot; None for a free slot
        self._free: set[int] = set()  # free slots
        self._with_logits = 0  # sequences that need logits
        self._attention = buffers.attention if isinstance(buffers, AttendingBuffers) else None
        self._attending = 0  # sequences whose hypotheses say where they looked
        self._slots_of_buffers, self._used_slots = shape.sentences, 0
        # (slots, beam_size): the next input token of each row, and its number of input tokens so far.
        self._next = buffers.token_ids.reshape(shape.sentences, shape.beam_size)
        self._positions = buffers.positions.reshape(shape.sentences, shape.beam_size)

    def __len__(self) -> int:
        return self.live

    @property
    def jobs(self) -> list[DecodeJob]:
        return [sequence.job for sequence in self._sequences if sequence is not None]

    @property
    def used_bytes(self) -> int:
        """Bytes of the states of all slots used so far. The system backs no others with memory."""
        return self._buffers.nbytes * self._used_slots // self._slots_of_buffers

    @property
    def rows(self) -> int:
        """The rows that a step computes."""
        return len(self._sequences) * self.beam_size

    def admit(
        self, job: DecodeJob, encoded: Encoded, index: int, piece_ids: np.ndarray | None = None
    ) -> RequestError | None:
        """Put sentence `index` of an encoder batch into a free slot. Returns the error of a sentence that fails alone.

        piece_ids: see `lingon.serving.runtime.runner.Buffers.place`
        """
        if self._free:
            slot = self._free.pop()
        else:
            slot = len(self._sequences)
            self._sequences.append(None)
            self._used_slots = max(self._used_slots, len(self._sequences))
        self._buffers.place(slot, encoded, index, piece_ids)
        try:
            if self._attention is not None and job.options.attention:
                self._attention.kept = True
            self._sequences[slot] = self._start(slot, job)
        except Exception as error:
            self._free.add(slot)
            return _request_error(error)
        self.live += 1
        self._with_logits += job.options.needs_logits
        self._attending += job.options.attention
        return None

    def remove(self, job_numbers: Container[int]) -> None:
        """Free the slots of these jobs. Numbers of jobs outside this batch are ignored."""
        for slot, sequence in enumerate(self._sequences):
            if sequence is not None and sequence.job.number in job_numbers:
                self._release(slot)

    def compact(self) -> None:
        """Move sequences from the end into free slots, so that a step computes no unused rows."""
        if not self._free:
            return
        for target in sorted(self._free):
            while self._sequences and self._sequences[-1] is None:
                self._sequences.pop()
            if target < len(self._sequences):
                self._move(len(self._sequences) - 1, target)
                self._sequences[target] = self._sequences.pop()
        self._free.clear()

    @abstractmethod
    def step(self) -> list[JobResult]:
        """Decide one or more tokens of every hypothesis. Returns the ended jobs and frees their slots.

        Call `compact` before, so that no slot is free.
        """

    @abstractmethod
    def _start(self, slot: int, job: DecodeJob) -> SequenceT:
        """Prepare the slot for the first step of a job. Other slots stay unchanged, even if it raises an error."""

    def _begin(self, slot: int, job: DecodeJob) -> tuple[int, ...]:
        """Write the first input token of a slot, after the past of its job if it has one that can be restored.

        Returns the first tokens of the prefix, which that past has read.
        """
        past, known = job.past, 0
        if past is not None and self._past_buffers is not None and self._past_buffers.restore(slot, past):
            known = past.length
            if self._attention is not None and job.options.attention:
                self._attention.restore(slot, past.attention, known)
        self._next[slot], self._positions[slot] = (BOS, *job.prefix)[known], known
        return job.prefix[:known]

    def _slot_arrays(self) -> Sequence[np.ndarray]:
        return self._next, self._positions

    def _release(self, slot: int) -> DecodeJob:
        """Free a slot and return its job."""
        sequence = self._sequences[slot]
        assert sequence is not None
        job, self._sequences[slot] = sequence.job, None
        self._free.add(slot)
        self.live -= 1
        self._with_logits -= job.options.needs_logits
        self._attending -= job.options.attention
        if self._attention is not None and not self._attending:
            self._attention.kept = False
        return job

    def _fail(self, slot: int, error: Exception | None = None) -> JobResult:
        """Free a slot and return its job with an error; error: cause in this sentence alone, or None for NaN."""
        return self._release(slot), _request_error(error)

    def _move(self, source: int, target: int) -> None:
        self.copied_bytes += self._buffers.move(source, target, int(self._positions[source, 0]))
        for array in self._slot_arrays():
            array[target] = array[source]

    def _attention_of(self, slot: int, row: int, steps: int) -> np.ndarray | None:
        """Return where a row of a slot looked in its first steps, (steps, source_length); None if its job wants none.

        The past of the row must be that of these steps: a later step may give the row to another hypothesis.
        """
        job = self._sequence(slot).job
        if self._attention is None or not job.options.attention:
            return None
        return self._attention.of_row(slot * self.beam_size + row, steps)[:, : len(job.source_ids)]

    def _sequence(self, slot: int) -> SequenceT:
        sequence = self._sequences[slot]
        assert sequence is not None
        return sequence

    def _slots(self) -> Iterator[tuple[int, SequenceT]]:
        """Yield every slot and its sequence. No slot may be free."""
        for slot, sequence in enumerate(self._sequences):
            assert sequence is not None
            yield slot, sequence


@contextmanager
def noting_failure(slot: int, failed: Failures) -> Iterator[None]:
    """Add the slot to `failed` if the block raises an error, because work on one sentence fails only that sentence."""
    try:
        yield
    except Exception as error:
        failed[slot] = error


def _request_error(error: Exception | None) -> RequestError:
    """Log and return the error of a sentence that failed alone; error: None for NaN."""
    if isinstance(error, MemoryError):
        return OutOfMemory(FULL)
    if error is not None:
        logger.error("decoding a text failed", exc_info=error)
    return EngineFault("decoding this text failed")


def max_steps(job: DecodeJob, capacity: int) -> int:
    """Return the number of steps after which a translation is cut. Steps through the prefix count."""
    return min(len(job.prefix) + job.options.max_output_tokens, capacity)


def make_hypothesis(
    job: DecodeJob,
    tokens: Sequence[int],
    log_probs: Sequence[float],
    total: float,
    progress: Progress | None,
    *,
    finished: bool,
    attention: np.ndarray | None = None,
    past: SavedPast | None = None,
) -> Hypothesis:
    """Return a hypothesis with its score, without the hidden tokens of the prefix.

    tokens, log_probs: the whole prefix first; log_probs includes the end token if finished
    total: sum of log_probs
    progress: state of the rules of the request, if it has any
    past: see Hypothesis
    attention: a row for each of log_probs, see Hypothesis
    """
    rules = job.options.rules
    missing = rules.forced.missing(progress.forced) if rules and rules.forced and progress else 0
    generated = max(len(log_probs) - len(job.prefix), 1)
    score = total / generated**job.options.length_penalty
    shown = None if attention is None else attention[job.hidden :]
    return Hypothesis(
        tuple(tokens[job.hidden :]), tuple(log_probs[job.hidden :]), score, finished, missing, past, shown
    )
