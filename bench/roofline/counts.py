"""What decoding computes: the multiply-adds of a model, and the tokens, rows and positions of a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lingon.bench.engines.base import Cell


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
