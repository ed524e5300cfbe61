"""A run: its estimate, the engine that translates the shards that are missing, its progress, and its end.

The engine local translates shards in processes of this machine, as many as its cores and its memory allow. One process
with several engines leaves cores idle: Python hands texts to the engines, on one core at a time.
"""

from __future__ import annotations

import copy
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from lingon.bulk.planning import Plan, Shard
from lingon.bulk.shards import Readers, Record, ShardWorker, finish, missing, read_ahead, translate_shard
from lingon.bulk.storage import LocalFolder
from lingon.bulk.translating import Translate
from lingon.cli.output import Advance, is_terminal, print_message, progress_bar, summary
from lingon.errors import LingonError, SettingsError
from lingon.files import lock_path, make_folders
from lingon.machine import MAX_DEFAULT_ENGINES, free_bytes, resident_bytes, usable_cores
from lingon.worker_pool import worker_pool


class ProgressWatch(Protocol):
    """A receiver of the progress of a run."""

    def begin(self, plan: Plan, left: Sequence[Shard]) -> None:
        """Note that the run begins. left: the shards that are not done."""

    def rows(self, count: int) -> None:
        """Note that this many more rows are done."""

    def shard(self, record: Record) -> None:
        """Note that a shard is done."""


class ShardEngine(Protocol):
    """A place where shards are translated."""

    def run(self, plan: Plan, left: Sequence[Shard], translate: Translate, watch: ProgressWatch) -> Iterator[Record]:
        """Translate shards and yield the record of each when it is done, in any order."""


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """An engine that translates the shards one after the other, in this process or by a server."""

    def run(self, plan: Plan, left: Sequence[Shard], translate: Translate, watch: ProgressWatch) -> Iterator[Record]:
        for shard, rows in read_ahead(plan, left):
            yield translate_shard(plan, shard, rows, translate, watch.rows)


def run(plan: Plan, engine: ShardEngine, translate: Translate, watch: ProgressWatch) -> dict[str, Any]:
    """Translate the shards that are missing and finish and return the manifest.

    On this machine's file systems a second run of the same folder is refused while one is going on.
    """
    with _alone(plan):
        left = missing(plan)
        watch.begin(plan, left)
        for record in engine.run(plan, left, translate, watch) if left else ():
            watch.shard(record)
        return finish(plan)


@contextmanager
def _alone(plan: Plan) -> Iterator[None]:
    """Hold the lock of a folder of this machine. An object store has none, and two runs write the same bytes there."""
    folder = plan.folder
    if not isinstance(folder, LocalFolder):
        yield
        return
    make_folders(folder.path)
    try:
        with lock_path(folder.path):
            folder.remove_partial_files()
            yield
    except BlockingIOError:
        raise LingonError(f"{folder.url}: another run is writing to this folder") from None


SAMPLES = 8  # shards that rows are taken from, spread over the plan
SAMPLE_ROWS = 250  # of each of them


@dataclass(frozen=True, slots=True)
class Estimate:
    """The cost of a run. Tokens and seconds are estimates from `sampled` rows, of which some had `errors`."""

    rows: int
    files: int
    shards: int
    sampled: int
    errors: int
    source_tokens: float
    target_tokens: float
    seconds: float


def estimate(plan: Plan, translate: Translate) -> Estimate:
    """Translate a sample of a plan, after a first part of it that warms up. Nothing is written."""
    step = max(1, -(-len(plan.shards) // SAMPLES))
    sampled = errors = source_tokens = target_tokens = 0
    seconds = 0.0
    with Readers(plan) as readers:
        for shard in plan.shards[::step]:
            piece = replace(shard.piece, rows=min(shard.piece.rows, SAMPLE_ROWS))
            rows = readers.rows(replace(shard, piece=piece))
            values = rows.values(translate.columns.text)
            languages = rows.values(translate.columns.language) if translate.columns.language else None
            if not sampled:
                translate.cells(values[:50], languages and languages[:50])
            begin = time.perf_counter()
            cells, counts = translate.cells(values, languages)
            seconds += time.perf_counter() - begin
            sampled, errors = sampled + len(cells), errors + sum(cell.error is not None for cell in cells)
            source_tokens += counts.source_tokens
            target_tokens += counts.target_tokens
    scale = plan.rows / max(1, sampled)
    return Estimate(
        rows=plan.rows,
        files=len(plan.files),
        shards=len(plan.shards),
        sampled=sampled,
        errors=errors,
        source_tokens=source_tokens * scale,
        target_tokens=target_tokens * scale,
        seconds=seconds * scale,
    )


PAUSE = 10.0  # seconds between two lines, where there is no bar


class RunMetrics:
    """The metrics of a run."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.shards = Gauge("lingon_bulk_shards", "Shards of the plan", registry=registry)
        self.total_rows = Gauge("lingon_bulk_rows", "Rows of the plan", registry=registry)
        self.shards_done = Gauge("lingon_bulk_shards_done", "Shards that are done", registry=registry)
        self.rows = Counter("lingon_bulk_translated_rows", "Rows that this run has done", registry=registry)
        self.errors = Counter("lingon_bulk_errors", "Rows of done shards that have an error", registry=registry)
        self.tokens = Counter("lingon_bulk_tokens", "Tokens of done shards", ["side"], registry=registry)


@contextmanager
def _served(port: int | None) -> Iterator[RunMetrics | None]:
    """Serve metrics at http://HOST:PORT/metrics, or None if no port is given."""
    if port is None:
        yield None
        return
    registry = CollectorRegistry()
    metrics = RunMetrics(registry)
    try:
        server, _ = start_http_server(port, registry=registry)
    except OSError as error:
        raise SettingsError(f"--metrics-port {port}: {error.strerror}") from None
    try:
        yield metrics
    finally:
        server.shutdown()
        server.server_close()


class RunWatch:
    """A display of the progress of a run. See ProgressWatch."""

    def __init__(self, metrics: RunMetrics | None, announce: Callable[[str], object], ending: ExitStack) -> None:
        """announce: called with one line when the run begins; ending: removes the bar of a terminal."""
        self._metrics, self._announce, self._ending = metrics, announce, ending
        self._advance: Advance | None = None
        self._begin = self._printed = time.monotonic()
        self._rows = self._left = self._shards_done = self._shards = 0

    def begin(self, plan: Plan, left: Sequence[Shard]) -> None:
        self._begin = self._printed = time.monotonic()
        self._left, self._shards = sum(each.piece.rows for each in left), len(plan.shards)
        self._shards_done = len(plan.shards) - len(left)
        self._announce(
            f"{plan.rows:,} rows in {self._shards:,} shards, {self._left:,} rows in {len(left):,} to translate with "
            f"{plan.model}"
        )
        if is_terminal():
            self._advance = self._ending.enter_context(progress_bar(self._left, shown=True, unit="rows"))
        if self._metrics:
            self._metrics.shards.set(len(plan.shards))
            self._metrics.total_rows.set(plan.rows)
            self._metrics.shards_done.set(self._shards_done)

    def rows(self, count: int) -> None:
        self._rows += count
        if self._metrics:
            self._metrics.rows.inc(count)
        if self._advance:
            self._advance(count, count)
        elif time.monotonic() - self._printed >= PAUSE:
            self._print()

    def shard(self, record: Record) -> None:
        self._shards_done += 1
        if self._metrics:
            self._metrics.shards_done.inc()
            self._metrics.errors.inc(record.errors)
            self._metrics.tokens.labels("source").inc(record.source_tokens)
            self._metrics.tokens.labels("target").inc(record.target_tokens)

    def _print(self) -> None:
        self._printed = time.monotonic()
        done = summary(self._rows, self._printed - self._begin, self._rows, self._left, "rows")
        print_message(f"{done}; {self._shards_done:,} of {self._shards:,} shards done")


@contextmanager
def watching(metrics_port: int | None, announce: Callable[[str], object]) -> Iterator[RunWatch]:
    """Show the progress of a run. announce: see RunWatch."""
    with _served(metrics_port) as metrics, ExitStack() as ending:
        yield RunWatch(metrics, announce, ending)


POLL = 0.5  # seconds between two looks at the rows that are done


@dataclass(frozen=True, slots=True)
class ProcessEngine:
    """An engine with processes of this machine. With one of them, or a server, this process does it.

    workers: number of processes. None means one for each core, as far as there is memory for their models
    """

    workers: int | None = None

    def run(self, plan: Plan, left: Sequence[Shard], translate: Translate, watch: ProgressWatch) -> Iterator[Record]:
        count = self._count(len(left), translate)
        if count < 2:
            yield from LocalEngine().run(plan, left, translate, watch)
            return
        mine = _translate_of_process(translate, count)
        translate.close()  # the cores and the memory are for the processes
        rows = multiprocessing.get_context("spawn").Value("Q", 0)
        with worker_pool(count, _begin, (plan, mine, rows)) as pool:
            yield from _records([pool.submit(_run, shard) for shard in left], rows, watch)

    def _count(self, shards: int, translate: Translate) -> int:
        """Return the number of processes. Each needs the memory of this one, which has the model."""
        backend = translate.backend
        if not backend.in_process or not translate.on_cpu():
            return 1
        cores = (backend.engines or 1) * (backend.threads or 1)
        fitting = max(free_bytes() // max(resident_bytes(), 1), 1)
        return min(self.workers or min(usable_cores() // cores, fitting), shards)


def _translate_of_process(translate: Translate, count: int) -> Translate:
    """Return the translator of the run with the engines of one of `count` processes, which share the cores."""
    mine, backend = copy.copy(translate), translate.backend
    share = max(usable_cores() // count, 1)
    engines = backend.engines or min(share // (backend.threads or 1), MAX_DEFAULT_ENGINES) or 1
    mine.backend = replace(backend, engines=engines, threads=backend.threads or max(share // engines, 1))
    return mine


def _records(futures: Iterable[Future[Record]], rows: Any, watch: ProgressWatch) -> Iterator[Record]:
    """Yield the records of shards as they are done. rows: the number of rows that all processes have done."""
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


def _begin(plan: Plan, translate: Translate, rows: Any) -> None:
    """Prepare a process of the pool. The model is read with the first shard, whose errors are reported."""
    global _work
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
