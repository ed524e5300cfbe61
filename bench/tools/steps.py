"""The time of a decoder step whose states stay on the device, and the host's part of it.

    python -m lingon.bench.tools.steps device --device cuda
    python -m lingon.bench.tools.steps host

`device`: Transformer base and big with random weights, in half precision, sources of 25 tokens, target positions 0 to
29, on CUDA, or in main memory in a rehearsal. Beams are all replaced in every step: each sentence continues one
hypothesis with all others, the most that can be copied.

`host`: the sessions compute nothing, so that the remaining time is the work of the host beside a graphics card: the
search, the writing of tokens, the reading of candidates, and the calls. Every step has the candidates of the first one,
which end no sentence. In beam search every step copies rows.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from lingon.bench.options import Results, results_folder
from lingon.bench.results_file import save, show
from lingon.bench.synthetic import (
    SHAPES,
    SOURCE_TOKENS,
    TARGET_TOKENS,
    TINY_SHAPES,
    Shape,
    random_sources,
    write_half_precision,
)
from lingon.serving.decoding.batch import RunningBatch
from lingon.serving.decoding.beam import BeamBatch
from lingon.serving.decoding.greedy import GreedyBatch
from lingon.serving.decoding.job import DecodeJob, Options
from lingon.serving.runtime.device import CPU, CUDA, cuda_missing
from lingon.serving.runtime.device_buffers import DeviceBuffers
from lingon.serving.runtime.onnx_runner import OnnxRunner, load_runner
from lingon.serving.runtime.runner import BatchShape, width_for
from lingon.text import BOS

SENTENCES, BEAM_SIZES = (1, 8, 64, 256), (1, 4)
ROUNDS = 5  # translations of a batch; the first is not counted, because it allocates and binds
HOST_SHAPE = Shape(layers=1, dim=64, heads=1, ffn=64, vocab=400)  # its size hardly changes the host's part
HOST_STEPS, HOST_ROUNDS = 24, 7  # steps of a round; the first round is not counted, because it binds

Quick = Annotated[bool, typer.Option("--quick", help="A tiny model and few sentences.")]
steps = typer.Typer(help=__doc__)


def measure_device(runner: OnnxRunner, sources: Sequence[Sequence[int]], beam_size: int) -> dict[str, float]:
    """Return milliseconds of the encoder and of a step, and bytes that a step copies, for a batch of sentences."""
    count, width = len(sources), width_for(SOURCE_TOKENS)
    buffers = runner.open(BatchShape(count, beam_size, width, runner.limits.max_output(width)))
    assert isinstance(buffers, DeviceBuffers)
    ids, lengths = np.array(sources), np.full(count, SOURCE_TOKENS)
    encoding, steps, copied = [], [], 0
    for _ in range(ROUNDS):
        encoding.append(_seconds(lambda: _place(runner, buffers, ids, lengths)))
        copied = runner.device.copied_bytes
        steps.append(_seconds(lambda: (_greedy if beam_size == 1 else _beam)(buffers, count)) / TARGET_TOKENS)
        copied = runner.device.copied_bytes - copied
    return {
        "encoder_ms": 1000 * statistics.median(encoding[1:]),
        "step_ms": 1000 * statistics.median(steps[1:]),
        "tokens_per_second": count / statistics.median(steps[1:]),
        "copied_bytes_per_step": copied / TARGET_TOKENS,
    }


def _place(runner: OnnxRunner, buffers: DeviceBuffers, ids: np.ndarray, lengths: np.ndarray) -> None:
    encoded = runner.encode(ids, lengths)
    for slot in range(len(ids)):
        buffers.place(slot, encoded, slot)
    buffers.token_ids[:], buffers.positions[:] = BOS, 0
    buffers.step(len(ids), logits=False)  # A step places the sentences.


def _greedy(buffers: DeviceBuffers, sentences: int) -> None:
    for begin in range(0, TARGET_TOKENS, buffers.most_steps):
        steps = min(buffers.most_steps, TARGET_TOKENS - begin)
        buffers.greedy_steps(sentences, steps)


def _beam(buffers: DeviceBuffers, sentences: int) -> None:
    first = np.arange(sentences) * buffers.beam_size
    sources = np.repeat(first, buffers.beam_size - 1)
    targets = (first[:, None] + np.arange(1, buffers.beam_size)).ravel()
    for position in range(TARGET_TOKENS):
        buffers.positions[:] = position
        found = buffers.step(sentences, logits=False)
        buffers.copy_rows(sources, targets, np.full(len(sources), position + 1))
        buffers.token_ids[:] = found.candidate_ids[:, 0]


def _seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


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


def measure_host(runner: OnnxRunner, sentences: int, beam_size: int) -> list[float]:
    """Return the seconds of a step in each round."""
    width, found = width_for(SOURCE_TOKENS), []
    shape = BatchShape(sentences, beam_size, width, runner.limits.max_output(width))
    sources, buffers = random_sources(HOST_SHAPE, sentences), runner.open(shape)
    encoded = runner.encode(np.array(sources), np.full(sentences, SOURCE_TOKENS))
    for _ in range(HOST_ROUNDS):
        batch: RunningBatch[Any] = GreedyBatch(buffers, shape) if beam_size == 1 else BeamBatch(buffers, shape)
        options = Options(beam_size=beam_size, max_output_tokens=shape.capacity)
        for index, source in enumerate(sources):
            job = DecodeJob(source_ids=tuple(source), options=options, on_done=lambda outcome: None)
            batch.admit(job, encoded, index)
        batch.step()  # It places the sentences.
        steps, start = 0, time.perf_counter()
        while steps < HOST_STEPS:
            batch.compact()
            batch.step()
            steps += batch.steps
        found.append((time.perf_counter() - start) / steps)
    return found[1:]


@steps.command()
def device(
    device: Annotated[str, typer.Option(help="cuda, or cpu to rehearse.")] = "cuda",
    quick: Quick = False,
    results: Results = None,
) -> None:
    """Measure steps of each model, number of sentences and search, print a table and write DATE-device-steps.json."""
    if device not in ("cuda", "cpu"):
        raise typer.BadParameter(f"device must be cuda or cpu, got {device!r}")
    if device == "cuda" and (missing := cuda_missing()):
        raise typer.BadParameter(f"device cuda: {missing}")
    rows: list[dict[str, Any]] = []
    shapes, counts = (TINY_SHAPES, SENTENCES[:2]) if quick else (SHAPES, SENTENCES)
    for name, recorded in itertools.product(shapes, (False, True) if device == "cuda" else (False,)):
        with tempfile.TemporaryDirectory() as folder:
            bundle = write_half_precision(Path(folder) / "1", shapes[name], CUDA if device == "cuda" else CPU)
            runner = load_runner(bundle, "fp16", threads=1, cuda_graphs=recorded)
        for sentences, beam_size in itertools.product(counts, BEAM_SIZES):
            found = measure_device(runner, random_sources(shapes[name], sentences), beam_size)
            cell = {"model": name, "cuda_graphs": recorded, "sentences": sentences, "beam_size": beam_size}
            rows.append({**cell, **found})
    show(rows)
    save("device-steps", rows, results_folder(results, quick=quick), device=device)


@steps.command()
def host(quick: Quick = False, results: Results = None) -> None:
    """Measure the host's part of a step for each number of sentences and search, and write DATE-host-step.json."""
    with tempfile.TemporaryDirectory() as folder:
        bundle = write_half_precision(Path(folder) / "1", HOST_SHAPE, CPU)
        runner = without_decoder(load_runner(bundle, "fp16", threads=1))
    rows: list[dict[str, Any]] = []
    for sentences, beam_size in itertools.product(SENTENCES[:2] if quick else SENTENCES, BEAM_SIZES):
        seconds = statistics.median(measure_host(runner, sentences, beam_size))
        rows.append({"sentences": sentences, "beam_size": beam_size, "host_us": round(1e6 * seconds, 1)})
    show(rows)
    save("host-step", rows, results_folder(results, quick=quick))


if __name__ == "__main__":
    steps()
