"""The engine: one thread that admits, encodes, steps and hands out, sentence by sentence, without ever waiting for a
batch to fill or to end.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from lingon.errors import Cancelled, Draining, EngineFault, Expired, RequestError
from lingon.text import EOS, PAD
from serving.job import DecodeJob, Hypothesis, Job, ScoreJob
from serving.lane import Lane
from serving.observer import Observer, Silent
from serving.runner import Runner
from serving.scheduler import EngineLimits, Queue, encoder_batches, width_for

logger = logging.getLogger(__name__)


class Engine:
    """Decodes continuously: jobs of any length and options share running batches, join and leave at every step.

    Submitting and cancelling is safe from any thread; everything else happens on the engine's own.
    """

    def __init__(self, runner: Runner, limits: EngineLimits, observer: Observer | None = None) -> None:
        self._runner, self._limits, self._observer = runner, limits, observer or Silent()
        self._lanes: dict[tuple[int, int], Lane] = {}  # by beam size and memory width
        self._queue = Queue(limits)
        self._unfinished: dict[int, tuple[Job, float]] = {}  # every job not yet answered, and when it came
        self._silent: set[int] = set()  # jobs that have no token yet
        self._cancelled: set[int] = set()
        self._change = threading.Condition()
        self._stopping = self._dead = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        """Warm the model up, then take jobs."""
        self.warm()
        self._thread.start()

    def warm(self) -> None:
        """Run every kind of graph once, so that the first request finds memory and threads ready."""
        ids, lengths = np.array([[EOS, EOS]]), np.array([2])
        encoded = self._runner.encode(ids, lengths)
        for beam_size in (1, self._runner.limits.max_beam_size):
            buffers = self._runner.open(1, beam_size, width_for(2), self._capacity(width_for(2)))
            buffers.place(0, encoded, 0)
            first = np.zeros(beam_size, np.int64)
            buffers.step(1, first + EOS, first, logits=True)
        self._runner.score(ids, lengths, ids, lengths)

    @property
    def healthy(self) -> bool:
        """Whether jobs are being worked on."""
        return self._thread.is_alive() and not self._dead

    @property
    def idle(self) -> bool:
        """Whether nothing waits or runs."""
        with self._change:
            return not self._unfinished

    def submit(self, jobs: Sequence[Job]) -> None:
        """Take all of these jobs or none.

        Raises QueueFull, Draining once `stop` was called, EngineFault where the engine has died.
        """
        now = time.monotonic()
        with self._change:
            if self._dead:
                raise EngineFault("the engine is not running")
            if self._stopping:
                raise Draining("the server is shutting down")
            self._queue.check(jobs)
            self._queue.add(jobs)
            self._unfinished.update((job.number, (job, now)) for job in jobs)
            self._tell_queue()
            self._change.notify_all()

    def cancel(self, jobs: Sequence[Job]) -> None:
        """End these jobs at the next step, with Cancelled; those that have ended are left alone."""
        with self._change:
            self._cancelled.update(job.number for job in jobs if job.number in self._unfinished)
            self._change.notify_all()

    def stop(self, timeout: float) -> bool:
        """Take no more jobs, finish those that are here within timeout seconds, then cancel the rest.

        Returns whether all were finished.
        """
        with self._change:
            self._stopping = True
            self._change.notify_all()
            finished = self._change.wait_for(lambda: not self._unfinished or self._dead, timeout)
            self._cancelled.update(self._unfinished)
            self._change.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout=5)
        return finished and not self._dead

    def _run(self) -> None:
        try:
            while self._wait_for_work():
                self._sweep()
                self._admit()
                for lane in list(self._lanes.values()):
                    if len(lane):
                        self._step(lane)
        except Exception:
            logger.exception("the engine died")
            self._die()

    def _wait_for_work(self) -> bool:
        """Sleep while nothing is to do; False when it is time to go."""
        with self._change:
            while not self._unfinished:
                if self._stopping:
                    return False
                self._change.wait()
            return True

    def _sweep(self) -> None:
        """Let go of what was cancelled or has expired, waiting or running."""
        now = time.monotonic()
        with self._change:
            cancelled, self._cancelled = self._cancelled, set()
            gone = [job for number in cancelled if (job := self._queue.remove(number))]
            late: list[Job] = self._queue.expired(now)
        for lane in self._lanes.values():
            gone += lane.remove(cancelled)
            expired = [job.number for job in lane.jobs() if job.deadline is not None and job.deadline <= now]
            late += lane.remove(expired)
        for job in gone:
            self._end(job, Cancelled("the call was cancelled"))
        for job in late:
            self._end(job, Expired("the deadline passed before the text was done"))

    def _admit(self) -> None:
        """Let waiting jobs join: encode them, give them places; score jobs are done at once."""
        with self._change:
            admitted = self._queue.admit(sum(len(lane) * lane.beam_size for lane in self._lanes.values()))
            if admitted:
                self._tell_queue()
            waited = [time.monotonic() - self._unfinished[job.number][1] for job in admitted]
        for seconds in waited:
            self._observer.admitted(seconds)
        for batch in encoder_batches([len(job.source_ids) for job in admitted], self._limits.max_batch_tokens):
            jobs = [admitted[place] for place in batch]
            self._encode([job for job in jobs if isinstance(job, DecodeJob)])
            self._score([job for job in jobs if isinstance(job, ScoreJob)])

    def _encode(self, jobs: list[DecodeJob]) -> None:
        if not jobs:
            return
        start = time.perf_counter()
        ids, lengths = _padded([job.source_ids for job in jobs])
        encoded = self._runner.encode(ids, lengths)
        for index, job in enumerate(jobs):
            self._lane(job).admit(job, encoded, index)
            self._silent.add(job.number)
        self._observer.encoded(len(jobs), int(lengths.sum()), ids.size, time.perf_counter() - start)
        self._tell_running()

    def _lane(self, job: DecodeJob) -> Lane:
        width, beam_size = width_for(len(job.source_ids)), job.options.beam_size
        if (beam_size, width) not in self._lanes:
            slots, capacity = max(self._limits.max_rows // beam_size, 1), self._capacity(width)
            buffers = self._runner.open(slots, beam_size, width, capacity)
            self._lanes[beam_size, width] = Lane(buffers, slots, beam_size, capacity)
        return self._lanes[beam_size, width]

    def _capacity(self, width: int) -> int:
        """Positions that a past needs where the source has at most width tokens."""
        return self._runner.limits.max_output(width)

    def _score(self, jobs: list[ScoreJob]) -> None:
        if not jobs:
            return
        source_ids, source_lengths = _padded([job.source_ids for job in jobs])
        target_ids, target_lengths = _padded([job.target_ids for job in jobs])
        scores = self._runner.score(source_ids, source_lengths, target_ids, target_lengths)
        for job, scored in zip(jobs, scores, strict=True):
            self._close(job, len(job.target_ids) + 1, "OK", partial(job.on_done, scored))

    def _step(self, lane: Lane) -> None:
        lane.compact()
        start, live, rows = time.perf_counter(), len(lane), lane.rows
        ended = lane.step()
        self._observer.stepped(live * lane.beam_size, rows, lane.copied_bytes, time.perf_counter() - start)
        lane.copied_bytes = 0
        if self._silent:
            self._tell_first_tokens(lane, [job for job, _ in ended])
        for job, outcome in ended:
            self._end(job, outcome)
        if ended:
            self._tell_running()

    def _end(self, job: Job, outcome: tuple[Hypothesis, ...] | RequestError) -> None:
        if isinstance(outcome, RequestError):
            self._close(job, 0, outcome.reason, partial(job.on_done, outcome))
        else:
            assert isinstance(job, DecodeJob)
            tokens = sum(len(hypothesis.log_probs) for hypothesis in outcome)
            self._close(job, tokens, "OK", partial(job.on_done, outcome))

    def _close(self, job: Job, target_tokens: int, outcome: str, answer: Callable[[], None]) -> None:
        """Forget a job, count it, and call back; a fault in the caller's code ends nobody else's job."""
        self._silent.discard(job.number)
        self._observer.ended(outcome, target_tokens)
        try:
            answer()
        except Exception:
            logger.exception("a job's on_done failed")
        with self._change:
            self._unfinished.pop(job.number, None)
            self._cancelled.discard(job.number)
            self._change.notify_all()

    def _die(self) -> None:
        """Fail everything that is here; nothing is taken after."""
        with self._change:
            self._dead = True
            jobs = [job for job, _ in self._unfinished.values()]
        for job in jobs:
            self._end(job, EngineFault("the engine failed"))

    def _tell_queue(self) -> None:
        self._observer.queue_changed(len(self._queue), self._queue.tokens)

    def _tell_running(self) -> None:
        self._observer.running_changed(sum(len(lane) for lane in self._lanes.values()))

    def _tell_first_tokens(self, lane: Lane, ended: list[DecodeJob]) -> None:
        now = time.monotonic()
        for job in [*lane.jobs(), *ended]:
            if job.number in self._silent:
                self._silent.discard(job.number)
                self._observer.first_token(now - self._unfinished[job.number][1])


def _padded(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Rows of ids side by side (rows, longest), and their lengths; never narrower than two.

    A product with a single column takes another path in the kernels, whose sums come out otherwise in the last bit.
    """
    lengths = np.array([len(row) for row in rows])
    padded = np.full((len(rows), max(int(lengths.max()), 2)), PAD)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return padded, lengths
