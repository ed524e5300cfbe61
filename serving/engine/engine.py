"""The engine: takes jobs from any thread and calls back with their outcomes. Its workers decode continuously."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

import numpy as np

from lingon.alignment import AttentionKind
from lingon.errors import Cancelled, EngineLost, RequestError
from lingon.serving.decoding.job import Job
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.engine.policy import reserved_rows
from lingon.serving.engine.scheduler import Forecast, NullObserver, Observer, Scheduler, StepPlan
from lingon.serving.engine.worker import LOST, SPARE_BATCHES, SPARE_BYTES, Worker
from lingon.serving.runtime.runner import AttentionSize, BatchShape, Runner, width_for
from lingon.text import EOS

JOIN_SECONDS = 0.5  # seconds for the workers to end their last steps
EXIT_SECONDS = 10.0  # seconds for the workers of all engines to end their last steps when the process ends
_threads: weakref.WeakKeyDictionary[threading.Thread, Scheduler] = weakref.WeakKeyDictionary()
"""The threads of the workers of all engines, each with its scheduler."""

_threads_lock = threading.Lock()  # guards _threads, because engines start on any thread


class Engine:
    """A continuous decoder. Jobs of any length and options share running batches, and join and leave at every step.

    Every worker has its own thread and running batches. All use one model, and jobs are spread over them.

    interrupted: whether an exception of a signal handler has ended a turn, see `take_turns`
    """

    def __init__(
        self, runner: Runner, limits: EngineLimits, observer: Observer | None = None, *, workers: int = 1
    ) -> None:
        limits = replace(limits, spread=min(limits.spread, runner.spread))
        self._limits, self._observer = limits, observer or NullObserver()
        self._runner, self.interrupted = runner, False
        self.scheduler = Scheduler(limits, workers, self._observer)
        self._workers = [Worker(number, runner, self.scheduler, limits, self._observer) for number in range(workers)]
        self._threads = [
            threading.Thread(target=worker.run, name=f"engine {number}", daemon=True)
            for number, worker in enumerate(self._workers)
        ]

    def start(self, *, scorer: bool = True) -> None:
        """Warm up and accept jobs; scorer: whether to warm up the scorer too."""
        self.warm(scorer=scorer)
        with _threads_lock:
            _threads.update(dict.fromkeys(self._threads, self.scheduler))
        for thread in self._threads:
            thread.start()

    def warm(self, *, scorer: bool = True) -> None:
        """Run every graph once, so that memory and threads are ready for the first request.

        scorer: whether to run that too
        """
        ids, lengths = np.array([[EOS, EOS]]), np.array([2])
        encoded = self._runner.encode(ids, lengths)
        width = width_for(2)
        listed = [(True, self._runner.shortlist.select(ids[0]))] if self._runner.shortlist else []
        for shortlist, piece_ids in [(False, None), *listed]:
            for beam_size in (1, self._runner.limits.max_beam_size):
                shape = BatchShape(1, beam_size, width, self._runner.capacity(width))
                buffers = self._runner.open(shape, shortlist=shortlist)
                buffers.place(0, encoded, 0, piece_ids)
                buffers.token_ids[:] = EOS
                buffers.step(1, logits=not shortlist)
        if scorer:
            self._runner.score(ids, lengths, ids, lengths)

    @property
    def attention(self) -> Mapping[AttentionKind, AttentionSize]:
        """The kinds of attention of the model, with their sizes."""
        return self._runner.attention

    @property
    def steps_attend(self) -> bool:
        """Whether the search says where it looked if a job asks for it."""
        return self._runner.steps_attend

    @property
    def state_bytes(self) -> int:
        """The most bytes of decoder states: all rows with the longest sources, and the empty batches that are kept.

        A lane without rows admits the widest beam, even if it exceeds max_rows or the reserve.
        The memory of rows that left a running batch stays until the batch ends, and is not counted.
        """
        limits, most_rows = self._runner.limits, self.scheduler.most_rows
        widest = limits.max_beam_size
        width = width_for(limits.max_source_tokens)
        row = self._runner.open(BatchShape(1, 1, width, self._runner.capacity(width))).nbytes
        rows = max(most_rows, widest) + max(reserved_rows(most_rows), widest)
        return rows * row + min(rows * row, 2 * len(self._threads) * SPARE_BATCHES * SPARE_BYTES)

    @property
    def run_bytes(self) -> int:
        """About the most bytes that runs of all workers use at the same time."""
        return self._runner.run_bytes * len(self._threads)

    @property
    def healthy(self) -> bool:
        return all(thread.is_alive() for thread in self._threads) and not self.scheduler.failed

    @property
    def idle(self) -> bool:
        """Whether no job is queued or running."""
        return self.scheduler.idle

    @property
    def contended(self) -> bool:
        """Whether a heavy caller and another one have work, or had work less than CONTENTION_SECONDS ago."""
        return self.scheduler.contended

    @property
    def step_seconds(self) -> float:
        """Seconds since the start of the longest current step of a worker."""
        now = time.monotonic()
        return max(now - (worker.since or now) for worker in self._workers)

    def submit(self, jobs: Sequence[Job]) -> None:
        """Enqueue all jobs of one call, or none.

        Raises QueueFull, NotBegun and WontFinish for the deadline, Draining after `stop`, EngineLost after the death of
        a worker.
        """
        self.scheduler.submit(jobs)

    def take_turns(self) -> bool:
        """Decode for the calling thread until a job ends, if it is the driver of the scheduler; see `Scheduler.lend`.

        Returns whether it did. An exception of a signal handler, such as KeyboardInterrupt, is raised and ends the
        engine, because it may have interrupted a change of a batch. `restarted` makes a new one.
        """
        lent = self.scheduler.lend()
        if lent is None:
            return False
        number, plan = lent
        worker = self._workers[number]
        following: StepPlan | None = plan
        try:
            while following is not None:
                following = self.scheduler.go_on(number, worker.take_turn(following))
        except Exception:
            worker.die()
        except BaseException:
            self.interrupted = True
            self.fail_all()
            raise
        finally:
            self.scheduler.take_back(number)
        return True

    def run_here(self, job: Job, outcomes: SimpleQueue[Any]) -> Any:
        """Run one job and return its outcome. The calling thread takes the turns while no other one has work.

        outcomes: where the on_done of the job puts its outcome

        Raises what `submit` and `take_turns` raise.
        """
        self.scheduler.volunteer()
        try:
            self.submit([job])
            while outcomes.empty() and self.take_turns():
                pass
            return outcomes.get()  # after a turn that was not taken the threads of the workers continue
        except BaseException:
            self.cancel([job])
            raise
        finally:
            self.scheduler.retire()

    def check_texts(self, caller: str, texts: int) -> None:
        """Raise what `submit` would raise for so many texts of a caller, before any work on them."""
        self.scheduler.check_texts(caller, texts)

    def forecast(self, caller: str) -> Forecast:
        """Return when a typical call of a caller would begin and end, or infinity if it does not fit in the queue."""
        return self.scheduler.forecast(caller)

    def cancel(self, jobs: Sequence[Job]) -> None:
        """End these jobs with Cancelled before the next step. Jobs that ended are ignored."""
        self.scheduler.cancel(jobs)

    def fail_all(self) -> None:
        """Fail all jobs with EngineLost without waiting for the workers, and accept no more."""
        self._end_all(lambda: EngineLost(LOST))

    def restarted(self) -> Engine:
        """Return a new engine of the same model, warm and started."""
        engine = Engine(self._runner, self._limits, self._observer, workers=len(self._workers))
        self._observer.rows_limited(engine.scheduler.most_rows)
        engine.start()
        return engine

    def stop(self, timeout: float) -> bool:
        """Accept no more jobs, wait for the present ones up to timeout seconds, then cancel the rest.

        Returns whether all jobs ended without a cancel.
        """
        finished, end = self.scheduler.stop(timeout), time.monotonic() + JOIN_SECONDS
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(end - time.monotonic(), 0.0))
        returned = self.scheduler.wait_for_loans(max(end - time.monotonic(), 0.0))
        if not returned or any(thread.is_alive() for thread in self._threads):
            self._end_all(lambda: Cancelled("the engine was stopped"))
        return finished

    def _end_all(self, make: Callable[[], RequestError]) -> None:
        """make: returns a new error for each job, because a raised error keeps its traceback."""
        for job in self.scheduler.take_all():
            error = make()
            self._observer.ended(error.reason, 0)
            job.on_done(error)


def worker_threads() -> list[int]:
    """Return the native thread ids of all workers of this process."""
    with _threads_lock:
        return [thread.native_id for thread in _threads if thread.is_alive() and thread.native_id is not None]


def any_worker_alive() -> bool:
    """Return whether a worker of any engine of this process is alive, because it still runs a graph."""
    return bool(worker_threads())


def _stop_all() -> None:
    """Cancel the jobs of all engines and wait until their workers have ended.

    Python ends a daemon thread that returns from a graph at exit. Unwinding the C++ code of the graph then ends the
    process with SIGABRT.
    """
    with _threads_lock:
        # After a fork no thread is alive, and the lock of a scheduler may be held forever.
        alive = {thread: scheduler for thread, scheduler in _threads.items() if thread.is_alive()}
    for scheduler in {*alive.values()}:
        scheduler.stop(0)
    end = time.monotonic() + EXIT_SECONDS
    for thread in alive:
        thread.join(max(end - time.monotonic(), 0.0))
    for scheduler in {*alive.values()}:
        scheduler.wait_for_loans(max(end - time.monotonic(), 0.0))


atexit.register(_stop_all)
