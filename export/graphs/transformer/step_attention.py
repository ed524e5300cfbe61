"""Self-attention of a decoder step over the caches of keys and values: three ways with the same inputs and outputs.

All write the key and the value of the new position of each row into its caches, and attend from that position to all
positions up to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from onnx import TensorProto

from lingon import bundle
from lingon.export.graphs.layers import MASKED
from lingon.export.graphs.onnx_writer import CONTRIB, GraphBuilder
from lingon.export.graphs.transformer.blocks import Blocks
from lingon.export.graphs.transformer.heads import scores_of
from lingon.export.graphs.transformer.positions import RelativeScores, Rotation
from lingon.training.models.attention import SelfAttention

SUMMED = 4  # positions that a product of one row adds at a time: only then do zeros after a multiple change no bit
Caches = tuple[str, str]
"""Names of the keys and of the values of a layer, (rows, heads, capacity, head_dim) each.

Additive scores have keys (rows, capacity, dim). Rotated keys are in the cache as they are.
"""


class StepAttention(Protocol):
    """Writes the attention of a decoder step into a graph; it is made once for a graph and used by every layer."""

    def attend(self, module: SelfAttention, name: str, packed: str, past: Caches, present: Caches) -> str:
        """Return the mixed values (rows, dim).

        module: the attention whose scores these are
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
    rotation: of queries and keys
    bias: what is added to the scores of each head (rows, heads, 1, total); "" if nothing is
    """

    blocks: Blocks
    last: str
    total: str
    rotation: Rotation | None
    bias: str

    @classmethod
    def write(
        cls,
        blocks: Blocks,
        positions: str,
        rotation: Rotation | None,
        relative: RelativeScores | None,
        *,
        given: bool,
    ) -> GroupedAttention:
        """Write the lengths; given: whether `total` is an input of the graph and not computed from positions."""
        graph = blocks.graph
        last = graph.op("Cast", positions, to=TensorProto.INT32)
        if given:
            total = graph.input(bundle.TOTAL_LENGTH, np.int32, [])
        else:
            longest = graph.op("ReduceMax", last, graph.int64s(0), keepdims=0)
            total = graph.op("Add", longest, graph.constant(np.array(1, np.int32)))
        if relative is None:
            return cls(blocks, last, total, rotation, "")
        count = graph.op("Unsqueeze", graph.op("Cast", total, to=TensorProto.INT64), graph.int64s(0))
        return cls(blocks, last, total, rotation, relative.of_steps(positions, graph.count_up(count)))

    def attend(self, module: SelfAttention, name: str, packed: str, past: Caches, present: Caches) -> str:
        """See StepAttention."""
        graph, settings = self.blocks.graph, self.blocks.settings
        mixed = graph.ops(
            "GroupQueryAttention",
            *(*self._new(packed), *past, self.last, self.total, *(("", "", "", self.bias) if self.bias else ())),
            outputs=[f"{name}.mixed", *present],
            domain=CONTRIB,
            num_heads=settings.heads,
            kv_num_heads=settings.heads,
            scale=settings.head_dim**-0.5,
        )[0]
        return graph.op("Reshape", mixed, graph.int64s(-1, settings.attention_dim))

    def _new(self, packed: str) -> tuple[str, str, str]:
        """Return query, key and value of the new position, (rows, 1, dim) each; or all in the first, 3 * dim wide."""
        graph = self.blocks.graph
        if self.rotation is None:
            return graph.op("Unsqueeze", packed, graph.int64s(1)), "", ""
        query, key, value = self.blocks.split(packed, 3)
        added = graph.op("Unsqueeze", value, graph.int64s(1))
        return self.rotation.rotate(query), self.rotation.rotate(key), added


@dataclass(frozen=True, slots=True)
class ScatteredAttention:
    """ScatterND into the caches, then MatMul, Softmax and MatMul: CUDA has all of these for float32.

    Positions after the new one may hold anything, NaN too. Scores and values there are replaced, since NaN times the
    weight 0 is NaN.

    places: where the new position goes in a cache, int64 (rows, heads, 3): row, head and position
    visible: whether a position is read, bool (rows, 1, 1, capacity)
    bias: what is added to the scores (rows, heads, 1, capacity); "" if nothing is
    """

    blocks: Blocks
    places: str
    visible: str
    rotation: Rotation | None
    bias: str

    @classmethod
    def write(
        cls,
        blocks: Blocks,
        positions: str,
        capacity: str,
        rotation: Rotation | None,
        relative: RelativeScores | None,
    ) -> ScatteredAttention:
        """Write the places and the mask for positions (rows) and the capacity of the caches, int64 [capacity].

        The graph has the input TOTAL_LENGTH, as all decoders for devices do, and reads the capacity instead: the mask
        must be as wide as the caches, and the input may be smaller.
        """
        graph = blocks.graph
        graph.input(bundle.TOTAL_LENGTH, np.int32, [])
        keys = graph.count_up(capacity)
        visible = graph.op("LessOrEqual", keys, graph.op("Unsqueeze", positions, _after(graph, 3)))
        bias = "" if relative is None else relative.of_steps(positions, keys)
        return cls(blocks, _places(graph, positions, blocks.settings.heads), visible, rotation, bias)

    def attend(self, module: SelfAttention, name: str, packed: str, past: Caches, present: Caches) -> str:
        """See StepAttention."""
        graph, settings = self.blocks.graph, self.blocks.settings
        query, key, value = self.blocks.split(packed, 3)
        if self.rotation is not None:
            query, key = self.rotation.rotate(query), self.rotation.rotate(key)
        by_head = graph.int64s(-1, settings.heads, settings.head_dim)
        for old, added, cache in zip(past, (key, value), present, strict=True):
            graph.op("ScatterND", old, self.places, graph.op("Reshape", added, by_head), named=cache)
        one_query = graph.op("Reshape", query, graph.int64s(-1, settings.heads, 1, settings.head_dim))
        scale = settings.head_dim**-0.5
        scores = graph.op("FusedMatMul", one_query, present[0], domain=CONTRIB, transB=1, alpha=scale)
        if self.bias:
            scores = graph.op("Add", scores, self.bias)
        return _mix(self.blocks, scores, present[1], self.visible, name)


@dataclass(frozen=True, slots=True)
class AdditiveAttention:
    """ScatterND into the caches, then additive scores, which no fused kernel computes.

    As in ScatteredAttention, positions after the new one may hold anything.

    places: see ScatteredAttention
    row_places: where the new key goes in its cache, int64 (rows, 2): row and position
    reached: the positions that the step reads, int64 (reach); "" for all of the capacity, since a device would have to
        wait for the longest row
    visible: whether a position is read, bool (rows, 1, 1, reach)
    """

    blocks: Blocks
    places: str
    row_places: str
    reached: str
    visible: str
    rotation: Rotation | None

    @classmethod
    def write(
        cls, blocks: Blocks, positions: str, capacity: str, rotation: Rotation | None, *, given: bool
    ) -> AdditiveAttention:
        """Write places and mask for positions (rows) and the capacity of the caches, int64 [capacity].

        given: whether the graph has the input TOTAL_LENGTH; see ScatteredAttention
        """
        graph = blocks.graph
        if given:
            graph.input(bundle.TOTAL_LENGTH, np.int32, [])
        counted = graph.count_up(capacity if given else _whole_blocks(graph, positions))
        reached = "" if given else graph.op("Min", counted, graph.op("Sub", capacity, graph.int64s(1)))
        visible = graph.op("LessOrEqual", counted, graph.op("Unsqueeze", positions, _after(graph, 3)))
        places = _places(graph, positions, blocks.settings.heads)
        rows = graph.count_up(graph.op("Shape", positions))
        pair = [graph.op("Unsqueeze", each, graph.int64s(1)) for each in (rows, positions)]
        return cls(blocks, places, graph.op("Concat", *pair, axis=1), reached, visible, rotation)

    def attend(self, module: SelfAttention, name: str, packed: str, past: Caches, present: Caches) -> str:
        """See StepAttention."""
        graph, settings = self.blocks.graph, self.blocks.settings
        query, key, value = self.blocks.split(packed, 3)
        if self.rotation is not None:
            query, key = self.rotation.rotate(query), self.rotation.rotate(key)
        flat, by_head = graph.int64s(-1, settings.attention_dim), graph.int64s(-1, settings.heads, settings.head_dim)
        graph.op("ScatterND", past[0], self.row_places, graph.op("Reshape", key, flat), named=present[0])
        graph.op("ScatterND", past[1], self.places, graph.op("Reshape", value, by_head), named=present[1])
        heads = scores_of(self.blocks, module.mix, name)
        one_query = graph.op("Reshape", query, graph.int64s(-1, 1, 1, settings.attention_dim))
        scores = heads.scores(one_query, self._read(present[0], 1))
        return _mix(self.blocks, scores, self._read(present[1], 2), self.visible, name)

    def _read(self, cache: str, axis: int) -> str:
        """Return the positions of a cache that the step reads."""
        return self.blocks.graph.op("Gather", cache, self.reached, axis=axis) if self.reached else cache


def _whole_blocks(graph: GraphBuilder, positions: str) -> str:
    """Return the length of the longest row after the step, rounded up to a multiple of SUMMED: int64 [1].

    Positions beyond the capacity of the caches are those of the last one, and not visible.
    """
    longest, size = graph.op("ReduceMax", positions, graph.int64s(0), keepdims=1), graph.int64s(SUMMED)
    blocks = graph.op("Add", graph.op("Div", longest, size), graph.int64s(1))
    return graph.op("Mul", blocks, size)


def _mix(blocks: Blocks, scores: str, cached: str, visible: str, name: str) -> str:
    """Return the values of a cache mixed by the softmax of the visible scores: (rows, dim).

    scores: (rows, heads, 1, length)
    cached: (rows, heads, length, head_dim); what is not visible may be NaN
    visible: bool (rows, 1, 1, length)
    """
    graph = blocks.graph
    masked = graph.op("Where", visible, scores, graph.scalar(MASKED[graph.dtype.name]))
    weights = graph.op("Softmax", masked, axis=-1)
    by_position = graph.op("Transpose", visible, perm=[0, 1, 3, 2])
    values = graph.op("Where", by_position, cached, graph.scalar(0))
    mixed = graph.op("MatMul", weights, values, named=f"{name}.mixed")
    return graph.op("Reshape", mixed, graph.int64s(-1, blocks.settings.attention_dim))


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
