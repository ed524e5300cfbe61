"""A worker: its own running batches. Before each step it removes, encodes and admits jobs.

It never waits for a batch to fill or to end. Workers share only a model and the scheduler. A worker has a thread; the
scheduler may lend it to the thread of a caller, one turn at a time.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from lingon.errors import EngineFault, EngineLost, OutOfMemory, RequestError
from lingon.serving.decoding.batch import FULL, RunningBatch
from lingon.serving.decoding.beam import BeamBatch
from lingon.serving.decoding.greedy import GreedyBatch
from lingon.serving.decoding.job import DecodeJob, Hypothesis, Job, ScoreJob
from lingon.serving.engine.encoded import EncodedSource, EncodedSources
from lingon.serving.engine.limits import EngineLimits, MemoryLimits, encoder_batches
from lingon.serving.engine.policy import LIGHT, MAIN
from lingon.serving.engine.scheduler import Observer, Scheduler, StepPlan, TimeSlice
from lingon.serving.runtime.runner import BatchShape, Encoded, Runner, padded, width_for

SPARE_BATCHES = 3  # empty batches with memory that a worker keeps in each lane
SPARE_BYTES = 16 << 20  # bytes; a larger empty batch is freed at once
MOST_WIDER = 4  # ratio of the width of a batch to the width of a sentence in it; the memory of states grows with it


class BatchKey(NamedTuple):
    """The common properties of all sentences of a batch."""

    beam_size: int
    width: int  # source tokens of the memory
    shortlist: bool


@dataclass(slots=True)
class OpenBatch:
    """A batch with its key.

    state_bytes: bytes of its states, as reported to the observer
    no_token_yet: submission times of the jobs before their first step, by number
    """

    key: BatchKey
    running: RunningBatch[Any]
    state_bytes: int
    no_token_yet: dict[int, float] = field(default_factory=dict)

    def first_token_waits(self) -> list[float]:
        """Return the seconds since submission of each job whose first step has just ended."""
        now = time.monotonic()
        waits = [now - submitted for submitted in self.no_token_yet.values()]
        self.no_token_yet.clear()
        return waits


class Batches:
    """The batches of one lane, ordered by their latest steps."""

    def __init__(self, runner: Runner, observer: Observer) -> None:
        self._runner, self._observer = runner, observer
        self._open: dict[BatchKey, OpenBatch] = {}

    @property
    def has_rows(self) -> bool:
        return any(batch.running.live for batch in self._open.values())

    @property
    def state_bytes(self) -> int:
        """Bytes of the states of all batches."""
        return sum(batch.state_bytes for batch in self._open.values())

    def batch_for(self, job: DecodeJob, rows: int) -> OpenBatch:
        """Return the batch that a job joins. Raises MemoryError.

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

        If the width changes no results, the narrowest batch that fits has the key, which saves a step of a new batch.
        """
        own = BatchKey(job.options.beam_size, width_for(len(job.source_ids)), job.options.shortlist)
        found: BatchKey | None = None
        for key, batch in self._open.items() if self._runner.any_width else ():
            alike = key.beam_size == own.beam_size and key.shortlist == own.shortlist and batch.running.live > 0
            fits = alike and own.width <= key.width <= MOST_WIDER * own.width
            if fits and (found is None or key.width < found.width):
                found = key
        return found or own

    def next(self) -> OpenBatch | None:
        """Return the batch to step now, whose latest step is the oldest, or None if no batch has sentences."""
        for key, batch in self._open.items():
            if batch.running.live:
                self._open[key] = self._open.pop(key)
                return batch
        return None

    def remove(self, numbers: set[int]) -> None:
        for batch in self._open.values():
            batch.running.remove(numbers)
            for number in numbers & batch.no_token_yet.keys():
                del batch.no_token_yet[number]

    def free(self, batch: OpenBatch) -> None:
        """Free the memory of a batch and its sentences."""
        del self._open[batch.key]
        self._observer.states_changed(-batch.state_bytes)

    def free_empty(self) -> None:
        for batch in self._empty():
            self.free(batch)

    def free_large(self) -> None:
        """Free the empty batches with much memory, because filling new memory takes less time than their run took."""
        for batch in self._empty():
            if batch.running.used_bytes > SPARE_BYTES:
                self.free(batch)

    def _free_all_but_spare(self) -> None:
        """Free the empty batches except the latest ones, because clients may request any beam size and length."""
        for batch in self._empty()[:-SPARE_BATCHES]:
            self.free(batch)

    def _empty(self) -> list[OpenBatch]:
        return [batch for batch in self._open.values() if not batch.running.live]


logger = logging.getLogger(__name__)
LOST = "the engine failed and is being restarted; try again"
SHORT_RUN = 0.003  # seconds; target duration of a run of the encoder or the scorer while another caller waits
SPEED_WEIGHT = 0.2  # weight of the latest run in the speed of runs
KEEP_SECONDS = 1.0  # seconds; the memory of the scorer is kept for so long while there is other work
IDLE_SECONDS = 1.0  # seconds without work until a worker frees all kept memory


@dataclass(slots=True)
class Lane:
    """The work of a worker in one lane, see `lingon.serving.engine.policy`.

    batches: batches of sentences in decoding
    to_encode, to_score: admitted jobs, in batches
    score_debt: seconds of the latest run of the scorer that the decoder has not yet received
    began: whether the latest time slice ran the encoder or the scorer only
    """

    batches: Batches
    to_encode: deque[list[Job]] = field(default_factory=deque)
    to_score: deque[list[Job]] = field(default_factory=deque)
    score_debt: float = 0.0
    began: bool = False

    @property
    def has_work(self) -> bool:
        return bool(self.to_encode or self.to_score or self.batches.has_rows)

    def remove(self, numbers: set[int]) -> None:
        self.batches.remove(numbers)
        for waiting in (self.to_encode, self.to_score):
            kept = [[each for each in batch if each.number not in numbers] for batch in waiting]
            waiting.clear()
            waiting.extend(filter(None, kept))


class Worker:
    """The executor of the scheduler's plans for worker `number`.

    A time slice serves one lane, with at most one run of the encoder or the scorer, and one step of a batch. If another
    caller waits, it has only one of the two. A caller therefore waits for at most one time slice of another lane,
    however much work the others have.
    """

    def __init__(
        self, number: int, runner: Runner, scheduler: Scheduler, limits: EngineLimits, observer: Observer
    ) -> None:
        self._number, self._runner, self._scheduler = number, runner, scheduler
        self._limits, self._observer = MemoryLimits(limits), observer
        self._lanes = {lane: Lane(Batches(runner, observer)) for lane in (MAIN, LIGHT)}
        self._encoded = EncodedSources()
        self._scored = -math.inf  # time of the end of the latest run of the scorer, while its memory may be kept
        self._speed: dict[str, float] = {}  # tokens per second of runs of the encoder and of the scorer
        self._patience: float | None = IDLE_SECONDS  # None while no memory is kept and all rows are available
        self.since: float | None = None  # seconds of time.monotonic; start of the current run of a graph

    def run(self) -> None:
        """Work until the scheduler ends it. An error outside a single job ends the worker and all its jobs."""
        last: TimeSlice | None = None
        try:
            while (plan := self._scheduler.next(self._number, last, self._patience)) is not None:
                last = self.take_turn(plan)
        except Exception:
            self.die()
        finally:
            self._observer.states_changed(-sum(lane.batches.state_bytes for lane in self._lanes.values()))

    def take_turn(self, plan: StepPlan) -> TimeSlice:
        """Carry out the plan on the calling thread, and return the work."""
        start = self.since = time.monotonic()
        try:
            self.step(plan)
        finally:
            self.since = None
        return TimeSlice(plan.lane, time.monotonic() - start)

    def die(self) -> None:
        """Log the current error, which lies outside a single job, and end all jobs of this worker."""
        logger.exception("the engine died")
        for job in self._scheduler.fail(self._number):
            self._end(job, EngineLost(LOST))

    def step(self, plan: StepPlan) -> None:
        """Carry out the plan: remove and admit jobs, then serve a lane."""
        self._patience = None if plan.idle and not self._limits.lowered else IDLE_SECONDS
        if plan.idle:
            self._free_idle_memory()
        if plan.removed:
            self._remove(plan.removed)
        if plan.admitted:
            self._admit(plan.admitted)
        lane = self._lanes[plan.lane]
        if plan.short and plan.lane == MAIN:
            self._serve_briefly(lane)
        else:
            lane.began = self._begin(lane, short=False)
            self._step_next(lane)
        if self._scored > -math.inf:
            self._free_scorer_memory()
        if self._limits.lacked > -math.inf:
            self._raise_rows()

    def _serve_briefly(self, lane: Lane) -> None:
        """Run the encoder, the scorer or the decoder once. At least every second run is of the decoder."""
        decodes = lane.began and lane.batches.has_rows
        lane.began = not decodes and self._begin(lane, short=True)
        if not lane.began:
            self._step_next(lane)

    def _step_next(self, lane: Lane) -> None:
        """Step the batch of a lane whose latest step is the oldest."""
        batch = lane.batches.next()
        if batch is not None:
            self.since = time.monotonic()
            self._step(lane, batch)
            if not batch.running.live and batch.running.used_bytes > SPARE_BYTES:
                lane.batches.free(batch)  # filling new memory takes less time than the batch ran

    def _remove(self, removed: Sequence[tuple[Job, RequestError]]) -> None:
        numbers = {job.number for job, _ in removed}
        for lane in self._lanes.values():
            lane.remove(numbers)
        self._free_large_batches()
        for job, error in removed:
            self._end(job, error)

    def _admit(self, admitted: Sequence[Job]) -> None:
        """Put jobs into their lanes, grouped by similar length. Those with a known source go to the decoder at once."""
        known = {each.number: found for each in admitted if (found := self._known_source(each)) is not None}
        for number, lane in self._lanes.items():
            for kind, waiting in ((DecodeJob, lane.to_encode), (ScoreJob, lane.to_score)):
                jobs = [
                    each
                    for each in admitted
                    if each.lane == number and isinstance(each, kind) and each.number not in known
                ]
                if jobs:
                    batches = encoder_batches([each.width for each in jobs], self._limits.batch_tokens)
                    waiting.extend([jobs[index] for index in batch] for batch in batches)
        self._decode_again([each for each in admitted if each.number in known], known)

    def _known_source(self, job: Job) -> EncodedSource | None:
        return self._encoded.find(job.source_ids) if job.follow_up and isinstance(job, DecodeJob) else None

    def _decode_again(self, jobs: Sequence[Job], known: Mapping[int, EncodedSource]) -> None:
        """Put jobs into batches of the decoder; known: what the encoder has put out for their sources, by number."""
        if jobs:
            _start(jobs)
        for index, job in enumerate(jobs):
            assert isinstance(job, DecodeJob)
            assert job.lane is not None
            if not self._place(self._lanes[job.lane], job, *known[job.number]):
                self._lower_rows(jobs[index:])
                return

    def _place(self, lane: Lane, job: DecodeJob, encoded: Encoded, index: int) -> bool:
        """Put sentence `index` of an encoder batch into a batch of the decoder. Returns whether there was memory."""
        try:
            batch = lane.batches.batch_for(job, self._limits.rows)
        except MemoryError:
            return False
        if job.phase_times is not None:
            job.phase_times.encoded = time.monotonic()
        if (error := batch.running.admit(job, encoded, index, self._piece_ids(job))) is not None:
            self._end(job, error)
        else:
            batch.no_token_yet[job.number] = job.submitted
        return True

    def _begin(self, lane: Lane, *, short: bool) -> bool:
        """Encode a batch of admitted sentences, else score a batch of pairs, if the decoder has had its time.

        Returns whether it did either.
        """
        if lane.to_encode:
            self._encode(lane, self._take(lane.to_encode, "encoder", short=short))
        elif lane.to_score and (lane.score_debt <= 0 or not lane.batches.has_rows):
            start = time.monotonic()
            self._score(lane, self._take(lane.to_score, "scorer", short=short))
            lane.score_debt = time.monotonic() - start  # without waiting translations there is no debt
        else:
            return False
        return True

    def _take(self, waiting: deque[list[Job]], graph: str, *, short: bool) -> list[Job]:
        """Remove the first batch, or the part of it that makes a short run."""
        batch = waiting.popleft()
        most = max(int(SHORT_RUN * self._speed.get(graph, 0.0)) // batch[0].width, 1)  # the first one is longest
        if short and len(batch) > most:
            waiting.appendleft(batch[most:])
            batch = batch[:most]
        return batch

    def _measure(self, graph: str, tokens: int, start: float) -> float:
        """Return the seconds of a run since start, and update the speed of the graph."""
        seconds = time.monotonic() - start
        speed = tokens / max(seconds, 1e-6)
        known = self._speed.get(graph, speed)
        self._speed[graph] = known + SPEED_WEIGHT * (speed - known)
        return seconds

    def _encode(self, lane: Lane, admitted: Sequence[Job]) -> None:
        start = self.since = _start(admitted)
        ids, lengths = padded([job.source_ids for job in admitted])
        try:
            encoded = self._runner.encode(ids, lengths)
        except MemoryError:
            self._halve(lane.to_encode, admitted)
            return
        jobs = [job for job in admitted if isinstance(job, DecodeJob)]
        for index, job in enumerate(jobs):
            if not self._place(lane, job, encoded, index):
                self._lower_rows(jobs[index:])
                break
        else:
            self._encoded.keep(jobs, encoded)
        self._observer.encoded(len(admitted), int(lengths.sum()), ids.size, self._measure("encoder", ids.size, start))

    def _piece_ids(self, job: DecodeJob) -> np.ndarray | None:
        if not job.options.shortlist:
            return None
        assert self._runner.shortlist is not None
        return self._runner.shortlist.collect(job.source_ids)

    def _free_large_batches(self) -> None:
        for lane in self._lanes.values():
            lane.batches.free_large()

    def _free_scorer_memory(self) -> None:
        """Free the memory that the scorer keeps for its next run, if no run is expected."""
        if self._has_no_work() or time.monotonic() > self._scored + KEEP_SECONDS:
            self._scored = -math.inf
            self._runner.free_memory()

    def _has_no_work(self) -> bool:
        return not any(lane.has_work for lane in self._lanes.values()) and not self._scheduler.load().queued

    def _score(self, lane: Lane, admitted: Sequence[Job]) -> None:
        pairs = [each for each in admitted if isinstance(each, ScoreJob)]
        start = self.since = _start(pairs)
        source_ids, source_lengths = padded([job.source_ids for job in pairs])
        target_ids, target_lengths = padded([job.target_ids for job in pairs])
        choices = [job.attention for job in pairs]
        try:
            scores = self._runner.score(source_ids, source_lengths, target_ids, target_lengths, choices)
        except MemoryError:
            self._halve(lane.to_score, admitted)
            return
        tokens = len(pairs) * max(source_ids.shape[1], target_ids.shape[1] + 1)
        self._observer.scored(len(pairs), self._measure("scorer", tokens, start))
        self._scored = time.monotonic()
        for job, scored in zip(pairs, scores, strict=True):
            if scored.is_finite:
                self._close(job, len(job.target_ids) + 1, "OK", partial(job.on_done, scored))
            else:
                self._end(job, EngineFault("scoring this pair failed"))

    def _step(self, lane: Lane, batch: OpenBatch) -> None:
        running, start = batch.running, time.perf_counter()
        try:
            running.compact()
            rows = running.live * running.beam_size  # no slot is free
            ended = running.step()
        except MemoryError:
            lane.batches.free(batch)
            self._lower_rows(running.jobs)
            return
        seconds = time.perf_counter() - start
        lane.score_debt -= seconds
        self._observer.stepped(rows, rows, running.copied_bytes, seconds, running.steps)
        running.copied_bytes = 0
        if batch.no_token_yet:
            for waited in batch.first_token_waits():
                self._observer.first_token(waited)
        for job, outcome in ended:
            self._end(job, outcome)

    def _halve(self, waiting: deque[list[Job]], admitted: Sequence[Job]) -> None:
        """Requeue a batch that lacked memory as two halves."""
        if len(admitted) == 1:
            self._lower_rows([admitted[0]])
            return
        self._free_idle_memory()
        self._limits.halve_tokens(time.monotonic())
        middle = len(admitted) // 2
        waiting.extendleft([list(admitted[middle:]), list(admitted[:middle])])

    def _lower_rows(self, jobs: Sequence[Job]) -> None:
        """End jobs that lacked memory, and halve the rows from now on.

        Jobs that wait for the encoder end too, because the smaller batches may have no slots for them.
        """
        waiting = [each for lane in self._lanes.values() for batch in lane.to_encode for each in batch]
        for lane in self._lanes.values():
            lane.to_encode.clear()
        self._free_idle_memory()
        self._limits.halve_rows(time.monotonic())
        self._scheduler.limit_rows(self._number, self._limits.rows)
        lost = [*jobs, *waiting]
        logger.warning("no memory for %d texts, which fail; at most %d rows from now on", len(lost), self._limits.rows)
        for job in lost:
            self._end(job, OutOfMemory(FULL))

    def _free_idle_memory(self) -> None:
        self._encoded.free()
        for lane in self._lanes.values():
            lane.batches.free_empty()
        with suppress(MemoryError):  # freeing runs a graph
            self._runner.free_memory()

    def _raise_rows(self) -> None:
        """Restore the limits of the engine, a while after a lack of memory and without batches of fewer slots."""
        if self._limits.may_rise(time.monotonic()) and self._has_no_work():
            self._free_idle_memory()
            self._limits.restore()
            self._scheduler.limit_rows(self._number, self._limits.rows)

    def _end(self, job: Job, outcome: tuple[Hypothesis, ...] | RequestError) -> None:
        if isinstance(outcome, RequestError):
            self._close(job, 0, outcome.reason, partial(job.on_done, outcome))
        else:
            assert isinstance(job, DecodeJob)
            lengths = [len(hypothesis.log_probs) for hypothesis in outcome]
            self._close(job, sum(lengths), "OK", partial(job.on_done, outcome), steps=max(lengths, default=0))

    def _close(self, job: Job, target_tokens: int, outcome: str, answer: Callable[[], None], steps: int = 0) -> None:
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
        self._scheduler.close(job, steps)


def _start(jobs: Sequence[Job]) -> float:
    """Record that the encoder or the scorer begins with these jobs, and return the time.monotonic in seconds."""
    now = time.monotonic()
    for job in jobs:
        if job.phase_times is not None:
            job.phase_times.started = now
    return now
