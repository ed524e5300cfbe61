"""The decoding speed of systems: one engine, the same sentences and batch, all systems in turns."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import perf_counter

from lingon.bench.decode.measure import Rounds, measure_in_turns
from lingon.bench.engines.base import Cell, Setting, Tokens
from lingon.bench.engines.lingon import Lingon, load
from lingon.bundle import Bundle
from lingon.lines import read_lines
from lingon.text import normalise

TOGETHER = 32  # sentences that are decoded together


def tokens_per_second(
    bundles: Mapping[str, Bundle], file: Path, sentences: int, rounds: int, show: Callable[[str], None]
) -> dict[str, float]:
    """Target tokens a second of each bundle: greedy, in fp32, on one thread; the median of the rounds.

    file: sources, of which `sentences` are taken at regular intervals; those longer than the model reads are left out
    """
    lines = [normalise(line) for line in read_lines(file)]
    lines = lines[:: max(len(lines) // sentences, 1)][:sentences]
    with ExitStack() as stack:
        measures = {}
        for name, bundle in bundles.items():
            engine = load(bundle.folder, Setting(precision="fp32", workers=1, threads=1))
            stack.callback(engine.close)
            measures[name] = partial(_measure, engine, bundle, lines)
        timed = measure_in_turns(measures, Rounds(runs=rounds), show)
    return {
        name: round(1000 * sum(map(len, found.outputs)) / statistics.median(found.runs_ms), 1)
        for name, found in timed.items()
    }


def _measure(engine: Lingon, bundle: Bundle, lines: list[str], repeats: int) -> tuple[float, Tokens]:
    """Milliseconds of a translation of all lines, and the outputs."""
    tokenizer, longest = bundle.tokenizer(), bundle.manifest.limits.max_source_tokens
    sources = [tokens for tokens in map(tokenizer.encode_source, lines) if len(tokens) <= longest]
    cell = Cell(workload="", batch=TOGETHER)
    begin = perf_counter()
    for _ in range(repeats):
        outputs = engine.translate(sources, cell)
    return 1000 * (perf_counter() - begin) / repeats, outputs
