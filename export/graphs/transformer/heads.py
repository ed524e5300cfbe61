"""The heads of an attention by softmax as ONNX nodes: the layouts of queries and keys, their scores, and the mix.

Attention consists of MatMul, Softmax and MatMul: for few queries that measured faster than the fused operators, and the
beams of a sentence share one copy of keys and values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from lingon.export.graphs.layers import to_numpy
from lingon.export.graphs.transformer.blocks import Blocks
from lingon.training.config import TransformerSettings
from lingon.training.models.attention import AdditiveHeads, DotProductHeads

Shape = tuple[int | str, ...]


class Heads(Protocol):
    """Writes the scores of queries with keys.

    scale: by which queries are multiplied before
    """

    @property
    def scale(self) -> float: ...

    def query(self, rows: str, batch: str, *, single: bool = False) -> str:
        """Return queries in the layout of `scores`, from rows (batch * length, dim).

        batch: int64 [batch]
        single: whether the length is 1; CUDA copies the values for a Transpose that changes nothing
        """

    def scores(self, query: str, key: str) -> str:
        """Return the score of each query with each key: (batch, heads, length, source_length).

        key: from `lay_out_keys`
        """


@dataclass(frozen=True, slots=True)
class ProductScores:
    """Scaled dot products: equation 1 of Vaswani et al. (2017)."""

    blocks: Blocks

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
        return self.blocks.graph.op("MatMul", query, key)


@dataclass(frozen=True, slots=True)
class AdditiveScores:
    """w^T tanh(q + k) with a w for each head; see lingon.training.models.attention.AdditiveHeads.

    All heads are one product with a matrix (dim, heads), which has the w of a head in the rows of that head and 0 in
    the others. A product computes several columns at a time, so that the zeros cost little. Its rows do not depend on
    each other; those of a sum over the last dimension may, by their place in memory.

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


def scores_of(blocks: Blocks, module: DotProductHeads, name: str) -> Heads:
    """Return the writer of the scores of an attention; name: of the attention."""
    return AdditiveScores.write(blocks, module, name) if isinstance(module, AdditiveHeads) else ProductScores(blocks)


def lay_out_keys(blocks: Blocks, rows: str, batch: str) -> str:
    """Return keys (batch, *memory_key_shape), from rows (batch * source_length, dim); batch: int64 [batch]."""
    graph, settings = blocks.graph, blocks.settings
    if settings.score == "additive":
        return graph.op("Reshape", rows, graph.op("Concat", batch, graph.int64s(-1, settings.attention_dim), axis=0))
    return blocks.split_heads_transposed(rows, batch)


def memory_key_shape(settings: TransformerSettings) -> Shape:
    """Return the layout of the keys of a source, without the batch."""
    if settings.score == "additive":
        return "source_length", settings.attention_dim
    return settings.heads, settings.head_dim, "source_length"


def cache_key_shape(settings: TransformerSettings) -> Shape:
    """Return the layout of the keys in the cache of a decoder layer, without the rows."""
    if settings.score == "additive":
        return "capacity", settings.attention_dim
    return settings.heads, "capacity", settings.head_dim


def attend(
    heads: Heads, blocks: Blocks, query: str, key: str, value: str, bias: str, *, single: bool = False
) -> tuple[str, str]:
    """Write attention; return rows (batch * length, dim) and the weights (batch, heads, length, source_length).

    query: from `Heads.query`, scaled already
    key: from `lay_out_keys`
    value: (batch, heads, source_length, head_dim)
    bias: from `Blocks.attention_bias`, broadcast over (batch, heads, length, source_length)
    single: see `Heads.query`
    """
    graph, weights = blocks.graph, attention_weights(heads, blocks, query, key, bias)
    mixed = graph.op("MatMul", weights, value)
    if not single:
        mixed = graph.op("Transpose", mixed, perm=[0, 2, 1, 3])
    return graph.op("Reshape", mixed, graph.int64s(-1, blocks.settings.attention_dim)), weights


def attention_weights(heads: Heads, blocks: Blocks, query: str, key: str, bias: str) -> str:
    """Return the weights (batch, heads, length, source_length); see `attend`."""
    # Of score + mask, fp32 keeps nothing of the score and fp16 little: the weight is exactly 0 in both.
    scores = blocks.graph.op("Add", heads.scores(query, key), bias)
    return blocks.graph.op("Softmax", scores, axis=-1)
