"""Rotary positions as ONNX nodes: Su et al. (2021), equations 14, 15 and 34.

See lingon.training.models.attention.rotate.
The operator RotaryEmbedding has kernels for the CPU and for CUDA, and reads the angles of each position from tables.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lingon.export.graphs.onnx_writer import CONTRIB
from lingon.export.graphs.transformer.blocks import Blocks


@dataclass(frozen=True, slots=True)
class Rotation:
    """Writes the rotation of heads, in one graph.

    cosine, sine: of the angle of each pair of dimensions, (positions, head_dim / 2)
    positions: int64 [1], the position of the first of `length`, or (batch, length)
    sizes: the shape (batch, length, dim) of rows
    """

    blocks: Blocks
    cosine: str
    sine: str
    positions: str
    sizes: str

    @classmethod
    def of_sequences(cls, blocks: Blocks, batch: str) -> Rotation:
        """Return the rotation of rows (batch * length, dim), each sequence from position 0 on."""
        graph = blocks.graph
        sizes = graph.op("Concat", batch, graph.int64s(-1, blocks.settings.attention_dim), axis=0)
        return cls(blocks, *_tables(blocks), graph.int64s(0), sizes)

    @classmethod
    def of_steps(cls, blocks: Blocks, positions: str) -> Rotation:
        """Return the rotation of rows (rows, dim), each at a position of its own, int64 (rows)."""
        graph = blocks.graph
        places = graph.op("Unsqueeze", positions, graph.int64s(1))
        return cls(blocks, *_tables(blocks), places, graph.int64s(-1, 1, blocks.settings.attention_dim))

    def rotate(self, rows: str) -> str:
        """Return rotated queries or keys of all heads, (batch, length, dim)."""
        graph = self.blocks.graph
        return graph.op(
            "RotaryEmbedding",
            *(graph.op("Reshape", rows, self.sizes), self.positions, self.cosine, self.sine),
            domain=CONTRIB,
            interleaved=1,
            num_heads=self.blocks.settings.heads,
        )


def _tables(blocks: Blocks) -> tuple[str, str]:
    """Return the cosines and the sines of p / 10000^(2i / head_dim) for every position p and pair i."""
    settings = blocks.settings
    rates = 10000.0 ** (-np.arange(0, settings.head_dim, 2) / settings.head_dim)
    angles = np.arange(settings.max_positions)[:, None] * rates
    names = ("rotary.cosine", np.cos(angles)), ("rotary.sine", np.sin(angles))
    cosine, sine = (blocks.graph.weight(name, values.astype(np.float32)) for name, values in names)
    return cosine, sine
