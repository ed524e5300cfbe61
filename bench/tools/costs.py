"""The constants of the cost model, measured: the time of an engine for a token of each kind of work.

    python -m lingon.bench.tools.costs models/en-de

It runs the graphs of a bundle on all usable cores. Every figure is a median over rounds with all kinds.
The unit is the cost of one source token of a greedy translation: it is encoded, and one target token is decoded in a
full batch. `lingon.serving.engine.cost` names the constants that follow from it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from lingon.bench.results_file import show
from lingon.bundle.store import open_bundle
from lingon.machine import usable_cores
from lingon.serving.decoding.choice import Candidates, draw, log_prob
from lingon.serving.decoding.job import Sampling
from lingon.serving.runtime.device import choose_device
from lingon.serving.runtime.onnx_runner import OnnxRunner, load_runner
from lingon.serving.runtime.runner import BatchShape, Buffers, width_for
from lingon.text import EOS, UNK

ROWS = 64  # of a full batch
LENGTH = 24  # source tokens of an everyday sentence
TOKENS = 512  # of one run of the encoder or the scorer


def sources(runner: OnnxRunner, rows: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return random sources, (rows, length), and their lengths."""
    ids = np.random.default_rng(0).integers(UNK + 1, runner.manifest.source_vocab, (rows, length))
    ids[:, -1] = EOS
    return ids, np.full(rows, length)


def targets(runner: OnnxRunner, rows: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return random targets, (rows, length), and their lengths."""
    ids = np.random.default_rng(1).integers(UNK + 1, runner.manifest.target_vocab, (rows, length))
    return ids, np.full(rows, length)


def full_batch(runner: OnnxRunner, rows: int, beam_size: int = 1) -> Buffers:
    """Return the states of a batch whose rows are in the middle of an everyday sentence."""
    ids, lengths = sources(runner, rows // beam_size, LENGTH)
    encoded, width = runner.encode(ids, lengths), width_for(LENGTH)
    shape = BatchShape(rows // beam_size, beam_size, width, runner.limits.max_output(width))
    buffers = runner.open(shape)
    for slot in range(rows // beam_size):
        buffers.place(slot, encoded, slot)
    buffers.token_ids[:], buffers.positions[:] = UNK + 1, min(LENGTH // 2, shape.capacity - 1)
    return buffers


def kinds(runner: OnnxRunner) -> dict[str, tuple[Callable[[], object], int]]:
    """Return a function that does each kind of work, and its number of tokens."""
    encoder = sources(runner, TOKENS // LENGTH, LENGTH)
    longest = runner.limits.max_source_tokens
    long_encoder = sources(runner, max(TOKENS // longest, 1), longest)
    pairs = (*sources(runner, TOKENS // LENGTH, LENGTH), *targets(runner, TOKENS // LENGTH, LENGTH - 1))
    most = runner.limits.max_target_tokens - 1
    long_pairs = (*sources(runner, max(TOKENS // most, 1), 2), *targets(runner, max(TOKENS // most, 1), most))
    full, one, beams = full_batch(runner, ROWS), full_batch(runner, 1), full_batch(runner, ROWS, 4)
    sampling, found = Sampling(), full.step(ROWS, logits=True)
    assert found.logits is not None
    row, likeliest = found.logits[0].copy(), Candidates(found.candidate_ids[0], found.candidate_log_probs[0])
    return {
        "encoder, everyday source": (lambda: runner.encode(*encoder), encoder[0].size),
        "encoder, longest source": (lambda: runner.encode(*long_encoder), long_encoder[0].size),
        "step, a row of a full batch": (lambda: full.step(ROWS, logits=False), ROWS),
        "step, a row alone": (lambda: one.step(1, logits=False), 1),
        "step, a row of a full batch of beams": (lambda: beams.step(ROWS // 4, logits=False), ROWS),
        "step with logits, a row of a full batch": (lambda: full.step(ROWS, logits=True), ROWS),
        "sampling one token": (lambda: (draw(row, sampling, 0), log_prob(row, 5, likeliest)), 1),
        "scorer, everyday pair, a target token": (lambda: runner.score(*pairs), pairs[2].size + len(pairs[2])),
        "scorer, longest target, a target token": (
            lambda: runner.score(*long_pairs),
            long_pairs[2].size + len(long_pairs[2]),
        ),
    }


def measure(runner: OnnxRunner, rounds: int) -> dict[str, float]:
    """Return the seconds for a token of each kind of work."""
    works = kinds(runner)
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, (work, tokens) in works.items():
            work()
            start = time.perf_counter()
            work()
            seconds[name].append((time.perf_counter() - start) / tokens)
    return {name: statistics.median(each) for name, each in seconds.items()}


def main(
    bundle: Annotated[Path, typer.Argument(help="Folder of the bundle.")],
    precision: Annotated[str | None, typer.Option(help="Precision. Default: the bundle's best for the CPU.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, each with every kind of work.")] = 30,
) -> None:
    """Print the cost of a token of each kind of work."""
    opened = open_bundle(bundle)
    choice = choose_device(opened, "cpu", precision)
    found = measure(load_runner(opened, choice.precision, usable_cores()), rounds)
    unit = found["encoder, everyday source"] + found["step, a row of a full batch"]
    rows = [
        {"work": name, "microseconds a token": round(1e6 * seconds, 1), "units a token": round(seconds / unit, 2)}
        for name, seconds in found.items()
    ]
    show(rows, title=f"{opened.label}, {choice.precision}")


if __name__ == "__main__":
    typer.run(main)
