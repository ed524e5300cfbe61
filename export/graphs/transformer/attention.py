"""Self-attention of whole sequences, attention of linear cost, and cross-attention, as ONNX nodes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from onnx import TensorProto

from lingon.export.graphs.output_layer import cast_to_float32
from lingon.export.graphs.transformer.blocks import Blocks
from lingon.export.graphs.transformer.heads import attend, lay_out_keys, scores_of
from lingon.export.graphs.transformer.positions import Rotation
from lingon.training.models.attention import CrossAttention, LinearHeads, SelfAttention

TINY = float(np.finfo(np.float32).tiny)


class Mask(NamedTuple):
    """Which keys the queries of a self-attention see.

    visible: bool, broadcast over (batch, heads, length, length); linear attention reads it, and needs (batch, 1, 1,
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

    In a decoder step, the beams of a sentence are adjacent rows and take the place of `length`, so that all of them
    read one copy of the memory. single: whether there is one
    """
    heads = scores_of(blocks, module.mix, name)
    query = heads.query(blocks.linear(module.query, f"{name}.query", rows, heads.scale), batch, single=single)
    mixed, weights = attend(heads, blocks, query, *memory, bias, single=single)
    return blocks.linear(module.output, f"{name}.output", mixed), weights


def _attend_linearly(
    blocks: Blocks, query: str, key: str, value: str, batch: str, visible: str, *, weighted: bool
) -> tuple[str, str]:
    """Write lingon.training.models.attention.attend_linearly; return rows (batch * length, dim), and the weights.

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
    """Return phi(x) = elu(x) + 1 as exp(min(x, 0)) + max(x, 0): the kernel of Elu rounds by the place of an element."""
    graph = blocks.graph
    zero = graph.constant(np.array(0, np.float32))
    return graph.op("Add", graph.op("Exp", graph.op("Min", heads, zero)), graph.op("Relu", heads))
