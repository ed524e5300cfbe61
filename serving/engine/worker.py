"""A worker: one thread's running batch, turn by turn: let go, encode and place, step, hand out.

It never waits for a batch to fill or to end. Workers share a model and the dispatcher, and nothing else.
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
SPARE_LANES = 3  # empty ones that a worker keeps
BatchKey = tuple[int, int, bool]
"""Beam size, memory width, and whether there is a shortlist."""


class Worker:
    """Works on what the dispatcher hands to worker `number`."""

    def __init__(
        self, number: int, runner: Runner, scheduler: Scheduler, limits: EngineLimits, observer: Observer
    ) -> None:
        self._number, self._runner, self._scheduler = number, runner, scheduler
        self._max_batch_tokens, self._observer = limits.max_batch_tokens, observer
        self._lanes: dict[BatchKey, RunningBatch[Any]] = {}
        self._bytes: dict[BatchKey, int] = {}  # of its lanes, as the observer was told: some grow
        self._silent: dict[BatchKey, list[float]] = {}  # when those came that have no token yet
        self.since: float | None = None  # when the turn began that it is in, as time.monotonic tells it

    def run(self) -> None:
        """Work until it is time to go; an error that is not a job's own ends the worker and what it had."""
        try:
            while (orders := self._scheduler.next(self._number)) is not None:
                self.since = time.monotonic()
                self.turn(orders)
                self.since = None
        except Exception:
            logger.exception("the engine died")
            for job in self._scheduler.fail(self._number):
                self._end(job, EngineLost(LOST))
        finally:
            self.since = None
            self._observer.states_changed(-sum(self._bytes.values()))

    def turn(self, orders: StepPlan) -> None:
        """Do as told, then one step of every lane that is not empty."""
        if orders.leaving:
            self._let_go(orders.leaving)
        if orders.joining:
            self._admit(orders.joining)
        for key, lane in self._lanes.items():
            if len(lane):
                self._step(key, lane)

    def _let_go(self, leaving: Sequence[tuple[Job, RequestError]]) -> None:
        numbers = {job.number for job, _ in leaving}
        for lane in self._lanes.values():
            lane.remove(numbers)
        for job, error in leaving:
            self._end(job, error)

    def _admit(self, joining: Sequence[tuple[Job, float]]) -> None:
        """Encode those that join and give them places; score jobs are done at once."""
        for batch in encoder_batches([_width(job) for job, _ in joining], self._max_batch_tokens):
            self._encode(
                [(job, joining[place][1]) for place in batch if isinstance(job := joining[place][0], DecodeJob)]
            )
            self._score([job for place in batch if isinstance(job := joining[place][0], ScoreJob)])

    def _encode(self, joining: Sequence[tuple[DecodeJob, float]]) -> None:
        if not joining:
            return
        start = _begin([job for job, _ in joining])
        ids, lengths = _padded([job.source_ids for job, _ in joining])
        encoded, now = self._runner.encode(ids, lengths), time.monotonic()
        for index, (job, came) in enumerate(joining):
            if job.phase_times is not None:
                job.phase_times.encoded = now
            key = job.options.beam_size, width_for(len(job.source_ids)), job.options.shortlist
            self._lane(key).admit(job, encoded, index, self._piece_ids(job))
            self._silent.setdefault(key, []).append(came)
        self._observer.encoded(len(joining), int(lengths.sum()), ids.size, time.monotonic() - start)

    def _piece_ids(self, job: DecodeJob) -> np.ndarray | None:
        """What a translation may say; everything where there is no shortlist."""
        if not job.options.shortlist:
            return None
        assert self._runner.shortlist is not None
        return self._runner.shortlist.select(job.source_ids)

    def _lane(self, key: BatchKey) -> RunningBatch[Any]:
        if key not in self._lanes:
            beam_size, width, shortlist = key
            slots = max(self._scheduler.most_rows // beam_size, 1)
            shape = BatchShape(slots, beam_size, width, self._runner.limits.max_output(width))
            self._close_lanes()
            buffers = self._runner.open(shape, shortlist=shortlist)
            self._bytes[key] = buffers.nbytes
            self._observer.states_changed(self._bytes[key])
            self._lanes[key] = GreedyBatch(buffers, shape) if beam_size == 1 else BeamBatch(buffers, shape)
        self._lanes[key] = self._lanes.pop(key)  # the one used last is the last
        return self._lanes[key]

    def _close_lanes(self) -> None:
        """Give back the room of empty lanes but those used last: there are as many kinds as clients have wishes."""
        for key in [key for key, lane in self._lanes.items() if not len(lane)][:-SPARE_LANES]:
            del self._lanes[key]
            self._observer.states_changed(-self._bytes.pop(key))

    def _score(self, jobs: Sequence[ScoreJob]) -> None:
        if not jobs:
            return
        _begin(jobs)
        source_ids, source_lengths = _padded([job.source_ids for job in jobs])
        target_ids, target_lengths = _padded([job.target_ids for job in jobs])
        scores = self._runner.score(source_ids, source_lengths, target_ids, target_lengths)
        for job, scored in zip(jobs, scores, strict=True):
            self._close(job, len(job.target_ids) + 1, "OK", partial(job.on_done, scored))

    def _step(self, key: BatchKey, lane: RunningBatch[Any]) -> None:
        start = time.perf_counter()
        lane.compact()
        live, rows = len(lane) * lane.beam_size, lane.rows
        ended = lane.step()
        self._observer.stepped(live, rows, lane.copied_bytes, time.perf_counter() - start)
        lane.copied_bytes = 0
        if came := self._silent.pop(key, None):
            now = time.monotonic()
            for moment in came:
                self._observer.first_token(now - moment)
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
        """Count a job, call back, and forget it; a fault in the caller's code ends nobody else's job."""
        if self._scheduler.all_taken:  # somebody else has answered, while this worker hung
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
    """Tokens of a job's row in a run of the encoder or of the scorer, which computes logits for each target token."""
    return max(len(job.source_ids), len(job.target_ids) + 1) if isinstance(job, ScoreJob) else len(job.source_ids)


def _begin(jobs: Sequence[Job]) -> float:
    """Now, when the encoder or the scorer begins with these jobs, by `time.monotonic`."""
    now = time.monotonic()
    for job in jobs:
        if job.phase_times is not None:
            job.phase_times.started = now
    return now


def _padded(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Rows of ids side by side (rows, longest), and their lengths; never narrower than two.

    A product with a single column takes another path in the kernels, whose sums come out otherwise in the last bit.
    """
    lengths = np.array([len(row) for row in rows])
    padded = np.full((len(rows), max(int(lengths.max()), 2)), PAD)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return padded, lengths
