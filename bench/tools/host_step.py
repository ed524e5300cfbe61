"""The time of a decoder step that the host needs beside a graphics card.

    python -m lingon.bench.tools.host_step

The sessions compute nothing, so that the remaining time is the work of the host: the search, the writing of tokens, the
reading of candidates, and the calls. Every step has the candidates of the first one, which end no sentence. In beam
search every step copies rows.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from lingon.bench.options import Results, results_folder
from lingon.bench.results_file import save, show
from lingon.bench.synthetic import SOURCE_TOKENS, Shape, random_sources, write_half_precision
from lingon.serving.decoding.batch import RunningBatch
from lingon.serving.decoding.beam import BeamBatch
from lingon.serving.decoding.greedy import GreedyBatch
from lingon.serving.decoding.job import DecodeJob, Options
from lingon.serving.runtime.device import CPU
from lingon.serving.runtime.onnx_runner import OnnxRunner, load_runner
from lingon.serving.runtime.runner import BatchShape, width_for

SENTENCES, BEAM_SIZES = (1, 8, 64, 256), (1, 4)
SHAPE = Shape(layers=1, dim=64, heads=1, ffn=64, vocab=400)  # its size hardly changes the host's part
STEPS, ROUNDS = 24, 7  # steps of a round; the first round is not counted, because it binds


class NullSession:
    """A session that computes each binding once and then keeps its outputs."""

    def __init__(self, session: Any) -> None:
        self._session, self._computed = session, set[int]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def run_with_iobinding(self, binding: Any, options: Any = None) -> None:
        """Compute, or return at once."""
        if id(binding) not in self._computed:
            self._computed.add(id(binding))
            self._session.run_with_iobinding(binding)


def without_decoder(runner: OnnxRunner) -> OnnxRunner:
    """Return a runner whose decoder steps compute nothing."""
    assert runner.state_graphs is not None
    decoder: Any = NullSession(runner.decoder.all_cores)
    greedy, copies = NullSession(runner.state_graphs.greedy), NullSession(runner.state_graphs.copy_rows_session)
    graphs = replace(runner.state_graphs, greedy=greedy, copy_rows_session=copies)
    return replace(runner, decoder=runner.decoder.around(decoder), state_graphs=graphs)


def measure(runner: OnnxRunner, sentences: int, beam_size: int) -> list[float]:
    """Return the seconds of a step in each round."""
    width, found = width_for(SOURCE_TOKENS), []
    shape = BatchShape(sentences, beam_size, width, runner.limits.max_output(width))
    sources, buffers = random_sources(SHAPE, sentences), runner.open(shape)
    encoded = runner.encode(np.array(sources), np.full(sentences, SOURCE_TOKENS))
    for _ in range(ROUNDS):
        batch: RunningBatch[Any] = GreedyBatch(buffers, shape) if beam_size == 1 else BeamBatch(buffers, shape)
        options = Options(beam_size=beam_size, max_output_tokens=shape.capacity)
        for index, source in enumerate(sources):
            job = DecodeJob(source_ids=tuple(source), options=options, on_done=lambda outcome: None)
            batch.admit(job, encoded, index)
        batch.step()  # It places the sentences.
        steps, start = 0, time.perf_counter()
        while steps < STEPS:
            batch.compact()
            batch.step()
            steps += batch.steps
        found.append((time.perf_counter() - start) / steps)
    return found[1:]


def main(
    quick: Annotated[bool, typer.Option("--quick", help="Few sentences.")] = False, results: Results = None
) -> None:
    """Measure the host's part of a step for each number of sentences and search, and write DATE-host-step.json."""
    with tempfile.TemporaryDirectory() as folder:
        bundle = write_half_precision(Path(folder) / "1", SHAPE, CPU)
        runner = without_decoder(load_runner(bundle, "fp16", threads=1))
    rows: list[dict[str, Any]] = []
    for sentences, beam_size in itertools.product(SENTENCES[:2] if quick else SENTENCES, BEAM_SIZES):
        seconds = statistics.median(measure(runner, sentences, beam_size))
        rows.append({"sentences": sentences, "beam_size": beam_size, "host_us": round(1e6 * seconds, 1)})
    show(rows)
    save("host-step", rows, results_folder(results, quick=quick))


if __name__ == "__main__":
    typer.run(main)
