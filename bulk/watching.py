"""What a run shows of its progress: a bar in a terminal, else a line now and then, and Prometheus metrics."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from lingon.bulk.planning import Plan, Shard
from lingon.bulk.shards import Record
from lingon.cli.lines.output import print_message
from lingon.cli.lines.progress import Advance, progress_bar, summary
from lingon.errors import SettingsError

PAUSE = 10.0  # seconds between two lines, where there is no bar


class Metrics:
    """The metrics of a run."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.shards = Gauge("lingon_bulk_shards", "Shards of the plan", registry=registry)
        self.total_rows = Gauge("lingon_bulk_rows", "Rows of the plan", registry=registry)
        self.shards_done = Gauge("lingon_bulk_shards_done", "Shards that are done", registry=registry)
        self.rows = Counter("lingon_bulk_translated_rows", "Rows that this run has done", registry=registry)
        self.errors = Counter("lingon_bulk_errors", "Rows of done shards that have an error", registry=registry)
        self.tokens = Counter("lingon_bulk_tokens", "Tokens of done shards", ["side"], registry=registry)


@contextmanager
def _served(port: int | None) -> Iterator[Metrics | None]:
    """Serve metrics at http://HOST:PORT/metrics; None if no port is given."""
    if port is None:
        yield None
        return
    registry = CollectorRegistry()
    metrics = Metrics(registry)
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
    """Shows the progress of a run; see lingon.bulk.runs.Watch."""

    def __init__(self, metrics: Metrics | None, announce: Callable[[str], object], ending: ExitStack) -> None:
        """announce: called with one line when the run begins; ending: takes away the bar of a terminal."""
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
        if sys.stderr is not None and sys.stderr.isatty():
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
    """Show the progress of a run; announce: see RunWatch."""
    with _served(metrics_port) as metrics, ExitStack() as ending:
        yield RunWatch(metrics, announce, ending)
