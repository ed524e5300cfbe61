"""The running batches of one lane of a worker: which one a sentence joins, which one is stepped next, what is freed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lingon.serving.decoding.batch import RunningBatch
from lingon.serving.decoding.beam import BeamBatch
from lingon.serving.decoding.greedy import GreedyBatch
from lingon.serving.decoding.job import DecodeJob
from lingon.serving.engine.observer import Observer
from lingon.serving.runtime.runner import BatchShape, Runner, width_for

SPARE_BATCHES = 3  # empty batches whose memory a worker keeps in each lane
SPARE_BYTES = 16 << 20  # bytes; an empty batch that has used more is freed at once
MOST_WIDER = 4  # times the width of a sentence, which its batch has at most: states take memory by the width


class BatchKey(NamedTuple):
    """What all sentences of a batch have in common."""

    beam_size: int
    width: int  # of the memory, in source tokens
    shortlist: bool


@dataclass(slots=True)
class OpenBatch:
    """A batch with its key.

    state_bytes: of its states, as reported to the observer
    no_token_yet: submission times of the jobs before their first step, by number
    """

    key: BatchKey
    running: RunningBatch[Any]
    state_bytes: int
    no_token_yet: dict[int, float] = field(default_factory=dict)

    def first_token_waits(self) -> list[float]:
        """Return the seconds from the submission of each job that has had its first step just now."""
        if not self.no_token_yet:
            return []
        now = time.monotonic()
        waits = [now - submitted for submitted in self.no_token_yet.values()]
        self.no_token_yet.clear()
        return waits


class Batches:
    """The batches of one lane; the one that was stepped last is the last one."""

    def __init__(self, runner: Runner, observer: Observer) -> None:
        self._runner, self._observer = runner, observer
        self._open: dict[BatchKey, OpenBatch] = {}

    @property
    def has_rows(self) -> bool:
        """Whether any batch has sentences."""
        return any(batch.running for batch in self._open.values())

    @property
    def state_bytes(self) -> int:
        """Bytes of the states of all batches."""
        return sum(batch.state_bytes for batch in self._open.values())

    def batch_for(self, job: DecodeJob, rows: int) -> OpenBatch:
        """Return the batch that a job joins; raises MemoryError.

        rows: the most rows of a new batch
        """
        key = self._key(job)
        if key not in self._open:
            slots = max(rows // key.beam_size, 1)
            shape = BatchShape(slots, key.beam_size, key.width, self._runner.capacity(key.width))
            self._free_all_but_spare()
            buffers = self._runner.open(shape, shortlist=key.shortlist)
            self._observer.states_changed(buffers.nbytes)
            running = GreedyBatch(buffers, shape) if key.beam_size == 1 else BeamBatch(buffers, shape)
            self._open[key] = OpenBatch(key, running, buffers.nbytes)
        return self._open[key]

    def _key(self, job: DecodeJob) -> BatchKey:
        """Return the key of the batch that a job joins.

        If the width changes no results, that is the narrowest that runs and is wide enough: two would take two steps.
        """
        own = BatchKey(job.options.beam_size, width_for(len(job.source_ids)), job.options.shortlist)
        found: BatchKey | None = None
        for key, batch in self._open.items() if self._runner.any_width else ():
            alike = key.beam_size == own.beam_size and key.shortlist == own.shortlist and batch.running
            fits = alike and own.width <= key.width <= MOST_WIDER * own.width
            if fits and (found is None or key.width < found.width):
                found = key
        return found or own

    def next(self) -> OpenBatch | None:
        """Return the batch whose latest step is the longest ago, as the one to step now; None if none has sentences."""
        for key, batch in self._open.items():
            if batch.running:
                self._open[key] = self._open.pop(key)
                return batch
        return None

    def remove(self, numbers: set[int]) -> None:
        """Free the rows of these jobs."""
        for batch in self._open.values():
            batch.running.remove(numbers)
            for number in numbers & batch.no_token_yet.keys():
                del batch.no_token_yet[number]

    def free(self, batch: OpenBatch) -> None:
        """Free the memory of a batch, with whatever is in it."""
        del self._open[batch.key]
        self._observer.states_changed(-batch.state_bytes)

    def free_empty(self) -> None:
        """Free the batches without sentences."""
        self._free_if(lambda batch: True)

    def free_large(self) -> None:
        """Free the empty batches that have used much memory: filling new memory takes less time than they ran."""
        self._free_if(lambda batch: batch.running.used_bytes > SPARE_BYTES)

    def _free_all_but_spare(self) -> None:
        """Free the empty batches except the latest ones: clients may ask for any beam size and any length."""
        for batch in [batch for batch in self._open.values() if not batch.running][:-SPARE_BATCHES]:
            self.free(batch)

    def _free_if(self, condition: Callable[[OpenBatch], bool]) -> None:
        for batch in [batch for batch in self._open.values() if not batch.running and condition(batch)]:
            self.free(batch)
