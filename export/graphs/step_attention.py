"""Self-attention of a decoder step over the caches of keys and values: two ways with the same inputs and outputs.

Both write the key and the value of the new position of each row into its caches, and attend from that position to all
positions up to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from onnx import TensorProto

from lingon import bundle
from lingon.export.graphs.blocks import MASKED, Blocks
from lingon.export.graphs.onnx_writer import CONTRIB, GraphBuilder

Caches = tuple[str, str]
"""Names of the keys and of the values of a layer, (rows, heads, capacity, head_dim) each."""


class StepAttention(Protocol):
    """Writes the attention of a decoder step into a graph; it is made once for a graph and used by every layer."""

    def attend(self, name: str, packed: str, past: Caches, present: Caches) -> str:
        """Return the mixed values (rows, dim).

        name: of the values that the nodes write
        packed: query, key and value of the new position, (rows, 3 * dim)
        past: the inputs of the graph; no other node may read them, because the runner binds `present` to their memory
        present: the outputs of the graph, with the new position
        """


@dataclass(frozen=True, slots=True)
class GroupedAttention:
    """GroupQueryAttention: one kernel, which reads as far as each row's own length. CUDA has none for float32.

    last: the index of the new position of each row, int32 (rows)
    total: the longest length after the step, an int32 scalar, or more; the kernel reads it on the host
    """

    blocks: Blocks
    last: str
    total: str

    @classmethod
    def write(cls, blocks: Blocks, positions: str, *, given: bool) -> GroupedAttention:
        """Write the lengths; given: whether `total` is an input of the graph and not computed from positions."""
        graph = blocks.graph
        last = graph.op("Cast", positions, to=TensorProto.INT32)
        if given:
            return cls(blocks, last, graph.input(bundle.TOTAL_LENGTH, np.int32, []))
        longest = graph.op("ReduceMax", last, graph.int64s(0), keepdims=0)
        return cls(blocks, last, graph.op("Add", longest, graph.constant(np.array(1, np.int32))))

    def attend(self, name: str, packed: str, past: Caches, present: Caches) -> str:
        """See StepAttention."""
        graph, settings = self.blocks.graph, self.blocks.settings
        mixed = graph.ops(
            "GroupQueryAttention",
            *(graph.op("Unsqueeze", packed, graph.int64s(1)), "", "", *past, self.last, self.total),
            outputs=[f"{name}.mixed", *present],
            domain=CONTRIB,
            num_heads=settings.heads,
            kv_num_heads=settings.heads,
            scale=settings.head_dim**-0.5,
        )[0]
        return graph.op("Reshape", mixed, graph.int64s(-1, settings.dim))


@dataclass(frozen=True, slots=True)
class ScatteredAttention:
    """ScatterND into the caches, then MatMul, Softmax and MatMul: CUDA has all of these for float32.

    Positions after the new one may hold anything, NaN too. Scores and values there are replaced, since NaN times the
    weight 0 is NaN.

    places: where the new position goes in a cache, int64 (rows, heads, 3): row, head and position
    visible: whether a position is read, bool (rows, 1, 1, capacity)
    """

    blocks: Blocks
    places: str
    visible: str

    @classmethod
    def write(cls, blocks: Blocks, positions: str, capacity: str) -> ScatteredAttention:
        """Write the places and the mask for positions (rows) and the capacity of the caches, int64 [capacity].

        The graph has the input TOTAL_LENGTH, as all decoders for devices do, and reads the capacity instead: the mask
        must be as wide as the caches, and the input may be smaller.
        """
        graph = blocks.graph
        graph.input(bundle.TOTAL_LENGTH, np.int32, [])
        visible = graph.op("LessOrEqual", graph.count_up(capacity), graph.op("Unsqueeze", positions, _after(graph, 3)))
        return cls(blocks, _places(graph, positions, blocks.settings.heads), visible)

    def attend(self, name: str, packed: str, past: Caches, present: Caches) -> str:
        """See StepAttention."""
        graph, settings = self.blocks.graph, self.blocks.settings
        query, *new = self.blocks.split(packed, 3)
        by_head = graph.int64s(-1, settings.heads, settings.head_dim)
        for old, added, cache in zip(past, new, present, strict=True):
            graph.op("ScatterND", old, self.places, graph.op("Reshape", added, by_head), named=cache)
        one_query = graph.op("Reshape", query, graph.int64s(-1, settings.heads, 1, settings.head_dim))
        scale = settings.head_dim**-0.5
        scores = graph.op("FusedMatMul", one_query, present[0], domain=CONTRIB, transB=1, alpha=scale)
        masked = graph.op("Where", self.visible, scores, graph.scalar(MASKED[graph.dtype.name]))
        weights = graph.op("Softmax", masked, axis=-1)
        by_position = graph.op("Transpose", self.visible, perm=[0, 1, 3, 2])
        values = graph.op("Where", by_position, present[1], graph.scalar(0))
        mixed = graph.op("MatMul", weights, values, named=f"{name}.mixed")
        return graph.op("Reshape", mixed, graph.int64s(-1, settings.dim))


def _places(graph: GraphBuilder, positions: str, heads: int) -> str:
    """Return the index (row, head, position) of the new key and value of every row and head: (rows, heads, 3)."""
    rows = graph.op("Unsqueeze", graph.count_up(graph.op("Shape", positions)), _after(graph, 2))
    of_row = graph.op("Mul", rows, graph.int64s(1, 0, 0))
    at_position = graph.op("Mul", graph.op("Unsqueeze", positions, _after(graph, 2)), graph.int64s(0, 0, 1))
    of_head = np.arange(heads)[:, None] * np.array([0, 1, 0])
    return graph.op("Add", graph.op("Add", of_row, at_position), graph.constant(of_head))


def _after(graph: GraphBuilder, axes: int) -> str:
    """Return the axes that Unsqueeze adds after the first one."""
    return graph.int64s(*range(1, 1 + axes))
