"""The engine local of `lingon bulk`: shards in processes of this machine, as many as its cores and its memory allow.

One process with several engines leaves cores idle: Python hands texts to the engines, on one core at a time.
"""

from __future__ import annotations

import copy
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

from lingon.bulk.planning import Plan, Shard
from lingon.bulk.runs import LocalEngine, Watch
from lingon.bulk.shards import Record, ShardWorker
from lingon.bulk.translating import Translate
from lingon.errors import LingonError
from lingon.machine import MAX_DEFAULT_ENGINES, free_bytes, resident_bytes, usable_cores

POLL = 0.5  # seconds between two looks at the rows that are done


@dataclass(frozen=True, slots=True)
class ProcessEngine:
    """Translates shards in processes of this machine. With one of them, or a server, this process does it.

    workers: number of processes; None means one for each core, as far as there is memory for their models
    """

    workers: int | None = None

    def run(self, plan: Plan, left: Sequence[Shard], translate: Translate, watch: Watch) -> Iterator[Record]:
        count = self._count(len(left), translate)
        if count < 2:
            yield from LocalEngine().run(plan, left, translate, watch)
            return
        mine = _translate_of_process(translate, count)
        translate.close()  # the cores and the memory are for the processes
        context = multiprocessing.get_context("spawn")
        rows = context.Value("Q", 0)
        with _pool(count, context, plan, mine, rows) as pool:
            yield from _records([pool.submit(_run, shard) for shard in left], rows, watch)

    def _count(self, shards: int, translate: Translate) -> int:
        """The number of processes. The memory of this one, which has the model, stands for that of each."""
        backend = translate.backend
        if not backend.in_process or not translate.on_cpu():
            return 1
        cores = (backend.engines or 1) * (backend.threads or 1)
        fitting = max(free_bytes() // max(resident_bytes(), 1), 1)
        return min(self.workers or min(usable_cores() // cores, fitting), shards)


def _translate_of_process(translate: Translate, count: int) -> Translate:
    """The translator of the run with the engines of one of `count` processes, which share the cores."""
    mine, backend = copy.copy(translate), translate.backend
    share = max(usable_cores() // count, 1)
    engines = backend.engines or min(share // (backend.threads or 1), MAX_DEFAULT_ENGINES) or 1
    mine.backend = replace(backend, engines=engines, threads=backend.threads or max(share // engines, 1))
    return mine


@contextmanager
def _pool(count: int, context: Any, plan: Plan, translate: Translate, rows: Any) -> Iterator[ProcessPoolExecutor]:
    """Processes that end with this one, whatever ends it, and at once if this run fails."""
    held, holding = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(count, context, _begin, (plan, translate, rows, held))
    try:
        yield pool
        pool.shutdown()
    finally:
        holding.close()
        pool.shutdown(cancel_futures=True)


def _records(futures: Iterable[Future[Record]], rows: Any, watch: Watch) -> Iterator[Record]:
    """The records of shards as they are done; rows: the number of rows that all processes have done."""
    waiting, shown = set(futures), 0
    while waiting:
        done, waiting = wait(waiting, POLL, FIRST_COMPLETED)
        known, shown = shown, rows.value
        watch.rows(shown - known)
        for future in done:
            try:
                yield future.result()
            except BrokenProcessPool:
                raise LingonError(
                    "a process of this run was ended, by the system if memory ran out; the same command goes on where "
                    "it was, and --workers N takes fewer processes"
                ) from None


_work: Callable[[Shard], Record] | None = None  # of a process of the pool


def _begin(plan: Plan, translate: Translate, rows: Any, held: Connection) -> None:
    """Prepare a process of the pool. The model is read with the first shard, whose errors are told.

    held: at its end when the run is over, or its process gone
    """
    global _work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process of the run
    threading.Thread(target=_end_with, args=(held,), daemon=True).start()
    worker: list[ShardWorker] = []

    def add(count: int) -> None:
        with rows.get_lock():
            rows.value += count

    def work(shard: Shard) -> Record:
        if not worker:
            worker.append(ShardWorker(plan, translate))
        return worker[0].run(shard, add)

    _work = work


def _run(shard: Shard) -> Record:
    assert _work is not None
    return _work(shard)


def _end_with(held: Connection) -> None:
    with suppress(EOFError, OSError):
        held.recv()
    os._exit(1)
