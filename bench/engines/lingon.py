"""Lingon in the benchmarks: the engine of `lingon serve`, with jobs submitted as the server submits them."""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from lingon.bench.engines.base import Cell, Setting, Tokens, limit
from lingon.bench.engines.parts import Stopwatch, time_parts
from lingon.bundle.store import Bundle, open_bundle
from lingon.errors import RequestError
from lingon.serving.decoding.job import DecodeJob, Hypothesis, Options
from lingon.serving.engine.engine import Engine
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.runtime.device import FP32_NATIVE, NATIVE, kernels_missing
from lingon.serving.runtime.onnx_runner import OnnxRunner, load_runner

DEVICE_BATCH_TOKENS = 16_384
"""Tokens of one encoder run on CUDA: the default of the server is for the caches of a CPU."""

Outcome = tuple[Hypothesis, ...] | RequestError


def unavailable_reason() -> str | None:
    """Return None: the benchmark itself needs everything that Lingon needs."""
    return None


def prepare(bundle: Bundle, folder: Path) -> None:
    """Do nothing: Lingon reads the bundle itself."""


def load(folder: Path, setting: Setting) -> Lingon:
    """Load the graphs of a bundle's folder; of fp32 and int8 the ones in native operators, if the bundle has them.

    For a card fp16 and fp16-native are different settings, so that both can be measured.
    """
    bundle = open_bundle(folder)
    native = {"int8": NATIVE, "fp32": FP32_NATIVE}.get(setting.precision, "")
    usable = native in bundle.manifest.precisions and not kernels_missing()
    runner = load_runner(
        bundle,
        native if usable else setting.precision,
        threads=setting.workers * setting.threads,
        shared_threads=setting.threads,
        cuda_graphs=setting.cuda_graphs,
        register=importlib.import_module(setting.operators).register_emulated_operators if setting.operators else None,
    )
    stopwatch = Stopwatch()
    if runner.state_graphs is not None:
        time_parts(runner, stopwatch)
    tokens = DEVICE_BATCH_TOKENS if setting.device == "cuda" else EngineLimits().max_batch_tokens
    return Lingon(runner, setting.workers, tokens, stopwatch)


class Lingon:
    """Lingon as a lingon.bench.engines.base.BenchEngine. The batch of a cell is the number of running sentences.

    batch_tokens: tokens of one encoder run at most
    stopwatch: of the parts of a run on a device
    """

    def __init__(self, runner: OnnxRunner, workers: int, batch_tokens: int, stopwatch: Stopwatch) -> None:
        self._runner, self._workers, self._batch_tokens, self.stopwatch = runner, workers, batch_tokens, stopwatch
        self._engine: Engine | None = None
        self._rows = 0

    def translate(self, sources: Sequence[Sequence[int]], cell: Cell) -> Tokens:
        """Submit all sources in one call."""
        engine, results = self._engine_of(cell), _Results(len(sources))
        engine.submit(list(self._jobs(sources, cell, results)))
        return results.wait()

    def translate_staggered(self, sources: Sequence[Sequence[int]], cell: Cell, seconds: float) -> Tokens:
        """Submit the sources one by one, evenly spread over this number of seconds."""
        engine, results = self._engine_of(cell), _Results(len(sources))
        start = time.perf_counter()
        for number, job in enumerate(self._jobs(sources, cell, results)):
            time.sleep(max(start + seconds * number / len(sources) - time.perf_counter(), 0))
            engine.submit([job])
        return results.wait()

    def close(self) -> None:
        """End the engine's threads."""
        if self._engine is not None:
            self._engine.stop(timeout=5)
            self._engine = None

    def _jobs(self, sources: Sequence[Sequence[int]], cell: Cell, results: _Results) -> Iterator[DecodeJob]:
        made: dict[int, Options] = {}  # By the length of the source, because a server makes options once for a request.
        for index, source in enumerate(sources):
            if (options := made.get(len(source))) is None:
                longest = limit(len(source), cell, self._runner.limits)
                options = Options(beam_size=cell.beam_size, max_output_tokens=longest, shortlist=cell.shortlist)
                made[len(source)] = options
            yield DecodeJob(source_ids=tuple(source), options=options, on_done=results.callback(index))

    def _engine_of(self, cell: Cell) -> Engine:
        """Return an engine for the rows of the cell. It is kept until a cell needs another number of rows."""
        rows = cell.batch * cell.beam_size
        if self._engine is None or self._rows != rows:
            self.close()
            limits = EngineLimits(
                max_queue_texts=1_000_000,
                max_queue_tokens=100_000_000,
                max_rows=rows,
                max_batch_tokens=self._batch_tokens,
            )
            self._engine, self._rows = Engine(self._runner, limits, workers=self._workers), rows
            self._engine.start()
        return self._engine


class _Results:
    """The results of the engine's threads. The last one wakes the waiting thread."""

    def __init__(self, count: int) -> None:
        self._count, self._outcomes, self._done = count, dict[int, Outcome](), threading.Event()

    def callback(self, index: int) -> Callable[[Outcome], None]:
        """Return the on_done function for the source with this index."""

        def put(outcome: Outcome) -> None:
            self._outcomes[index] = outcome
            if len(self._outcomes) == self._count:
                self._done.set()

        return put

    def wait(self) -> Tokens:
        """Wait for all sources, and return the best hypothesis of each, in order. Raise the error of a failed job."""
        if self._count:
            self._done.wait()
        found: list[list[int]] = []
        for index in range(self._count):
            outcome = self._outcomes[index]
            if isinstance(outcome, RequestError):
                raise outcome
            found.append(list(outcome[0].tokens))
        return found
