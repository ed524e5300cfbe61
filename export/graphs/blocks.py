"""The layers of a Transformer as ONNX nodes, and what the graphs of all systems use of a model.

Products with a weight take two-dimensional rows (rows, dim) (lingon.export.graphs.matmul), so that the result of a row
does not depend on the number of rows. Attention consists of MatMul, Softmax and MatMul: for few queries that measured
faster than the fused operators, and the beams of a sentence share one copy of keys and values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import numpy as np
from torch import Tensor, nn

from lingon.export.graphs.matmul import MatMul
from lingon.export.graphs.onnx_writer import GraphBuilder
from lingon.training.config import TransformerSettings
from lingon.training.models.attention import CrossAttention, SelfAttention
from lingon.training.models.interface import AnyModel
from lingon.training.models.layers import Embedding, FeedForward, PostNorm

MASKED = {"float32": -3e38, "float16": -6e4}  # added to a score: finite, and its exp is exactly 0
BLOCK = 64  # pieces of the vocabulary per block of the top-k search in lingon.export.graphs.output_layer


def pad_to_blocks(values: np.ndarray, fill: float = 0) -> np.ndarray:
    """Pad values (vocab, ...) with rows of `fill` to a multiple of BLOCK rows."""
    missing = -len(values) % BLOCK
    return np.concatenate([values, np.full((missing, *values.shape[1:]), fill, values.dtype)])


def to_numpy(tensor: Tensor) -> np.ndarray:
    """Return the values of a parameter as float32."""
    return tensor.detach().float().cpu().numpy()


def embedding_of(model: AnyModel, side: str) -> nn.Embedding:
    """Return the matrix of the pieces of a side, source or target."""
    found = model.get_submodule(f"{side}_embedding.pieces")
    assert isinstance(found, nn.Embedding)
    return found


def table_name(model: AnyModel, side: str) -> str:
    """Return the name of the matrix of the pieces of a side, which both sides may share."""
    tied = embedding_of(model, "source").weight is embedding_of(model, "target").weight
    return "pieces" if tied else f"{side}_pieces"


@dataclass(frozen=True, slots=True)
class Layers:
    """Writes products with trained weights into a graph."""

    graph: GraphBuilder
    matmul: MatMul

    def linear(self, module: nn.Linear, name: str, rows: str, scale: float = 1.0) -> str:
        """Return scale * (rows W^T + b), (n, out), for rows (n, in); the scale is folded into weight and bias."""
        weight = to_numpy(module.weight)
        trained = cast("Tensor | None", module.bias)
        bias = np.zeros(len(weight), np.float32) if trained is None else to_numpy(trained)
        return self.matmul.linear(name, rows, weight * np.float32(scale), bias * np.float32(scale))


@dataclass(frozen=True, slots=True)
class Blocks(Layers):
    """Writes layers of a Transformer into a graph, for the settings of a model."""

    settings: TransformerSettings

    def embed(self, module: Embedding, name: str, side: str, ids: str, positions: str) -> str:
        """Return sqrt(dim) * piece + position, for ids and positions of the same shape.

        name: the name of the embedding matrix, which both sides may share
        side: source or target, for the name of learned positions
        """
        graph = self.graph
        table = pad_to_blocks(to_numpy(module.pieces.weight))
        pieces = graph.op("Mul", graph.gather(name, table, ids), graph.scalar(math.sqrt(self.settings.dim)))
        owner = f"{side}." if self.settings.positions == "learned" else ""
        encodings = graph.gather(f"{owner}position_table", to_numpy(module.positions), positions)
        return graph.op("Add", pieces, encodings)

    def norm(self, module: nn.Module, name: str, rows: str) -> str:
        """Return the LayerNorm of rows over the last dimension, or rows if the model has no norm here."""
        if not isinstance(module, nn.LayerNorm):
            return rows
        gain = self.graph.weight(f"{name}.weight", to_numpy(module.weight))
        bias = self.graph.weight(f"{name}.bias", to_numpy(module.bias))
        return self.graph.op("LayerNormalization", rows, gain, bias, axis=-1, epsilon=module.eps)

    def before(self, around: PostNorm, name: str, rows: str) -> str:
        """Return the input of a sublayer; see lingon.training.models.layers.PostNorm and PreNorm."""
        return self.norm(around.norm, f"{name}.norm", rows) if self.settings.norm == "pre" else rows

    def after(self, around: PostNorm, name: str, rows: str, sublayer: str) -> str:
        """Return the output of a residual connection, from its input and the output of the sublayer."""
        total = self.graph.op("Add", rows, sublayer)
        return total if self.settings.norm == "pre" else self.norm(around.norm, f"{name}.norm", total)

    def feed_forward(self, module: FeedForward, name: str, rows: str) -> str:
        """Return the feed-forward layer of rows (n, dim): equation 2 of Vaswani et al. (2017)."""
        inner, outer = f"{name}.inner", f"{name}.outer"
        return self.linear(module.outer, outer, self._activate(self.linear(module.inner, inner, rows), outer))

    def _activate(self, value: str, reader: str) -> str:
        graph = self.graph
        if self.settings.activation == "relu":
            return self.matmul.relu(value, reader)
        if self.settings.activation == "gelu":
            return graph.op("Gelu", value)
        return graph.op("Mul", value, graph.op("Sigmoid", value))

    def split_heads(self, rows: str, batch: str) -> str:
        """Reshape rows (batch * length, dim) to (batch, heads, length, head_dim); batch: int64 [batch]."""
        return self.graph.op("Transpose", self._by_head(rows, batch), perm=[0, 2, 1, 3])

    def split_heads_transposed(self, rows: str, batch: str) -> str:
        """Reshape rows (batch * length, dim) to (batch, heads, head_dim, length), the layout of keys."""
        return self.graph.op("Transpose", self._by_head(rows, batch), perm=[0, 2, 3, 1])

    def _by_head(self, rows: str, batch: str) -> str:
        sizes = self.graph.int64s(-1, self.settings.heads, self.settings.head_dim)
        return self.graph.op("Reshape", rows, self.graph.op("Concat", batch, sizes, axis=0))

    def split(self, rows: str, parts: int) -> list[str]:
        """Split rows (n, parts * dim) into `parts` values (n, dim)."""
        names = [f"{rows}.part.{part}" for part in range(parts)]
        return self.graph.ops("Split", rows, outputs=names, axis=1, num_outputs=parts)

    def attention_bias(self, visible: str) -> str:
        """Return what `attend` adds to scores: 0 if visible (bool, any shape) is True, else a huge negative number."""
        graph = self.graph
        return graph.op("Where", visible, graph.scalar(0), graph.scalar(MASKED[graph.dtype.name]))

    def attend(self, query: str, key: str, value: str, bias: str) -> tuple[str, str]:
        """Scaled dot-product attention, equation 1; query must be scaled already.

        query: (batch, heads, length, head_dim)
        key: (batch, heads, head_dim, source_length)
        value: (batch, heads, source_length, head_dim)
        bias: from `attention_bias`, broadcast over (batch, heads, length, source_length)

        Returns rows (batch * length, dim) and the attention weights (batch, heads, length, source_length).
        """
        graph = self.graph
        # Of score + mask, fp32 keeps nothing of the score and fp16 little: the weight is exactly 0 in both.
        scores = graph.op("Add", graph.op("MatMul", query, key), bias)
        weights = graph.op("Softmax", scores, axis=-1)
        mixed = graph.op("Transpose", graph.op("MatMul", weights, value), perm=[0, 2, 1, 3])
        return graph.op("Reshape", mixed, graph.int64s(-1, self.settings.dim)), weights

    def self_attention(self, module: SelfAttention, name: str, rows: str, batch: str, bias: str) -> tuple[str, str]:
        """Return the self-attention of rows (batch * length, dim), and its weights (batch, heads, length, length)."""
        packed = self.linear(module.qkv, f"{name}.qkv", rows)
        query, key, value = self.split(packed, 3)
        query = self.graph.op("Mul", self.split_heads(query, batch), self.graph.scalar(self.settings.head_dim**-0.5))
        mixed, weights = self.attend(
            query, self.split_heads_transposed(key, batch), self.split_heads(value, batch), bias
        )
        return self.linear(module.output, f"{name}.output", mixed), weights

    def cross_attention(
        self, module: CrossAttention, name: str, rows: str, memory: tuple[str, str], batch: str, bias: str
    ) -> tuple[str, str]:
        """Return the cross-attention of rows (batch * length, dim) over memory, and its weights.

        In a decoder step, the beams of a sentence are adjacent rows and take the place of `length`, so that all of them
        read one copy of the memory.
        """
        query = self.split_heads(self.linear(module.query, f"{name}.query", rows, self.settings.head_dim**-0.5), batch)
        mixed, weights = self.attend(query, *memory, bias)
        return self.linear(module.output, f"{name}.output", mixed), weights
