"""The floor of a cell: a lower bound of its time on this machine, computed from the machine's own peaks (roofline).

A phase (the encoder, or the decoder's steps) takes at least the time of its operations at the peak rate of matrix
products. It also takes at least the time to read its weights, once a run or a step, at the peak rate of memory, if
they do not fit into the last-level cache. Everything else (normalisation, choosing tokens, reading keys and values,
the encoder's self-attention) is counted as free: the floor is a bound, not a forecast.
"""

from __future__ import annotations

from dataclasses import dataclass

from lingon.bench.roofline.counts import DecodingCounts, MultiplyAdds

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
