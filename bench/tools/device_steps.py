"""The time of decoder steps whose states stay on the device: CUDA, or main memory in a rehearsal.

    python -m lingon.bench.tools.device_steps --device cuda

Transformer base and big with random weights, in half precision, sources of 25 tokens, target positions 0 to 29. Beams
are all replaced in every step: each sentence continues one hypothesis with all others, the most that can be copied.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from lingon.bench.results_file import results_folder, save
from lingon.bench.synthetic import (
    SHAPES,
    SOURCE_TOKENS,
    TARGET_TOKENS,
    TINY_SHAPES,
    random_sources,
    write_half_precision,
)
from lingon.serving.runtime.cuda import DeviceBuffers
from lingon.serving.runtime.device import CPU, CUDA, cuda_missing
from lingon.serving.runtime.onnx_runner import OnnxRunner, load_runner
from lingon.serving.runtime.runner import BatchShape, width_for
from lingon.text import BOS

SENTENCES, BEAM = (1, 8, 64, 256), 4
ROUNDS = 5  # translations of a batch; the first one is not counted, because it allocates and binds


def measure(runner: OnnxRunner, sources: Sequence[Sequence[int]], beam_size: int) -> dict[str, float]:
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
    buffers.step(len(ids), logits=False)  # a step places the sentences


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


def main(
    device: Annotated[str, typer.Option(help="cuda, or cpu to rehearse.")] = "cuda",
    quick: Annotated[bool, typer.Option("--quick", help="A tiny model and few sentences.")] = False,
    results: Annotated[Path | None, typer.Option(help="Folder for the results.")] = None,
) -> None:
    """Measure steps of each model, number of sentences and search, print a table and write DATE-device-steps.json."""
    if device not in ("cuda", "cpu"):
        raise typer.BadParameter(f"device must be cuda or cpu, got {device!r}")
    if device == "cuda" and (missing := cuda_missing()):
        raise typer.BadParameter(f"device cuda: {missing}")
    rows: list[dict[str, Any]] = []
    table = Table("model", "CUDA graphs", "sentences", "beam", "encoder, ms", "step, ms", "tokens/s", "bytes copied")
    shapes, counts = (TINY_SHAPES, SENTENCES[:2]) if quick else (SHAPES, SENTENCES)
    for name, recorded in itertools.product(shapes, (False, True) if device == "cuda" else (False,)):
        with tempfile.TemporaryDirectory() as folder:
            bundle = write_half_precision(Path(folder) / "1", shapes[name], CUDA if device == "cuda" else CPU)
            runner = load_runner(bundle, "fp16", threads=1, cuda_graphs=recorded)
        for sentences, beam_size in itertools.product(counts, (1, BEAM)):
            found = measure(runner, random_sources(shapes[name], sentences), beam_size)
            cell = {"model": name, "cuda_graphs": recorded, "sentences": sentences, "beam_size": beam_size}
            rows.append({**cell, **found})
            table.add_row(*map(str, cell.values()), *(f"{value:,.3g}" for value in found.values()))
    Console().print(table)
    typer.echo(f"written: {save('device-steps', rows, results_folder(results, quick=quick), device=device)}")


if __name__ == "__main__":
    typer.run(main)
