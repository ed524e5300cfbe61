"""A worker: one thread with its own running batches. Before each step it removes, encodes and admits jobs.

It never waits for a batch to fill or to end. Workers share a model and the scheduler, and nothing else.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from lingon.errors import EngineLost, RequestError
from lingon.serving.decoding.batch import RunningBatch
from lingon.serving.decoding.beam import BeamBatch
from lingon.serving.decoding.greedy import GreedyBatch
from lingon.serving.decoding.job import DecodeJob, Hypothesis, Job, ScoreJob
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.engine.observer import Observer
from lingon.serving.engine.policy import encoder_batches
from lingon.serving.engine.scheduler import Scheduler, StepPlan
from lingon.serving.runtime.runner import BatchShape, Runner, width_for
from lingon.text import PAD

logger = logging.getLogger(__name__)
LOST = "the engine failed and is being restarted; try again"
SPARE_BATCHES = 3  # empty batches whose memory a worker keeps
BatchKey = tuple[int, int, bool]
"""Beam size, memory width, and whether the batch uses shortlists."""


class Worker:
    """Does what the scheduler hands to worker `number`."""

    def __init__(
        self, number: int, runner: Runner, scheduler: Scheduler, limits: EngineLimits, observer: Observer
    ) -> None:
        self._number, self._runner, self._scheduler = number, runner, scheduler
        self._max_batch_tokens, self._observer = limits.max_batch_tokens, observer
        self._batches: dict[BatchKey, RunningBatch[Any]] = {}  # the latest used one last
        self._bytes: dict[BatchKey, int] = {}  # of the states of each batch, as reported to the observer
        self._no_token_yet: dict[BatchKey, list[float]] = {}  # submission times of jobs before their first token
        self.since: float | None = None  # start of the current step, in seconds of time.monotonic

    def run(self) -> None:
        """Work until the scheduler ends it. An error that is not a job's own ends the worker and all its jobs."""
        try:
            while (plan := self._scheduler.next(self._number)) is not None:
                self.since = time.monotonic()
                self.step(plan)
                self.since = None
        except Exception:
            logger.exception("the engine died")
            for job in self._scheduler.fail(self._number):
                self._end(job, EngineLost(LOST))
        finally:
            self.since = None
            self._observer.states_changed(-sum(self._bytes.values()))

    def step(self, plan: StepPlan) -> None:
        """Carry out the plan, then make one step of every batch that is not empty."""
        if plan.removed:
            self._remove(plan.removed)
        if plan.admitted:
            self._admit(plan.admitted)
        for key, batch in self._batches.items():
            if len(batch):
                self._step(key, batch)

    def _remove(self, removed: Sequence[tuple[Job, RequestError]]) -> None:
        numbers = {job.number for job, _ in removed}
        for batch in self._batches.values():
            batch.remove(numbers)
        for job, error in removed:
            self._end(job, error)

    def _admit(self, admitted: Sequence[tuple[Job, float]]) -> None:
        """Encode sentences and put them into batches; score pairs at once."""
        for indices in encoder_batches([_width(job) for job, _ in admitted], self._max_batch_tokens):
            jobs = [admitted[index] for index in indices]
            self._encode([(job, submitted) for job, submitted in jobs if isinstance(job, DecodeJob)])
            self._score([job for job, _ in jobs if isinstance(job, ScoreJob)])

    def _encode(self, admitted: Sequence[tuple[DecodeJob, float]]) -> None:
        if not admitted:
            return
        start = _start([job for job, _ in admitted])
        ids, lengths = _padded([job.source_ids for job, _ in admitted])
        encoded, now = self._runner.encode(ids, lengths), time.monotonic()
        for index, (job, submitted) in enumerate(admitted):
            if job.phase_times is not None:
                job.phase_times.encoded = now
            key = job.options.beam_size, width_for(len(job.source_ids)), job.options.shortlist
            self._batch(key).admit(job, encoded, index, self._piece_ids(job))
            self._no_token_yet.setdefault(key, []).append(submitted)
        self._observer.encoded(len(admitted), int(lengths.sum()), ids.size, time.monotonic() - start)

    def _piece_ids(self, job: DecodeJob) -> np.ndarray | None:
        """Return the pieces of a job's shortlist; None without one."""
        if not job.options.shortlist:
            return None
        assert self._runner.shortlist is not None
        return self._runner.shortlist.select(job.source_ids)

    def _batch(self, key: BatchKey) -> RunningBatch[Any]:
        if key not in self._batches:
            beam_size, width, shortlist = key
            slots = max(self._scheduler.most_rows // beam_size, 1)
            shape = BatchShape(slots, beam_size, width, self._runner.limits.max_output(width))
            self._free_batches()
            buffers = self._runner.open(shape, shortlist=shortlist)
            self._bytes[key] = buffers.nbytes
            self._observer.states_changed(self._bytes[key])
            self._batches[key] = GreedyBatch(buffers, shape) if beam_size == 1 else BeamBatch(buffers, shape)
        self._batches[key] = self._batches.pop(key)
        return self._batches[key]

    def _free_batches(self) -> None:
        """Free the empty batches except the latest ones: clients may ask for any beam size and any length."""
        for key in [key for key, batch in self._batches.items() if not len(batch)][:-SPARE_BATCHES]:
            del self._batches[key]
            self._observer.states_changed(-self._bytes.pop(key))

    def _score(self, jobs: Sequence[ScoreJob]) -> None:
        if not jobs:
            return
        _start(jobs)
        source_ids, source_lengths = _padded([job.source_ids for job in jobs])
        target_ids, target_lengths = _padded([job.target_ids for job in jobs])
        scores = self._runner.score(source_ids, source_lengths, target_ids, target_lengths)
        for job, scored in zip(jobs, scores, strict=True):
            self._close(job, len(job.target_ids) + 1, "OK", partial(job.on_done, scored))

    def _step(self, key: BatchKey, batch: RunningBatch[Any]) -> None:
        start = time.perf_counter()
        batch.compact()
        live, rows = len(batch) * batch.beam_size, batch.rows
        ended = batch.step()
        self._observer.stepped(live, rows, batch.copied_bytes, time.perf_counter() - start)
        batch.copied_bytes = 0
        if waiting := self._no_token_yet.pop(key, None):
            now = time.monotonic()
            for submitted in waiting:
                self._observer.first_token(now - submitted)
        for job, outcome in ended:
            self._end(job, outcome)

    def _end(self, job: Job, outcome: tuple[Hypothesis, ...] | RequestError) -> None:
        if isinstance(outcome, RequestError):
            self._close(job, 0, outcome.reason, partial(job.on_done, outcome))
        else:
            assert isinstance(job, DecodeJob)
            tokens = sum(len(hypothesis.log_probs) for hypothesis in outcome)
            self._close(job, tokens, "OK", partial(job.on_done, outcome))

    def _close(self, job: Job, target_tokens: int, outcome: str, answer: Callable[[], None]) -> None:
        """Count a job, call back, and forget it. An error in the callback ends no other job."""
        if self._scheduler.all_taken:  # another thread ended all jobs while this worker hung
            return
        self._observer.ended(outcome, target_tokens)
        if job.phase_times is not None:
            job.phase_times.ended = time.monotonic()
        try:
            answer()
        except Exception:
            logger.exception("a job's on_done failed")
        self._scheduler.close(job)


def _width(job: Job) -> int:
    """Return the tokens of a job's row in the encoder, or in the scorer, which computes logits of all target tokens."""
    return max(len(job.source_ids), len(job.target_ids) + 1) if isinstance(job, ScoreJob) else len(job.source_ids)


def _start(jobs: Sequence[Job]) -> float:
    """Note that the encoder or the scorer begins with these jobs; returns the time, in seconds of time.monotonic."""
    now = time.monotonic()
    for job in jobs:
        if job.phase_times is not None:
            job.phase_times.started = now
    return now


def _padded(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of ids padded to (rows, longest), and their lengths; never narrower than two columns.

    A product with a single column takes another path in the kernels, whose sums differ in the last bit.
    """
    lengths = np.array([len(row) for row in rows])
    padded = np.full((len(rows), max(int(lengths.max()), 2)), PAD)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return padded, lengths
