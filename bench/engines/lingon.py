"""Lingon as a contestant: the engine that `lingon serve` runs, its jobs submitted from outside like a server's."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from lingon.bench.engines.base import Cell, Setting
from lingon.bench.engines.batches import limit
from lingon.bundle import Bundle, open_bundle
from lingon.errors import RequestError
from lingon.serving.decoding.job import DecodeJob, Hypothesis, Options
from lingon.serving.engine.engine import Engine
from lingon.serving.engine.policy import EngineLimits
from lingon.serving.runtime.onnx_runner import OnnxRunner, load_runner

Outcome = tuple[Hypothesis, ...] | RequestError


def why_not() -> str | None:
    """Nothing is in the way: what this needs, the benchmark itself needs."""
    return None


def prepare(bundle: Bundle, folder: Path) -> None:
    """Nothing to prepare: the bundle is read as it is."""


def load(folder: Path, setting: Setting) -> Lingon:
    """The graphs of a bundle's folder, loaded as a server loads them."""
    runner = load_runner(
        open_bundle(folder), setting.precision, threads=setting.workers * setting.threads, apart=setting.threads
    )
    return Lingon(runner, setting.workers)


class Lingon:
    """See lingon.bench.engines.base.Contestant. A cell's batch is how many sentences the engine lets run
    together.
    """

    def __init__(self, runner: OnnxRunner, workers: int) -> None:
        self._runner, self._workers = runner, workers
        self._engine: Engine | None = None
        self._rows = 0

    def translate(self, sources: Sequence[Sequence[int]], cell: Cell) -> list[list[int]]:
        """All sources submitted in one call."""
        engine, done = self._engine_of(cell), _Done()
        engine.submit(list(self._jobs(sources, cell, done)))
        return done.wait(len(sources))

    def translate_staggered(self, sources: Sequence[Sequence[int]], cell: Cell, seconds: float) -> list[list[int]]:
        """The same sources arriving one by one, evenly spread over so many seconds."""
        engine, done = self._engine_of(cell), _Done()
        start = time.perf_counter()
        for number, job in enumerate(self._jobs(sources, cell, done)):
            time.sleep(max(start + seconds * number / len(sources) - time.perf_counter(), 0))
            engine.submit([job])
        return done.wait(len(sources))

    def _jobs(self, sources: Sequence[Sequence[int]], cell: Cell, done: _Done) -> Iterator[DecodeJob]:
        for index, source in enumerate(sources):
            longest = limit(len(source), cell, self._runner.limits)
            options = Options(beam_size=cell.beam_size, max_output_tokens=longest, shortlist=cell.shortlist)
            yield DecodeJob(source_ids=tuple(source), options=options, on_done=done.expect(index))

    def _engine_of(self, cell: Cell) -> Engine:
        """An engine that decodes so many rows together; warmed up and kept until another number is asked for."""
        rows = cell.batch * cell.beam_size
        if self._engine is None or self._rows != rows:
            if self._engine is not None:
                self._engine.stop(timeout=5)
            limits = EngineLimits(max_queue_texts=1_000_000, max_queue_tokens=100_000_000, max_rows=rows)
            self._engine, self._rows = Engine(self._runner, limits, workers=self._workers), rows
            self._engine.start()
        return self._engine


class _Done:
    """Collects what the engine's thread answers."""

    def __init__(self) -> None:
        self._answers: queue.SimpleQueue[tuple[int, Outcome]] = queue.SimpleQueue()

    def expect(self, index: int) -> Callable[[Outcome], None]:
        """What the source at a place calls back."""
        return lambda outcome: self._answers.put((index, outcome))

    def wait(self, count: int) -> list[list[int]]:
        """The best hypothesis of every source, in order; raises what ended a job otherwise."""
        found: dict[int, list[int]] = {}
        while len(found) < count:
            index, outcome = self._answers.get()
            if isinstance(outcome, RequestError):
                raise outcome
            found[index] = list(outcome[0].tokens)
        return [found[index] for index in range(count)]
