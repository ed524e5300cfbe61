"""The floor of a cell: the time that this machine's own peaks leave for it, however well a decoder is written.

A phase (the encoder; the decoder's steps) cannot take less than its operations at the peak rate of matrix products,
nor less than reading its weights once a run or step at the peak rate of memory, where they do not fit into the last
cache. Everything else (normalisation, choosing, reading keys and values, the encoder's own attention) is taken to
cost nothing: it is a floor, not a forecast.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lingon.bench.engines.base import Cell

BYTES = {"fp32": 4, "int8": 1}
"""Of one weight, by precision."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """What the machine can do at most.

    gemm: operations a second (two for each multiply-add), by precision
    read: bytes a second from memory
    cache: bytes of the last cache; 0 where it is not known
    """

    gemm: dict[str, float]
    read: float
    cache: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """Multiply-adds of a model.

    encoder: of one source token, cross-attention keys and values counted
    decoder: of one row of a step, output layer and attention not counted
    dim: of one row and one piece in the output layer
    vocab: pieces of the whole output layer
    own, cross: of one row and one position of its past, or of its source, in all layers' attention
    """

    encoder: int
    decoder: int
    dim: int
    vocab: int
    own: int
    cross: int


@dataclass(frozen=True, slots=True)
class Amount:
    """How much is translated in one run.

    rows: rows of all steps together; steps: the fewest that a batch of the cell's size needs
    own, cross: positions of the past and of sources that all rows look at, in all steps
    pieces: that a row chooses among
    """

    source_tokens: int
    encoder_runs: int
    rows: int
    steps: int
    own: int
    cross: int
    pieces: int


def amount(sources: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]], cell: Cell, pieces: int) -> Amount:
    """What translating sources into outputs takes; an output's end token is a step too, where it can be chosen."""
    ends = 0 if cell.exact_length else 1
    lengths = [len(output) + ends for output in outputs]
    pairs = list(zip(sources, lengths, strict=True))
    return Amount(
        source_tokens=sum(len(source) for source in sources),
        encoder_runs=math.ceil(len(sources) / cell.batch),
        rows=cell.beam_size * sum(lengths),
        steps=max(max(lengths, default=0), math.ceil(sum(lengths) / cell.batch)),
        own=cell.beam_size * sum(length * (length + 1) // 2 for length in lengths),
        cross=cell.beam_size * sum(len(source) * length for source, length in pairs),
        pieces=pieces,
    )


def floor_ms(sizes: Sizes, peaks: Peaks, precision: str, asked: Amount) -> float:
    """Milliseconds: of each phase the longer of computing and reading, in sum. Attention is always fp32."""
    size = BYTES[precision]
    step_weights = sizes.decoder + sizes.dim * asked.pieces
    attention = asked.own * sizes.own + asked.cross * sizes.cross
    encoder = max(
        2 * sizes.encoder * asked.source_tokens / peaks.gemm[precision],
        _reading(sizes.encoder * size, asked.encoder_runs, peaks),
    )
    decoder = max(
        2 * step_weights * asked.rows / peaks.gemm[precision] + 2 * attention / peaks.gemm["fp32"],
        _reading(step_weights * size, asked.steps, peaks),
    )
    return 1000 * (encoder + decoder)


def _reading(weights: int, times: int, peaks: Peaks) -> float:
    """Seconds to read so many bytes of weights so many times; none where they stay in the last cache."""
    return times * weights / peaks.read if weights > peaks.cache else 0.0
