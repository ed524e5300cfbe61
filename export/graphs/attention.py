"""The attention of a Transformer as ONNX nodes: heads, positions, whole sequences, and steps over caches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from onnx import TensorProto

from lingon.bundle.names import TOTAL_LENGTH
from lingon.export.graphs.layers import MASKED, Blocks, softcap, to_numpy
from lingon.export.graphs.onnx_writer import CONTRIB, GraphBuilder
from lingon.export.graphs.output_layer import cast_to_float32
from lingon.training.model_settings import TransformerSettings
from lingon.training.models.attention import (
    AdditiveHeads,
    CappedHeads,
    CrossAttention,
    DotProductHeads,
    LinearHeads,
    RelativeBias,
    SelfAttention,
)

# The heads of an attention by softmax as ONNX nodes: the layouts of queries and keys, their scores, and the mix.
# Attention consists of MatMul, Softmax and MatMul: for few queries that measured faster than the fused operators, and
# the beams of a sentence share one copy of keys and values.

TensorShape = tuple[int | str, ...]


class ScoreWriter(Protocol):
    """A writer of the scores of queries with keys.

    scale: by which queries are multiplied before
    """

    @property
    def scale(self) -> float: ...

    def query(self, rows: str, batch: str, *, single: bool = False) -> str:
        """Return queries in the layout of `scores`, from rows (batch * length, dim).

        batch: int64 [batch]
        single: whether the length is 1. CUDA copies the values for a Transpose that changes nothing
        """

    def scores(self, query: str, key: str) -> str:
        """Return the score of each query with each key: (batch, heads, length, source_length).

        key: from `lay_out_keys`
        """


@dataclass(frozen=True, slots=True)
class ProductScores:
    """Scaled dot products: equation 1 of Vaswani et al. (2017).

    bound: of their soft cap, or 0
    """

    blocks: Blocks
    bound: float = 0

    @property
    def scale(self) -> float:
        """1 / sqrt(head_dim)."""
        return float(self.blocks.settings.head_dim**-0.5)

    def query(self, rows: str, batch: str, *, single: bool = False) -> str:
        """See Heads: (batch, heads, length, head_dim)."""
        settings = self.blocks.settings
        if not single:
            return self.blocks.split_heads(rows, batch)
        return self.blocks.graph.op("Reshape", rows, self.blocks.graph.int64s(-1, settings.heads, 1, settings.head_dim))

    def scores(self, query: str, key: str) -> str:
        """See Heads."""
        found = self.blocks.graph.op("MatMul", query, key)
        return softcap(self.blocks.graph, found, self.bound) if self.bound else found


@dataclass(frozen=True, slots=True)
class AdditiveScores:
    """w^T tanh(q + k) with a w for each head. See lingon.training.models.attention.AdditiveHeads.

    All heads are one product with a matrix (dim, heads), which has the w of a head in the rows of that head and 0 in
    the others. A product computes several columns at a time, so that the zeros cost little. Its rows do not depend on
    each other. Those of a sum over the last dimension may, by their position in memory.

    weights: the name of that matrix
    """

    blocks: Blocks
    weights: str

    @classmethod
    def write(cls, blocks: Blocks, module: AdditiveHeads, name: str) -> AdditiveScores:
        """Write the matrix; name: of the attention."""
        by_head = to_numpy(module.weight)
        heads, head_dim = by_head.shape
        matrix = np.zeros((heads * head_dim, heads), np.float32)
        for head, values in enumerate(by_head):
            matrix[head * head_dim : (head + 1) * head_dim, head] = values
        return cls(blocks, blocks.graph.weight(f"{name}.mix", matrix))

    @property
    def scale(self) -> float:
        """1: queries are not scaled."""
        return 1.0

    def query(self, rows: str, batch: str, *, single: bool = False) -> str:
        """See Heads: (batch, length, 1, dim)."""
        graph = self.blocks.graph
        sizes = graph.op("Concat", batch, graph.int64s(-1, 1, self.blocks.settings.attention_dim), axis=0)
        return graph.op("Reshape", rows, sizes)

    def scores(self, query: str, key: str) -> str:
        """See Heads."""
        graph, settings = self.blocks.graph, self.blocks.settings
        summed = graph.op("Add", query, graph.op("Unsqueeze", key, graph.int64s(1)))
        hidden = graph.op("Reshape", graph.op("Tanh", summed), graph.int64s(-1, settings.attention_dim))
        found = graph.op("MatMul", hidden, self.weights)
        sizes = graph.op("Concat", graph.op("Shape", summed, start=0, end=3), graph.int64s(settings.heads), axis=0)
        return graph.op("Transpose", graph.op("Reshape", found, sizes), perm=[0, 3, 1, 2])


def scores_of(blocks: Blocks, module: DotProductHeads, name: str) -> ScoreWriter:
    """Return the writer of the scores of an attention; name: of the attention."""
    return (
        AdditiveScores.write(blocks, module, name)
        if isinstance(module, AdditiveHeads)
        else product_scores(blocks, module)
    )


def product_scores(blocks: Blocks, module: DotProductHeads) -> ProductScores:
    """Return the writer of the scores of an attention by products."""
    return ProductScores(blocks, module.bound if isinstance(module, CappedHeads) else 0)


def lay_out_keys(blocks: Blocks, rows: str, batch: str) -> str:
    """Return keys (batch, *memory_key_shape), from rows (batch * source_length, dim); batch: int64 [batch]."""
    graph, settings = blocks.graph, blocks.settings
    if settings.score == "additive":
        return graph.op("Reshape", rows, graph.op("Concat", batch, graph.int64s(-1, settings.attention_dim), axis=0))
    return blocks.split_heads_transposed(rows, batch)


def memory_key_shape(settings: TransformerSettings) -> TensorShape:
    """Return the layout of the keys of a source, without the batch."""
    if settings.score == "additive":
        return "source_length", settings.attention_dim
    return settings.heads, settings.head_dim, "source_length"


def cache_key_shape(settings: TransformerSettings) -> TensorShape:
    """Return the layout of the keys in the cache of a decoder layer, without the rows."""
    if settings.score == "additive":
        return "capacity", settings.attention_dim
    return settings.heads, "capacity", settings.head_dim


def attend(
    heads: ScoreWriter, blocks: Blocks, query: str, key: str, value: str, bias: str, *, single: bool = False
) -> tuple[str, str]:
    """Write attention and return rows (batch * length, dim) and the weights (batch, heads, length, source_length).

    query: from `ScoreWriter.query`, scaled already
    key: from `lay_out_keys`
    value: (batch, heads, source_length, head_dim)
    bias: from `Blocks.attention_bias`, broadcast over (batch, heads, length, source_length)
    single: see `ScoreWriter.query`
    """
    graph, weights = blocks.graph, attention_weights(heads, blocks, query, key, bias)
    mixed = graph.op("MatMul", weights, value)
    if not single:
        mixed = graph.op("Transpose", mixed, perm=[0, 2, 1, 3])
    return graph.op("Reshape", mixed, graph.int64s(-1, blocks.settings.attention_dim)), weights


def attention_weights(heads: ScoreWriter, blocks: Blocks, query: str, key: str, bias: str) -> str:
    """Return the weights (batch, heads, length, source_length). See `attend`."""
    # Of score + mask, fp32 keeps nothing of the score and fp16 little: the weight is exactly 0 in both.
    scores = blocks.graph.op("Add", heads.scores(query, key), bias)
    return blocks.graph.op("Softmax", scores, axis=-1)


# Positions in attention as ONNX nodes: rotary ones, Su et al. (2021), and the biases of relative ones.
# See lingon.training.models.attention and RelativeBias. RotaryEmbedding has kernels for the CPU and for CUDA, and reads
# the angles of each position from tables.


@dataclass(frozen=True, slots=True)
class Rotation:
    """A writer of the rotation of heads, in one graph.

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
        indices = graph.op("Unsqueeze", positions, graph.int64s(1))
        return cls(blocks, *_tables(blocks), indices, graph.int64s(-1, 1, blocks.settings.attention_dim))

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
    """A writer of what relative positions add to scores.

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

    def added_to(self, masks: Mapping[int, Mask], positions: str) -> dict[int, Mask]:
        """Return masks with what `of_sequences` adds to their biases."""
        added = self.of_sequences(positions)
        return {key: mask._replace(bias=self.blocks.graph.op("Add", mask.bias, added)) for key, mask in masks.items()}

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
        positions = self.blocks.graph.op("Add", distances, self.blocks.graph.int64s(longest - 1))
        return self.blocks.graph.gather(self.name, table, positions)


# Self-attention of whole sequences, attention of linear cost, and cross-attention, as ONNX nodes.

TINY = float(np.finfo(np.float32).tiny)


class Mask(NamedTuple):
    """Which keys the queries of a self-attention see.

    visible: bool, broadcast over (batch, heads, length, length). Linear attention reads it, and needs (batch, 1, 1,
        length)
    bias: the same for attention by softmax, see Blocks.attention_bias
    """

    visible: str
    bias: str


def self_attention(
    blocks: Blocks,
    module: SelfAttention,
    name: str,
    rows: str,
    batch: str,
    mask: Mask,
    rotation: Rotation | None,
    *,
    weighted: bool = True,
) -> tuple[str, str]:
    """Return the self-attention of rows (batch * length, dim), and its weights (batch, heads, length, length).

    weighted: whether the weights are read; without, linear attention makes no matrix, and its weights are ""
    """
    graph = blocks.graph
    packed = blocks.packed(module, name, rows)
    query, key, value = blocks.split(packed, 3)
    if rotation is not None:
        query, key = rotation.rotate(query), rotation.rotate(key)
    if isinstance(module.mix, LinearHeads):
        mixed, weights = _attend_linearly(blocks, query, key, value, batch, mask.visible, weighted=weighted)
        return blocks.linear(module.output, f"{name}.output", mixed), weights
    heads = scores_of(blocks, module.mix, name)
    query = heads.query(query, batch)
    if heads.scale != 1:
        query = graph.op("Mul", query, graph.scalar(heads.scale))
    mixed, weights = attend(
        heads, blocks, query, lay_out_keys(blocks, key, batch), blocks.split_heads(value, batch), mask.bias
    )
    return blocks.linear(module.output, f"{name}.output", mixed), weights


def cross_attention(
    blocks: Blocks,
    module: CrossAttention,
    name: str,
    rows: str,
    memory: tuple[str, str],
    batch: str,
    bias: str,
    *,
    single: bool = False,
) -> tuple[str, str]:
    """Return the cross-attention of rows (batch * length, dim) over memory, and its weights.

    In a decoder step, the beams of a sentence are adjacent rows and replace `length`, so that all of them
    read one copy of the memory. single: whether there is one
    """
    heads = scores_of(blocks, module.mix, name)
    query = heads.query(blocks.linear(module.query, f"{name}.query", rows, heads.scale), batch, single=single)
    mixed, weights = attend(heads, blocks, query, *memory, bias, single=single)
    return blocks.linear(module.output, f"{name}.output", mixed), weights


def _attend_linearly(
    blocks: Blocks, query: str, key: str, value: str, batch: str, visible: str, *, weighted: bool
) -> tuple[str, str]:
    """Write lingon.training.models.attention.attend_linearly and return rows (batch * length, dim), and the weights.

    The values get a column of ones: one product gives the sums of both the numerator and the norm, in the same order
    for any padding. All is in float32, since float16 ends at 65,504.
    """
    graph, head_dim = blocks.graph, blocks.settings.head_dim
    query, key, value = (cast_to_float32(graph, each) for each in (query, key, value))
    queries = _features(blocks, blocks.split_heads(query, batch))
    features = _features(blocks, blocks.split_heads_transposed(key, batch))
    zero, one, tiny = (graph.constant(np.array(each, np.float32)) for each in (0, 1, TINY))
    keys = graph.op("Where", visible, features, zero)
    values = blocks.split_heads(value, batch)
    column = graph.op("Expand", one, graph.op("Concat", graph.op("Shape", values, end=3), graph.int64s(1), axis=0))
    state = graph.op("MatMul", keys, graph.op("Concat", values, column, axis=-1))
    sums, norms = graph.op("MatMul", queries, state), f"{query}.norms"
    parts = graph.ops("Split", sums, graph.int64s(head_dim, 1), outputs=[f"{query}.sums", norms], axis=-1)
    divisor = graph.op("Max", norms, tiny)
    mixed = graph.op("Transpose", graph.op("Div", parts[0], divisor), perm=[0, 2, 1, 3])
    found = graph.op("Reshape", mixed, graph.int64s(-1, blocks.settings.attention_dim))
    if graph.dtype != np.float32:
        found = graph.op("Cast", found, to=TensorProto.FLOAT16)
    return found, graph.op("Div", graph.op("MatMul", queries, keys), divisor) if weighted else ""


def _features(blocks: Blocks, heads: str) -> str:
    """Return phi(x) = elu(x) + 1 as exp(min(x, 0)) + max(x, 0): the kernel of Elu rounds by the position of an
    element.
    """
    graph = blocks.graph
    zero = graph.constant(np.array(0, np.float32))
    return graph.op("Add", graph.op("Exp", graph.op("Min", heads, zero)), graph.op("Relu", heads))


# Self-attention of a decoder step over the caches of keys and values: three ways with the same inputs and outputs.
# All write the key and the value of the new position of each row into its caches, and attend from that position to all
# positions up to it.

SUMMED = 4  # positions that a product of one row adds at a time: only then do zeros after a multiple change no bit
Caches = tuple[str, str]
"""Names of the keys and of the values of a layer, (rows, heads, capacity, head_dim) each.

Additive scores have keys (rows, capacity, dim). Rotated keys are in the cache as they are.
"""


class StepAttention(Protocol):
    """A writer of the attention of a decoder step. It is made once for a graph and used by every layer."""

    def attend(self, module: SelfAttention, name: str, packed: str, past: Caches, present: Caches) -> str:
        """Return the mixed values (rows, dim).

        module: the attention whose scores these are
        name: of the values that the nodes write
        packed: query, key and value of the new position, (rows, 3 * dim)
        past: the inputs of the graph. No other node may read them, because the runner binds `present` to their memory
        present: the outputs of the graph, with the new position
        """


@dataclass(frozen=True, slots=True)
class GroupedAttention:
    """GroupQueryAttention: one kernel, which reads as far as each row's own length. CUDA has none for float32.

    last: the index of the new position of each row, int32 (rows)
    total: the longest length after the step, an int32 scalar, or more. The kernel reads it on the host
    rotation: of queries and keys
    bias: what is added to the scores of each head (rows, heads, 1, total), or "" if nothing is
    """

    blocks: Blocks
    last: str
    total: str
    rotation: Rotation | None
    bias: str

    @classmethod
    def write(
        cls, blocks: Blocks, positions: str, rotation: Rotation | None, relative: RelativeScores | None, *, given: bool
    ) -> GroupedAttention:
        """Write the lengths; given: whether `total` is an input of the graph and not computed from positions."""
        graph = blocks.graph
        last = graph.op("Cast", positions, to=TensorProto.INT32)
        if given:
            total = graph.input(TOTAL_LENGTH, np.int32, [])
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
            **_bounds(module),
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

    positions: where the new position goes in a cache, int64 (rows, heads, 3): row, head and position
    visible: by the window of a layer, whether a position is read, bool (rows, 1, 1, capacity)
    bias: what is added to the scores (rows, heads, 1, capacity), or "" if nothing is
    """

    blocks: Blocks
    positions: str
    visible: Mapping[int, str]
    rotation: Rotation | None
    bias: str

    @classmethod
    def write(
        cls, blocks: Blocks, positions: str, capacity: str, rotation: Rotation | None, relative: RelativeScores | None
    ) -> ScatteredAttention:
        """Write the cache indices and the mask for positions (rows) and the capacity of the caches, int64 [capacity].

        The graph has the input TOTAL_LENGTH, as all decoders for devices do, and reads the capacity instead: the mask
        must be as wide as the caches, and the input may be smaller.
        """
        graph = blocks.graph
        graph.input(TOTAL_LENGTH, np.int32, [])
        keys, last = graph.count_up(capacity), graph.op("Unsqueeze", positions, _after(graph, 3))
        reached = graph.op("LessOrEqual", keys, last)
        visible = {
            window: graph.op("And", reached, since(graph, keys, last, window)) if window else reached
            for window in sorted({*blocks.settings.windows("decoder")})
        }
        bias = "" if relative is None else relative.of_steps(positions, keys)
        return cls(blocks, _cache_indices(graph, positions, blocks.settings.heads), visible, rotation, bias)

    def attend(self, module: SelfAttention, name: str, packed: str, past: Caches, present: Caches) -> str:
        """See StepAttention."""
        graph, settings = self.blocks.graph, self.blocks.settings
        query, key, value = self.blocks.split(packed, 3)
        if self.rotation is not None:
            query, key = self.rotation.rotate(query), self.rotation.rotate(key)
        by_head = graph.int64s(-1, settings.heads, settings.head_dim)
        for old, added, cache in zip(past, (key, value), present, strict=True):
            graph.op("ScatterND", old, self.positions, graph.op("Reshape", added, by_head), named=cache)
        one_query = graph.op("Reshape", query, graph.int64s(-1, settings.heads, 1, settings.head_dim))
        scale = settings.head_dim**-0.5
        scores = graph.op("FusedMatMul", one_query, present[0], domain=CONTRIB, transB=1, alpha=scale)
        if isinstance(module.mix, CappedHeads):
            scores = softcap(graph, scores, module.mix.bound)
        if self.bias:
            scores = graph.op("Add", scores, self.bias)
        return _mix(self.blocks, scores, present[1], self.visible[module.window], name)


@dataclass(frozen=True, slots=True)
class AdditiveAttention:
    """ScatterND into the caches, then additive scores, which no fused kernel computes.

    As in ScatteredAttention, positions after the new one may hold anything.

    positions: see ScatteredAttention
    row_positions: where the new key goes in its cache, int64 (rows, 2): row and position
    reached: the positions that the step reads, int64 (reach), or "" for all of the capacity, since a device would have
        to wait for the longest row
    visible: whether a position is read, bool (rows, 1, 1, reach)
    """

    blocks: Blocks
    positions: str
    row_positions: str
    reached: str
    visible: str
    rotation: Rotation | None

    @classmethod
    def write(
        cls, blocks: Blocks, positions: str, capacity: str, rotation: Rotation | None, *, given: bool
    ) -> AdditiveAttention:
        """Write the cache indices and the mask for positions (rows) and the capacity of the caches, int64 [capacity].

        given: whether the graph has the input TOTAL_LENGTH. See ScatteredAttention
        """
        graph = blocks.graph
        if given:
            graph.input(TOTAL_LENGTH, np.int32, [])
        counted = graph.count_up(capacity if given else _whole_blocks(graph, positions))
        reached = "" if given else graph.op("Min", counted, graph.op("Sub", capacity, graph.int64s(1)))
        visible = graph.op("LessOrEqual", counted, graph.op("Unsqueeze", positions, _after(graph, 3)))
        indices = _cache_indices(graph, positions, blocks.settings.heads)
        rows = graph.count_up(graph.op("Shape", positions))
        pair = [graph.op("Unsqueeze", each, graph.int64s(1)) for each in (rows, positions)]
        return cls(blocks, indices, graph.op("Concat", *pair, axis=1), reached, visible, rotation)

    def attend(self, module: SelfAttention, name: str, packed: str, past: Caches, present: Caches) -> str:
        """See StepAttention."""
        graph, settings = self.blocks.graph, self.blocks.settings
        query, key, value = self.blocks.split(packed, 3)
        if self.rotation is not None:
            query, key = self.rotation.rotate(query), self.rotation.rotate(key)
        flat, by_head = graph.int64s(-1, settings.attention_dim), graph.int64s(-1, settings.heads, settings.head_dim)
        graph.op("ScatterND", past[0], self.row_positions, graph.op("Reshape", key, flat), named=present[0])
        graph.op("ScatterND", past[1], self.positions, graph.op("Reshape", value, by_head), named=present[1])
        heads = scores_of(self.blocks, module.mix, name)
        one_query = graph.op("Reshape", query, graph.int64s(-1, 1, 1, settings.attention_dim))
        scores = heads.scores(one_query, self._read(present[0], 1))
        return _mix(self.blocks, scores, self._read(present[1], 2), self.visible, name)

    def _read(self, cache: str, axis: int) -> str:
        """Return the positions of a cache that the step reads."""
        return self.blocks.graph.op("Gather", cache, self.reached, axis=axis) if self.reached else cache


def _bounds(module: SelfAttention) -> dict[str, float]:
    """Return the attributes of GroupQueryAttention for a window and a soft cap, which it has not without them.

    Its window counts the new position.
    """
    bounds: dict[str, float] = {"local_window_size": 1 + module.window} if module.window else {}
    return bounds | ({"softcap": module.mix.bound} if isinstance(module.mix, CappedHeads) else {})


def since(graph: GraphBuilder, keys: str, positions: str, window: int) -> str:
    """Return whether keys are at most `window` positions before others, bool, broadcast over both; int64 each."""
    return graph.op("LessOrEqual", graph.op("Sub", positions, keys), graph.int64s(window))


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
    cached: (rows, heads, length, head_dim). What is not visible may be NaN
    visible: bool (rows, 1, 1, length)
    """
    graph = blocks.graph
    masked = graph.op("Where", visible, scores, graph.scalar(MASKED[graph.dtype.name]))
    weights = graph.op("Softmax", masked, axis=-1)
    by_position = graph.op("Transpose", visible, perm=[0, 1, 3, 2])
    values = graph.op("Where", by_position, cached, graph.scalar(0))
    mixed = graph.op("MatMul", weights, values, named=f"{name}.mixed")
    return graph.op("Reshape", mixed, graph.int64s(-1, blocks.settings.attention_dim))


def _cache_indices(graph: GraphBuilder, positions: str, heads: int) -> str:
    """Return the index (row, head, position) of the new key and value of every row and head: (rows, heads, 3)."""
    rows = graph.op("Unsqueeze", graph.count_up(graph.op("Shape", positions)), _after(graph, 2))
    of_row = graph.op("Mul", rows, graph.int64s(1, 0, 0))
    at_position = graph.op("Mul", graph.op("Unsqueeze", positions, _after(graph, 2)), graph.int64s(0, 0, 1))
    of_head = np.arange(heads)[:, None] * np.array([0, 1, 0])
    return graph.op("Add", graph.op("Add", of_row, at_position), graph.constant(of_head))


def _after(graph: GraphBuilder, axes: int) -> str:
    """Return the axes that Unsqueeze adds after the first one."""
    return graph.int64s(*range(1, 1 + axes))
