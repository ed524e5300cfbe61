"""A lane: a running batch of sentences of one beam width and one memory width, with a shortlist or all without one;
every other option mixes freely.

Here is who sits where; how the next tokens are chosen is the matter of `lingon.serving.decoding.greedy` and
`lingon.serving.decoding.beam`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np

from lingon.errors import EngineFault, RequestError
from lingon.serving.decoding.job import DecodeJob, Hypothesis
from lingon.serving.runtime.runner import Buffers, Encoded

Ended = tuple[DecodeJob, tuple[Hypothesis, ...] | RequestError]


class Sentence(Protocol):
    """A sentence that is being translated."""

    job: DecodeJob


Seated = TypeVar("Seated", bound=Sentence)


class RunningBatch(ABC, Generic[Seated]):
    """The sentences of a running batch, in slots; free slots may stand between them until `compact`.

    next, positions: (slots, beam_size), what each row reads in the next step and how much it has read before
    """

    def __init__(self, buffers: Buffers, slots: int, beam_size: int, capacity: int) -> None:
        self.beam_size = beam_size
        self.copied_bytes = 0  # of the past, since the worker last looked
        self._buffers, self._capacity = buffers, capacity
        self._sentences: list[Seated | None] = []
        self._free: set[int] = set()
        self._next = buffers.token_ids.reshape(slots, beam_size)
        self._positions = buffers.positions.reshape(slots, beam_size)

    def __len__(self) -> int:
        return len(self._sentences) - len(self._free)

    @property
    def nbytes(self) -> int:
        """Bytes of the states of a full batch."""
        return self._buffers.nbytes

    @property
    def rows(self) -> int:
        """Rows that a step computes."""
        return len(self._sentences) * self.beam_size

    def admit(self, job: DecodeJob, encoded: Encoded, index: int, piece_ids: np.ndarray | None = None) -> None:
        """Put sentence `index` of an encoder's batch into a free slot; see
        `lingon.serving.runtime.runner.Buffers.place`.
        """
        if self._free:
            slot = self._free.pop()
        else:
            slot = len(self._sentences)
            self._sentences.append(None)
        self._buffers.place(slot, encoded, index, piece_ids)
        self._positions[slot] = 0
        self._sentences[slot] = self._begin(slot, job)

    def remove(self, numbers: Container[int]) -> None:
        """Free the places of these jobs, of those that are here."""
        for slot, sentence in enumerate(self._sentences):
            if sentence is not None and sentence.job.number in numbers:
                self._vacate(slot)

    def compact(self) -> None:
        """Fill free slots from the end, so that a step computes no row for nothing."""
        for target in sorted(self._free):
            while self._sentences and self._sentences[-1] is None:
                self._sentences.pop()
            if target < len(self._sentences):
                self._move(len(self._sentences) - 1, target)
                self._sentences[target] = self._sentences.pop()
        self._free.clear()

    @abstractmethod
    def step(self) -> list[Ended]:
        """Decide one more token of every hypothesis; returns the jobs that ended, their places free.

        No slot is free when it begins: see `compact`.
        """

    @abstractmethod
    def _begin(self, slot: int, job: DecodeJob) -> Seated:
        """Make the slot ready for the first step of a job."""

    def _by_slot(self) -> Sequence[np.ndarray]:
        """The arrays that have an entry for each slot."""
        return self._next, self._positions

    def _vacate(self, slot: int) -> DecodeJob:
        job = self._sentence(slot).job
        self._sentences[slot] = None
        self._free.add(slot)
        return job

    def _fail(self, slot: int) -> Ended:
        return self._vacate(slot), EngineFault("decoding this text failed")

    def _move(self, source: int, target: int) -> None:
        self.copied_bytes += self._buffers.move(source, target, int(self._positions[source, 0]))
        for array in self._by_slot():
            array[target] = array[source]

    def _sentence(self, slot: int) -> Seated:
        sentence = self._sentences[slot]
        assert sentence is not None
        return sentence

    def _seated(self) -> Iterator[tuple[int, Seated]]:
        """Every slot and its sentence, where no slot is free."""
        for slot, sentence in enumerate(self._sentences):
            assert sentence is not None
            yield slot, sentence


def last_step(job: DecodeJob, capacity: int) -> int:
    """The step, from 1, after which a translation is cut."""
    return min(len(job.prefix) + job.options.max_output_tokens, capacity)


def hypothesis(
    job: DecodeJob, tokens: Sequence[int], log_probs: Sequence[float], total: float, *, finished: bool
) -> Hypothesis:
    """A hypothesis with its score; log_probs has the end token's besides, if it is finished."""
    generated = max(len(log_probs) - len(job.prefix), 1)
    score = total / generated**job.options.length_penalty
    return Hypothesis(tuple(tokens), tuple(log_probs), score, finished)
