"""Positions in attention as ONNX nodes: rotary ones, Su et al. (2021), and the biases of relative ones.

See lingon.training.models.attention.rotate and lingon.training.models.relative. RotaryEmbedding has kernels for the CPU
and for CUDA, and reads the angles of each position from tables.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from lingon.export.graphs.layers import to_numpy
from lingon.export.graphs.onnx_writer import CONTRIB
from lingon.export.graphs.transformer.blocks import Blocks
from lingon.training.models.relative import RelativeBias


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


@dataclass(frozen=True, slots=True)
class RelativeScores:
    """Writes what relative positions add to scores.

    name: of the table of biases by distance
    module: of the model
    """

    blocks: Blocks
    name: str
    module: RelativeBias

    def of_sequences(self, positions: str) -> str:
        """Return the biases (1, heads, length, length) between all positions, int64 (length)."""
        graph = self.blocks.graph
        distances = graph.op("Sub", positions, graph.op("Unsqueeze", positions, graph.int64s(1)))
        by_head = graph.op("Transpose", self._gather(distances), perm=[2, 0, 1])
        return graph.op("Unsqueeze", by_head, graph.int64s(0))

    def of_steps(self, positions: str, keys: str) -> str:
        """Return the biases (rows, heads, 1, keys) of positions, int64 (rows), to those of keys, int64 (keys)."""
        graph = self.blocks.graph
        distances = graph.op("Sub", keys, graph.op("Unsqueeze", positions, graph.int64s(1)))
        by_head = graph.op("Transpose", self._gather(distances), perm=[0, 2, 1])
        return graph.op("Unsqueeze", by_head, graph.int64s(2))

    def _gather(self, distances: str) -> str:
        """Return the biases (..., heads) of distances (...)."""
        longest = self.blocks.settings.max_positions
        table = to_numpy(self.module.of_distances(torch.arange(1 - longest, longest)))
        places = self.blocks.graph.op("Add", distances, self.blocks.graph.int64s(longest - 1))
        return self.blocks.graph.gather(self.name, table, places)
