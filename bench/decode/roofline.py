"""The floor of a cell: a lower bound of its time on this machine, computed from the machine's own peaks (roofline).

A phase (the encoder, or the decoder's steps) takes at least the time of its operations at the peak rate of matrix
products. It also takes at least the time to read its weights, once a run or a step, at the peak rate of memory, if
they do not fit into the last-level cache. Everything else (normalisation, choosing tokens, reading keys and values,
the encoder's self-attention) is counted as free: the floor is a bound, not a forecast.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lingon.bench.engines.base import Cell

BYTES = {"fp32": 4, "int8": 1}
"""Bytes of one weight, by precision."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """The peak rates of the machine.

    gemm: operations a second (two for each multiply-add), by precision
    read: bytes a second from memory
    cache: bytes of the last-level cache; 0 if unknown
    """

    gemm: dict[str, float]
    read: float
    cache: int


@dataclass(frozen=True, slots=True)
class MultiplyAdds:
    """Multiply-adds of a model.

    encoder: for one source token, with the cross-attention keys and values
    decoder: for one row of a step, without output layer and attention
    dim: for one row and one piece in the output layer
    vocab: pieces of the whole output layer
    past_position: for one row and one position of its past, in the self-attention of all layers
    source_position: for one row and one position of its source, in the cross-attention of all layers
    """

    encoder: int
    decoder: int
    dim: int
    vocab: int
    past_position: int
    source_position: int


@dataclass(frozen=True, slots=True)
class DecodingCounts:
    """The amount of decoding in one run.

    rows: rows of all steps together
    steps: the smallest number of steps that batches of the cell's size need
    past_positions, source_positions: positions that all rows attend to, in all steps
    pieces: pieces that a row chooses from
    """

    source_tokens: int
    encoder_runs: int
    rows: int
    steps: int
    past_positions: int
    source_positions: int
    pieces: int


def count_decoding(
    sources: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]], cell: Cell, pieces: int
) -> DecodingCounts:
    """Count the translation of sources into outputs; the end token takes a step too, if it can be chosen."""
    ends = 0 if cell.is_forced else 1
    lengths = [len(output) + ends for output in outputs]
    pairs = list(zip(sources, lengths, strict=True))
    return DecodingCounts(
        source_tokens=sum(len(source) for source in sources),
        encoder_runs=math.ceil(len(sources) / cell.batch),
        rows=cell.beam_size * sum(lengths),
        steps=max(max(lengths, default=0), math.ceil(sum(lengths) / cell.batch)),
        past_positions=cell.beam_size * sum(length * (length + 1) // 2 for length in lengths),
        source_positions=cell.beam_size * sum(len(source) * length for source, length in pairs),
        pieces=pieces,
    )


def floor_ms(model: MultiplyAdds, peaks: Peaks, precision: str, counts: DecodingCounts) -> float:
    """The floor in milliseconds: the sum over both phases of the longer of computing and reading.

    Attention is always computed in fp32.
    """
    size = BYTES[precision]
    step_weights = model.decoder + model.dim * counts.pieces
    attention = counts.past_positions * model.past_position + counts.source_positions * model.source_position
    encoder = max(
        2 * model.encoder * counts.source_tokens / peaks.gemm[precision],
        _reading(model.encoder * size, counts.encoder_runs, peaks),
    )
    decoder = max(
        2 * step_weights * counts.rows / peaks.gemm[precision] + 2 * attention / peaks.gemm["fp32"],
        _reading(step_weights * size, counts.steps, peaks),
    )
    return 1000 * (encoder + decoder)


def _reading(size: int, times: int, peaks: Peaks) -> float:
    """Seconds to read `size` bytes of weights so many times; 0 if they stay in the last-level cache."""
    return times * size / peaks.read if size > peaks.cache else 0.0
